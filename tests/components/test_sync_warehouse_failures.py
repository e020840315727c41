"""Syncs by a SQL warehouse that fails, or takes several at once."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.components.syncs.sync_declaration import (
    SyncStrategy,
)
from ratify_lakehouse.errors import StatementFailed
from tests.catalog.workspace_server import (
    failed,
)
from tests.components.warehouse_workspace import Workspace, csv, declared, names

pytestmark = pytest.mark.stack


@pytest.mark.long
@pytest.mark.parametrize("words", ["INSERT INTO", "size(ratify_errors)", "MERGE", "DROP"])
def test_a_statement_that_fails(workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture, words: str) -> None:
    _, destination = names()
    sync = declared(destination, SyncStrategy.MERGE, csv(tmp_path / "a.csv", ("id",), ("1",)), "id")
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id STRING)")
    workspace.fake.courses = {words: [failed("out of order")]}
    with caplog.at_level(logging.WARNING):
        if words == "DROP":
            # The rows are in the destination, and the staging table is nobody's destination.
            workspace.run(sync)
            assert "was not dropped" in caplog.text
            workspace.sql(f"DROP TABLE ratify.bronze.{workspace.staging().pop()}")
            return
        with pytest.raises(StatementFailed, match="out of order"):
            workspace.run(sync)
    assert (workspace.version(destination), workspace.staging()) == (0, set())
    workspace.fake.courses |= {"DROP": [failed("no drop either")]}
    with caplog.at_level(logging.WARNING), pytest.raises(StatementFailed, match="out of order"):
        workspace.run(sync)
    assert "no drop either" in caplog.text
    workspace.sql(f"DROP TABLE ratify.bronze.{workspace.staging().pop()}")


def test_ctrl_c_drops_the_staging_table(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, destination = names()
    sync = declared(destination, SyncStrategy.MERGE, csv(tmp_path / "a.csv", ("id",), ("1",)), "id")
    original = SqlWarehouse.rows

    def interrupted(self: SqlWarehouse, statement: str, *more: Any) -> list[dict[str, Any]]:
        if "FILTER (WHERE" in statement:
            raise KeyboardInterrupt
        return original(self, statement, *more)

    monkeypatch.setattr(SqlWarehouse, "rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        workspace.run(sync)
    assert (workspace.staging(), len(workspace.began("DROP"))) == (set(), 1)


@pytest.mark.long
def test_two_syncs_at_once_have_a_staging_table_each(workspace: Workspace, tmp_path: Path) -> None:
    _, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id STRING)")
    syncs = [
        declared(destination, SyncStrategy.MERGE, csv(tmp_path / f"{n}.csv", ("id",), (str(n),)), "id") for n in range(2)
    ]
    threads = [threading.Thread(target=workspace.run, args=(sync,)) for sync in syncs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One may have committed first, so that the other began again.
    made = [text.split()[2] for text in workspace.began("CREATE TABLE ratify.bronze.ratify_staging")]
    assert len(made) == len(set(made)) >= 2
    assert workspace.staging() == set()
    assert workspace.stored(destination) == [("0",), ("1",)]
