"""A full refresh of a table that only allows appends is refused before anything is done; it goes on as before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.flink_sql_component import FlinkSql
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.declarations import APPEND_ONLY
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.declared_pairs import declared
from tests.components.event_tables import declared_events
from tests.components.test_whole_passes import Shared, shared
from tests.engines.declared_tables import create_declared

pytestmark = pytest.mark.server

__all__ = ["shared"]

_APPENDED: dict[str, Any] = {"table_properties": {APPEND_ONLY: "true"}}


@pytest.fixture
def spark(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    """No session is opened: nothing is read, either."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    return Spark(catalog=shared.catalog)


def refused(refresh: Callable[[], object]) -> None:
    with pytest.raises(UnsafeTable, match=r"only allows appends: run ALTER TABLE ratify\.bronze\.\w+ SET TBLPROPERTIES"):
        refresh()


def test_of_flink(shared: Shared, spark: Spark, tmp_path: Path) -> None:
    """Its job would have no state that goes with the rows that stay."""
    columns = [{"name": "k", "type": "string"}]
    topics = [{"topic": "a", "name": "a"}]
    place, sql = tmp_path / "bronze" / "of_flink", "SELECT `key` AS k FROM a"
    table = declared(FlinkSql, place, _APPENDED | {"keys": ["k"], "columns": columns, "topics": topics}, sql).table
    create_declared(shared.admin, table.declaration)

    def refresh() -> None:
        with table.started(spark, Kafka(), Flink(catalog=shared.catalog), refresh=True):
            pass

    refused(refresh)
    assert not list(Path(stream_checkpoints.folder(spark, table.declaration)).glob("*"))


def test_of_records(shared: Shared, spark: Spark) -> None:
    table = declared_events("of_records", "a", **_APPENDED).declaration
    create_declared(shared.admin, table)
    refused(lambda: ingest(Kafka(), spark, table, SourceOptions(source="rate", full_refresh=True, force=True)))


def test_of_appended_rows(shared: Shared, spark: Spark, tmp_path: Path) -> None:
    place, more = tmp_path / "bronze" / "of_rows", {"strategy": "append", "external": ["bronze.a"]}
    component = declared(SqlTable, place, _APPENDED | more, "SELECT id FROM bronze.a")
    shared.catalog.ensure_schemas(("bronze",))
    shared.others.run("CREATE TABLE ratify.bronze.a (id BIGINT) USING DELTA")
    shared.others.run(
        "CREATE TABLE ratify.bronze.of_rows (id BIGINT) USING DELTA TBLPROPERTIES ('delta.appendOnly' = 'true')"
    )
    refused(lambda: list(component.results(spark, None, full_refresh=True)))
