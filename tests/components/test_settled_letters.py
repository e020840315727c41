"""Dead letters of the strategy append go with the run that found them, and with the destination that they are of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import sync_pass
from ratify_lakehouse.components.syncs.sync_declaration import MappedColumn, RowErrors, SyncEngine, SyncSource, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import replayed
from tests.components.declared_syncs import dead_letters_of, declared, names, quick_lake, stored
from tests.components.declared_syncs import run as run_sync
from tests.components.incremental_tables import KilledPass, killed, moved
from tests.components.inserted_letters import InsertedRows
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]

pytestmark = pytest.mark.server


def test_a_destination_that_is_created_again_has_letters_of_its_own(
    quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets all rows again, those that do not fit among them: no replay inserts what a pass has inserted, too."""
    rows = InsertedRows(quick_lake, monkeypatch, "created again")
    rows.add(True, False)
    rows.run(rows.sync)
    quick_lake.quick(f"DROP TABLE ratify.bronze.{rows.destination}")
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{rows.destination} (id INT, n INT, at TIMESTAMP) USING DELTA")
    rows.run(rows.sync)
    assert dead_letters_of(quick_lake, rows.sync) == 1
    rows.check_corrected()


def test_a_run_that_is_killed_leaves_no_letters_of_a_source_without_versions(
    quick_lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each run inserts what such a source has then; the letters of one count with its rows."""
    _, destination = names()
    quick_lake.catalog.ensure_schemas(("bronze", "ops"))
    (tmp_path / "a.csv").write_text("id,n\n1,1\n2,x\n")
    source = SyncSource(files=f"file://{tmp_path}/a.csv", format="csv")
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT) USING DELTA")
    sync = declared(destination, SyncStrategy.APPEND, source, row_errors=RowErrors.SKIP, engine=SyncEngine.DUCKDB)

    def run() -> None:
        run_sync(quick_lake, sync)

    def state() -> tuple[list[tuple[Any, ...]], int]:
        return stored(quick_lake, destination), dead_letters_of(quick_lake, sync)

    with killed(monkeypatch, sync_pass, "write_changes", after=False, calls=1), pytest.raises(KilledPass):
        run()
    run()
    assert state() == ([(1, 1)], 1)
    # Of two runs at once, the later one reads again.
    with moved(monkeypatch, sync_pass, "write_changes", run):
        run()
    assert state() == ([(1, 1)] * 3, 3)
    # One of which no row fits has letters, too.
    (tmp_path / "a.csv").write_text("id,n\n3,y\n")
    run()
    run()
    assert state() == ([(1, 1)] * 3, 5)
    corrected = replace(sync, columns=(MappedColumn("n", "id"),), only_mapped=True)
    assert replayed(quick_lake.spark, quick_lake.duckdb, corrected).waiting == 0
