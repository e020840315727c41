"""The data version of a bronze table, which decides whether what is downstream runs."""

from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.table_asset import rows_version
from ratify_lakehouse.engines.duckdb.table_compaction import compact
from tests.components.checked_tables import CheckedTable
from tests.engines.lakehouse import Lakehouse, pairs
from tests.ingest.test_batch_loading import HEADER

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


def test_the_data_version_changes_when_something_landed(lake: Lakehouse, tmp_path: Path) -> None:
    """What is downstream runs when it changes: a run that found nothing starts nothing, and old bytes that land again do."""
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)

        def version() -> str:
            done = table.run(table.alone)
            (event,) = done.get_asset_materialization_events()
            tags = event.step_materialization_data.materialization.tags or {}
            table_id, _, of_rows = tags["dagster/data_version"].partition(".")
            assert (lake.catalog.table(lake.full(table.source.table)).table_id or "").startswith(f"{table_id}-")
            return of_rows

        table.landing.put("1.csv", HEADER + "A,x\n")
        assert [version(), version()] == ["1", "1"]
        table.landing.put("2.csv", HEADER + "A,x\n")
        assert version() == "1.1"
        table.landing.put("3.csv", HEADER + "B,x\n")
        assert [version(), version()] == ["2.1", "2.1"]
        # A compaction changes no row, so nothing downstream has to run.
        log = lake.duckdb.log(lake.full(table.source.table))
        with lake.duckdb.session() as session:
            assert compact(session, lake.catalog, log, lake.full(table.source.table))
        assert log.refresh().version == 3
        assert version() == "2.1"
        table.landing.put("4.csv", HEADER + "C,x\n")
        assert version() == "4.1"


def test_a_table_that_is_created_again_has_another(lake: Lakehouse) -> None:
    """It comes to a version that it had, and what is downstream has the rows of before."""
    table = pairs()
    found = list[str]()
    for _ in range(2):
        lake.ensure(table)
        lake.quick(f"INSERT INTO {lake.full(table)} VALUES (1, 'a')")
        found.append(rows_version(lake.spark, lake.full(table), 1))
        lake.quick(f"DROP TABLE {lake.full(table)}")
    assert [version.partition(".")[2] for version in found] == ["1", "1"]
    assert len(set(found)) == 2
