"""What the checks validate, on made-up histories."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from ratify_lakehouse.components.checks.file_checks import files_present
from ratify_lakehouse.components.checks.history_findings import (
    Claim,
    append_only_respected,
    committed_as_declared,
    data_is_fresh,
    no_external_commits,
    rows_as_reported,
    schema_as_declared,
)
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.checks.row_reconciliation import rows_reconciled
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.snapshot import LiveFile

TABLE = TableDeclaration(
    layer="silver", name="t", columns=(Column("a", "int"), Column("b", "string")), comment="", writer=Engine.SPARK,
    operations=frozenset({"MERGE"}), keys=("a",),
)  # fmt: skip


def commit(version: int, operation: str = "MERGE", engine: Engine = Engine.SPARK, **metrics: int) -> Commit:
    now = dt.datetime.now(dt.UTC)
    return Commit(version, now, operation, engine, f"{engine.value} 1", metrics)


def merged(version: int, inserted: int, deleted: int = 0) -> Commit:
    return commit(version, numTargetRowsInserted=inserted, numTargetRowsDeleted=deleted)


def test_committed_as_declared() -> None:
    created = commit(0, "CREATE TABLE")
    assert committed_as_declared(TABLE, [created]).passed
    assert committed_as_declared(TABLE, [merged(1, 2), created]).passed
    assert committed_as_declared(TABLE, [commit(2, "SET TBLPROPERTIES"), merged(1, 2), created]).passed
    for operation in ("FSCK", "OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "UPGRADE PROTOCOL"):
        assert committed_as_declared(TABLE, [commit(2, operation, Engine.DUCKDB), merged(1, 2), created]).passed
    other = committed_as_declared(TABLE, [commit(1, "UNKNOWN", Engine.DUCKDB), created])
    assert not other.passed
    assert other.numbers == {"version": 1, "engine": "DuckDB", "operation": "UNKNOWN", "versions": 2}
    assert not committed_as_declared(TABLE, [commit(1, "DELETE"), created]).passed


class Counted:
    """A table by the rows of its versions; one batch has them all."""

    def __init__(self, *rows: int, batch: int = 0) -> None:
        self.rows, self.batch = rows, batch

    def at(self, version: int) -> int:
        return self.rows[version] if version >= 0 else 0

    def of_batches(self, batches: Sequence[str], version: int) -> tuple[int, int]:
        return self.rows[version], self.batch


def test_rows_as_reported() -> None:
    history = [merged(3, 1), merged(2, 5, 2), merged(1, 10), commit(0, "CREATE TABLE")]
    table = Counted(0, 10, 13, 14)
    assert rows_as_reported(Claim((2,), 3, 2, 13), history, table).passed
    assert rows_as_reported(Claim((0, 1, 3), 11, 3, 14), history, table).passed
    assert not rows_as_reported(Claim((2,), 4, 2, 13), history, table).passed
    assert not rows_as_reported(Claim((2,), 3, 2, 12), history, table).passed
    assert not rows_as_reported(Claim((2, 7), 3, 7, 13), history, table).passed
    # The commit agrees with the report, and the table with neither.
    assert not rows_as_reported(Claim((2,), 3, 2, 13), history, Counted(0, 10, 10, 11)).passed
    assert rows_as_reported(Claim((), 0, 2, 13), history, table).passed
    assert not rows_as_reported(Claim((), 0, 2, 12), history, table).passed
    assert rows_as_reported(None, history, table).passed


def test_runs_that_share_a_version_each_report_their_batches() -> None:
    shared = [commit(1, "WRITE", Engine.DUCKDB, numOutputRows=8), commit(0, "CREATE TABLE")]
    claim = Claim((1,), 3, 1, 8, ("a",), 3)
    assert rows_as_reported(claim, shared, Counted(0, 8, batch=3)).passed
    assert not rows_as_reported(claim, shared, Counted(0, 8, batch=2)).passed


def test_no_external_commits() -> None:
    history = [merged(version, 1) for version in range(4, -1, -1)]
    assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], history).passed
    found = no_external_commits([Claim((4,), 1, 4, 5), Claim((2,), 1, 2, 3)], history)
    assert (found.passed, found.numbers["external commits"]) == (False, 1)
    assert found.description.startswith("1 commit that no run of this table reported: version 3 (MERGE by ")
    # A compaction moves rows to other files.
    for operation in ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS"):
        maintained = [commit(5, operation, Engine.DUCKDB), *history]
        assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], maintained).passed
    set_by_others = [commit(5, "SET TBLPROPERTIES", Engine.DUCKDB), *history]
    assert not no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], set_by_others).passed
    # A run that finds a column more in the declaration adds it before it writes.
    for operation, right in (("ADD COLUMNS", True), ("MERGE", False)):
        added = [replace(commit(5, operation), user_metadata='ratify:1 {"run": "r"}'), *history]
        assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], added).passed == right
    # The first materialization that this instance knows of does not answer for what was before it.
    assert no_external_commits([Claim((4,), 1, 4, 5)], history).passed
    assert not no_external_commits([Claim((3,), 1, 3, 5)], history).passed
    assert no_external_commits([Claim((), 0, 4, 5)], history).passed


def test_append_only_respected() -> None:
    appended = [commit(1, "WRITE", Engine.DUCKDB), commit(0, "CREATE TABLE")]
    table = replace(TABLE, keys=(), writer=Engine.DUCKDB, operations=frozenset({"WRITE"}))
    assert append_only_respected(table, appended, {}).passed
    for operation in ("DELETE", "RESTORE", "UPDATE", "TRUNCATE"):
        assert not append_only_respected(table, [commit(2, operation), *appended], {}).passed
    # An overwrite is a WRITE as well.
    overwritten = [commit(2, "WRITE"), *appended]
    assert append_only_respected(table, overwritten, {}).passed
    assert not append_only_respected(table, overwritten, {2: 1}).passed
    assert append_only_respected(table, [commit(2, "FSCK", Engine.DUCKDB), *appended], {2: 1}).passed

    of_a_file = {"mode": "Overwrite", "predicate": "\"_source_file\" = 'a.csv'"}
    ours = replace(commit(2, "WRITE", Engine.DUCKDB), parameters=of_a_file)
    for history, replaceable, passed in (
        ([ours, *appended], "_source_file", True),
        ([ours, *appended], "", False),
        ([replace(commit(2, "WRITE"), parameters=of_a_file), *appended], "_source_file", False),
        ([commit(2, "WRITE", Engine.DUCKDB), *appended], "_source_file", False),
    ):
        assert append_only_respected(table, history, {2: 1}, replaceable).passed == passed


def test_data_is_fresh() -> None:
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    limit = dt.timedelta(hours=25)
    assert data_is_fresh(now - dt.timedelta(hours=24), now, limit).passed
    assert not data_is_fresh(now - dt.timedelta(hours=26), now, limit).passed
    assert not data_is_fresh(None, now, limit).passed


def test_schema_as_declared() -> None:
    assert schema_as_declared(TABLE, [("a", "int"), ("b", "string")]).passed
    for columns in (
        [("a", "bigint"), ("b", "string")],
        [("a", "int")],
        [("a", "int"), ("b", "string"), ("c", "int")],
        [("b", "string"), ("a", "int")],
    ):
        assert not schema_as_declared(TABLE, columns).passed


def test_files_present() -> None:
    files = [LiveFile({"path": f"{number}%20.parquet"}, 1) for number in range(8)]
    assert files_present("silver.t", files, []).passed
    found = files_present("silver.t", files, files[1:7])
    assert not found.passed
    shown = "1 .parquet, 2 .parquet, 3 .parquet, 4 .parquet, 5 .parquet"
    assert found.numbers == {"files": 8, "missing": 6, "missing files": shown, "repair": "ratify repair silver.t"}


def test_rows_reconciled() -> None:
    good = {"input": 10, "output": 7, "quarantine": 2, "duplicates": 1, "unaccounted": 0, "orphans": 0, "doubled": 0}
    assert rows_reconciled(good).passed
    for change in ({"output": 6}, {"output": 6, "unaccounted": 1}, {"orphans": 1}, {"doubled": 1}):
        assert not rows_reconciled({**good, **change}).passed


def test_records_reconciled() -> None:
    good = {
        "bronze": 12, "silver": 5, "quarantine": 2, "records": 10, "accepted": 5, "dropped": 1, "quarantined": 2,
        "duplicates": 1, "late": 1, "orphans": 0, "doubled": 0,
    }  # fmt: skip
    assert records_reconciled(good).passed
    for change in ({"silver": 4}, {"quarantine": 1}, {"bronze": 9}, {"late": 0}, {"orphans": 1}, {"doubled": 1}):
        assert not records_reconciled({**good, **change}).passed
