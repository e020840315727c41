"""A sync of the strategy append records that it has read versions without new rows, before the source's log loses them."""

import pytest

from ratify_lakehouse.components.strategies import pass_scope
from ratify_lakehouse.components.syncs.sync_declaration import SyncEngine, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from tests.components.declared_syncs import declared, names, stored, table
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


@pytest.mark.parametrize(
    ("limit", "value"), [("VERSIONS_READ_AGAIN", 2), pytest.param("READ_AGAIN_SECONDS", 0, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("engine", [pytest.param(SyncEngine.SPARK, marks=pytest.mark.long), SyncEngine.DUCKDB])
def test_versions_without_rows_are_read_once(
    bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: SyncEngine, limit: str, value: int
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v")
    sync = declared(destination, SyncStrategy.APPEND, table(source), engine=engine)
    one = pass_of(bronze.spark, bronze.duckdb, sync)
    assert one.run().counts.inserted == 1
    for number in range(2):
        bronze.quick(f"ALTER TABLE ratify.bronze.{source} SET TBLPROPERTIES ('test.step' = '{number}')")
    assert one.run().commit is None
    monkeypatch.setattr(pass_scope, limit, value)
    assert [one.run().version for _ in range(2)] == [2, 2]
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2, 'b')")
    assert one.run().counts.inserted == 1
    assert stored(bronze, destination) == [(1, "a"), (2, "b")]
