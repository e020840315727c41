"""Syncs by a SQL warehouse that other writers overtake between the reading and the statement: newer rows win."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_pass import followed
from ratify_lakehouse.components.syncs.warehouse_pass import WarehousePass
from ratify_lakehouse.components.syncs.warehouse_queries import WarehouseQueries
from tests.components.declared_syncs import run_by_duckdb
from tests.components.incremental_tables import moved
from tests.components.warehouse_workspace import Workspace, declared, names, table

pytestmark = pytest.mark.stack


@pytest.mark.long
@pytest.mark.parametrize(("first", "second", "commits"), [("b", "c", 1), ("d", "a", 0)])
def test_older_rows_do_not_win(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, first: str, second: str, commits: int
) -> None:
    """Another run reads and writes newer ones between the reading and the MERGE, or finds the destination right already."""
    sync, another = overtaken(workspace, first, second)
    destination = sync.destination.table
    with moved(monkeypatch, WarehouseQueries, "write", another):
        workspace.run(sync)
    assert workspace.stored(destination) == [(1, second)]
    # A run without changes sends no MERGE.
    assert workspace.run(sync).commit is None
    assert (workspace.version(destination), len(workspace.began("MERGE"))) == (commits + 2, 2)
    assert workspace.began("INSERT", "DROP") == []


def test_a_run_goes_on_until_none_overtakes_it(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of its passes, which another run overtakes as in the test before."""
    sync, another = overtaken(workspace, "b", "c")
    with moved(monkeypatch, WarehouseQueries, "write", another):
        first = WarehousePass(workspace.warehouse, workspace.lake.duckdb, sync)._once()
    # Older rows have been written.
    assert (workspace.stored(sync.destination.table), workspace.version(sync.destination.table)) == ([(1, "b")], 2)
    passes = [first, first, replace(first, overtook=False)]
    assert not followed(lambda: passes.pop(0), sync, lambda inputs: inputs).overtook
    assert passes == []


def overtaken(workspace: Workspace, first: str, second: str) -> tuple[SyncDeclaration, Callable[[], None]]:
    """A sync of a row that gets a value; and another run, after the row has got the second one."""
    source, destination = names()
    for name in (source, destination):
        workspace.lake.quick(f"CREATE TABLE ratify.bronze.{name} AS SELECT 1 AS id, 'a' AS v")
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    workspace.lake.quick(f"UPDATE ratify.bronze.{source} SET v = '{first}'")

    def another() -> None:
        workspace.lake.quick(f"UPDATE ratify.bronze.{source} SET v = '{second}'")
        run_by_duckdb(workspace.lake, sync)
        assert workspace.version(destination) == int(second != "a")

    return sync, another


@pytest.mark.long
def test_rows_that_others_write_meanwhile_are_compared(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    for name, v in ((source, "e"), (destination, "c")):
        workspace.lake.quick(f"CREATE TABLE ratify.bronze.{name} AS SELECT 1 AS id, '{v}' AS v UNION ALL SELECT 2, 'f'")
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    others = f"UPDATE ratify.bronze.{destination} SET v = 'z' WHERE id = 2"
    with moved(monkeypatch, WarehouseQueries, "write", lambda: workspace.lake.quick(others)):
        workspace.run(sync)
    assert workspace.stored(destination) == [(1, "e"), (2, "f")]
