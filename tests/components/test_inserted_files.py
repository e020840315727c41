"""Files that DuckDB inserts, one after the other as they arrive: what each has, by the names of its columns."""

import json
import os
from pathlib import Path

import duckdb
import pytest

from ratify_lakehouse.components.syncs.sync_declaration import (
    MappedColumn,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.delta.snapshot import RETENTION, Snapshot
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.errors import SyncRefused
from tests.components.declared_syncs import declared, duckdb_pass, names, quick_lake, stored
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]

pytestmark = pytest.mark.server


def inserting(lake: Lakehouse, files: Path, format_: str) -> SyncDeclaration:
    _, destination = names()
    lake.catalog.ensure_schemas(("bronze",))
    lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, v STRING) USING DELTA")
    source, columns = SyncSource(files=str(files), format=format_), (MappedColumn("v", "note"),)
    return declared(destination, SyncStrategy.APPEND, source, engine=SyncEngine.DUCKDB, columns=columns)


def run(lake: Lakehouse, sync: SyncDeclaration) -> int:
    return duckdb_pass(lake, sync).run().counts.inserted


def test_a_file_of_json_may_lack_a_field_that_others_have(quick_lake: Lakehouse, tmp_path: Path) -> None:
    sync = inserting(quick_lake, tmp_path / "*.jsonl", "json")
    for number, row in enumerate(({"id": 1, "note": "a"}, {"id": 2}, {"note": "c", "id": 3})):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row))
        assert (run(quick_lake, sync), run(quick_lake, sync)) == (1, 0)
    assert stored(quick_lake, sync.destination.table) == [(1, "a"), (2, None), (3, "c")]


def test_files_of_parquet_may_have_another_order_but_no_other_columns(quick_lake: Lakehouse, tmp_path: Path) -> None:
    sync = inserting(quick_lake, tmp_path / "*.parquet", "parquet")
    for number, query in enumerate(("SELECT 1 AS id, '7' AS note", "SELECT '8' AS note, 2 AS id")):
        duckdb.sql(f"COPY ({query}) TO '{tmp_path}/{number}.parquet'")
    assert (run(quick_lake, sync), run(quick_lake, sync)) == (2, 0)
    assert stored(quick_lake, sync.destination.table) == [(1, "7"), (2, "8")]
    for number, query in enumerate(("SELECT 3 AS id, '7' AS note", "SELECT 4 AS id, '8' AS note, 1 AS more"), start=2):
        duckdb.sql(f"COPY ({query}) TO '{tmp_path}/{number}.parquet'")
    with pytest.raises(SyncRefused, match=r"2.parquet has id, note; 3.parquet has id, note, more"):
        run(quick_lake, sync)


def test_a_file_of_csv_may_have_another_order_but_no_other_columns(quick_lake: Lakehouse, tmp_path: Path) -> None:
    sync = inserting(quick_lake, tmp_path / "*.csv", "csv")
    (tmp_path / "0.csv").write_text("id,note\n1,7\n")
    (tmp_path / "1.csv").write_text("NOTE,id\n8,2\n")
    (tmp_path / "2.csv").write_text("")
    assert (run(quick_lake, sync), run(quick_lake, sync)) == (2, 0)
    assert stored(quick_lake, sync.destination.table) == [(1, "7"), (2, "8")]
    (tmp_path / "2.csv").write_text("id,note\n3,9\n")
    assert run(quick_lake, sync) == 1
    (tmp_path / "3.csv").write_text("id\n3\n")
    with pytest.raises(SyncRefused, match="no column note"):
        run(quick_lake, sync)


def test_a_file_that_is_younger_than_the_log_was_not_inserted(
    quick_lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the table forgets what was, and its log was cut."""
    sync = inserting(quick_lake, tmp_path / "*.csv", "csv")
    quick_lake.quick(f"DROP TABLE {sync.destination.full_name('ratify')}")
    expiring = f"TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')"
    quick_lake.quick(f"CREATE TABLE {sync.destination.full_name('ratify')} (id INT, v STRING) USING DELTA {expiring}")
    (tmp_path / "0.csv").write_text("id,note\n1,a\n")
    monkeypatch.setattr(Snapshot, "txn_versions", lambda *_: {})
    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "committed_txns", lambda *_: ({}, 3, 1_000_000_000.0))
        assert run(quick_lake, sync) == 1
        os.utime(tmp_path / "0.csv", (999_999_999, 999_999_999))
        with pytest.raises(SyncRefused, match=r"log begins at version 3.* UNSET TBLPROPERTIES"):
            run(quick_lake, sync)
    # The log says when its oldest commit was made.
    assert run(quick_lake, sync) == 0
    txns, oldest, at = TableLog.read(quick_lake.catalog, sync.destination.full_name("ratify")).committed_txns("ratify:sync:")
    assert (len(txns), oldest, at > 1_000_000_000) == (2, 0, True)
