"""Syncs by a SQL warehouse that have read before an erasure: no commit of its can be refused."""

import pytest

from ratify_lakehouse.components.syncs.compared_rows import RowComparison
from ratify_lakehouse.components.syncs.sync_declaration import SyncStrategy
from ratify_lakehouse.components.syncs.warehouse_queries import WarehouseQueries
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.errors import WrittenAfterErasure
from tests.components.incremental_tables import moved
from tests.components.warehouse_workspace import Workspace, declared, names, table

pytestmark = pytest.mark.stack


class Fenced:
    """A source with one row, a sync of it, and an erasure of all other rows."""

    def __init__(self, workspace: Workspace, strategy: SyncStrategy) -> None:
        self.workspace, (self.source, self.destination) = workspace, names()
        self.quick(f"CREATE TABLE ratify.bronze.{self.source} AS SELECT * FROM VALUES (1, 'Bo') AS t(id, who)")
        self.quick(f"CREATE TABLE ratify.bronze.{self.destination} (id INT, who STRING) USING DELTA")
        self.sync = declared(self.destination, strategy, table(self.source), *(["id"] if strategy.keyed else []))
        self.quick(f"INSERT INTO ratify.bronze.{self.source} VALUES (2, 'Ann')")

    def quick(self, statement: str) -> None:
        self.workspace.lake.quick(statement)

    def erase(self) -> None:
        self.quick(f"DELETE FROM ratify.bronze.{self.source} WHERE id <> 1")
        self.workspace.lake.duckdb.log(f"ratify.bronze.{self.destination}").commit(fencing, partitioned=True)


@pytest.mark.parametrize(
    ("strategy", "at_length"),
    [
        (SyncStrategy.MERGE, False),
        *(pytest.param(each, True, marks=pytest.mark.long) for each in (SyncStrategy.MERGE, SyncStrategy.APPEND)),
    ],
)
def test_rows_that_were_read_before_an_erasure_are_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, strategy: SyncStrategy, *, at_length: bool
) -> None:
    """The fence comes between the last look and the statement, which nothing refuses."""
    fenced = Fenced(workspace, strategy)
    with (
        moved(monkeypatch, WarehouseQueries, "write", fenced.erase),
        pytest.raises(WrittenAfterErasure, match=r"Version 2 of .*`ratify erase` again"),
    ):
        workspace.run(fenced.sync)
    # So it is if nobody has seen that error.
    with pytest.raises(WrittenAfterErasure, match="Version 2 of"):
        workspace.run(fenced.sync)
    if not at_length:
        return
    fenced.erase()
    fenced.quick(f"DELETE FROM ratify.bronze.{fenced.destination} WHERE id <> 1")
    if strategy is SyncStrategy.MERGE:
        workspace.run(fenced.sync)
    assert workspace.stored(fenced.destination) == [(1, "Bo")]


@pytest.mark.long
def test_a_mirror_is_compared_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run takes away what it has written."""
    fenced = Fenced(workspace, SyncStrategy.MIRROR)
    with moved(monkeypatch, WarehouseQueries, "write", fenced.erase):
        workspace.run(fenced.sync)
    workspace.run(fenced.sync)
    assert workspace.stored(fenced.destination) == [(1, "Bo")]


# The look is that of Spark and of DuckDB, too: tests/components/test_fenced_passes.py.
@pytest.mark.long
def test_rows_are_not_sent_where_the_fence_is_there_already(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = Fenced(workspace, SyncStrategy.MERGE)
    fenced.quick(f"INSERT INTO ratify.bronze.{fenced.source} VALUES (3, 'Cy')")
    with moved(monkeypatch, RowComparison, "compared", fenced.erase):
        workspace.run(fenced.sync)
    assert workspace.stored(fenced.destination) == [(1, "Bo")]
