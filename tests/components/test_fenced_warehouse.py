"""Syncs by a SQL warehouse that have read before an erasure: no commit of its can be refused."""

from functools import partial

import pytest

from ratify_lakehouse.components.syncs.compared_rows import RowComparison
from ratify_lakehouse.components.syncs.sync_declaration import SyncStrategy
from ratify_lakehouse.components.syncs.warehouse_queries import WarehouseQueries
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.errors import WrittenAfterErasure
from tests.components.incremental_tables import moved
from tests.components.warehouse_workspace import Workspace, declared, names, table

pytestmark = pytest.mark.stack


def test_rows_that_were_read_before_an_erasure(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence comes between the last look and the statement, which nothing refuses."""
    source, kept = names()[0], "id = 1"
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT * FROM VALUES (1, 'Bo') AS t(id, who)")
    destinations = dict[SyncStrategy, str]()
    for strategy in (SyncStrategy.MIRROR, SyncStrategy.MERGE, SyncStrategy.APPEND):
        destinations[strategy] = names()[1]
        workspace.lake.quick(f"CREATE TABLE ratify.bronze.{destinations[strategy]} (id INT, who STRING) USING DELTA")

    def erasure(destination: str) -> None:
        workspace.lake.quick(f"DELETE FROM ratify.bronze.{source} WHERE NOT {kept}")
        workspace.lake.duckdb.log(f"ratify.bronze.{destination}").commit(fencing, partitioned=True)

    for strategy, destination in destinations.items():
        sync = declared(destination, strategy, table(source), *(["id"] if strategy.keyed else []))
        workspace.lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2, 'Ann')")
        with moved(monkeypatch, WarehouseQueries, "write", partial(erasure, destination)):
            if strategy is SyncStrategy.MIRROR:
                # It is compared again, and what it has written goes.
                workspace.run(sync)
            else:
                with pytest.raises(WrittenAfterErasure, match=r"Version 2 of .*`ratify erase` again"):
                    workspace.run(sync)
        if strategy is not SyncStrategy.MIRROR:
            # So it is if nobody has seen that error.
            with pytest.raises(WrittenAfterErasure, match="Version 2 of"):
                workspace.run(sync)
            erasure(destination)
            workspace.lake.quick(f"DELETE FROM ratify.bronze.{destination} WHERE NOT {kept}")
        if strategy is not SyncStrategy.APPEND:
            workspace.run(sync)
        assert workspace.stored(destination) == [(1, "Bo")], strategy
    # Rows that were read before are not sent where the fence is there already.
    sync = declared(destinations[SyncStrategy.MERGE], SyncStrategy.MERGE, table(source), "id")
    workspace.lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2, 'Ann'), (3, 'Cy')")
    workspace.lake.quick(f"UPDATE ratify.bronze.{source} SET who = 'Cäsar' WHERE id = 1")
    with moved(monkeypatch, RowComparison, "compared", partial(erasure, sync.destination.table)):
        workspace.run(sync)
    assert workspace.stored(sync.destination.table) == [(1, "Cäsar")]
