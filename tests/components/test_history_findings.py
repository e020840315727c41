"""What the checks validate, on made-up histories."""

import datetime as dt

from components.checks.file_checks import files_present
from components.checks.history_findings import (
    Claim,
    append_only_respected,
    committed_as_declared,
    no_external_commits,
    rows_as_reported,
    schema_as_declared,
)
from components.checks.reconciliation import rows_reconciled
from resources.declarations import Column, Engine, TableDeclaration
from resources.delta.commit_history import Commit
from resources.delta.snapshot import LiveFile

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
    assert committed_as_declared(TABLE, [commit(2, "FSCK", Engine.DUCKDB), merged(1, 2), created]).passed
    other = committed_as_declared(TABLE, [commit(1, "UNKNOWN", Engine.DUCKDB), created])
    assert not other.passed
    assert other.numbers == {"version": 1, "engine": "DuckDB", "operation": "UNKNOWN", "versions": 2}
    assert not committed_as_declared(TABLE, [commit(1, "DELETE"), created]).passed


def test_rows_as_reported() -> None:
    history = [merged(2, 5, 2), merged(1, 10), commit(0, "CREATE TABLE")]
    assert rows_as_reported(Claim((2,), 3, 2, 13), history, counted=lambda: 99).passed
    assert not rows_as_reported(Claim((2,), 4, 2, 13), history, counted=lambda: 4).passed
    assert not rows_as_reported(Claim((2, 7), 3, 7, 13), history, counted=lambda: 3).passed
    by_duckdb = [commit(1, "UNKNOWN", Engine.DUCKDB), commit(0, "CREATE TABLE")]
    assert rows_as_reported(Claim((0, 1), 6, 1, 6), by_duckdb, counted=lambda: 6).passed
    assert not rows_as_reported(Claim((0, 1), 6, 1, 6), by_duckdb, counted=lambda: 5).passed
    replaced = [commit(1, "WRITE", Engine.DUCKDB, numOutputRows=5, numDeletedRows=3, numCopiedRows=7)]
    assert rows_as_reported(Claim((1,), 2, 1, 12), replaced, counted=lambda: 99).passed
    # A repair takes out what nobody could read.
    assert rows_as_reported(Claim((2,), 3, 2, 13), [commit(3, "FSCK", Engine.DUCKDB), *history], counted=lambda: 99).passed


def test_no_external_commits() -> None:
    history = [merged(version, 1) for version in range(4, -1, -1)]
    assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], history).passed
    found = no_external_commits([Claim((4,), 1, 4, 5), Claim((2,), 1, 2, 3)], history)
    assert (found.passed, found.numbers["external commits"]) == (False, 1)
    # The first materialization that this instance knows of does not answer for what was before it.
    assert no_external_commits([Claim((4,), 1, 4, 5)], history).passed
    assert not no_external_commits([Claim((3,), 1, 3, 5)], history).passed
    assert no_external_commits([Claim((), 0, 4, 5)], history).passed


def test_append_only_respected() -> None:
    appended = [commit(1, "UNKNOWN", Engine.DUCKDB), commit(0, "CREATE TABLE")]
    assert append_only_respected(appended).passed
    for operation in ("DELETE", "RESTORE", "UPDATE", "TRUNCATE"):
        assert not append_only_respected([commit(2, operation), *appended]).passed


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
    good = {"bronze": 10, "silver": 7, "quarantine": 2, "duplicates": 1, "unaccounted": 0, "orphans": 0}
    assert rows_reconciled(good).passed
    for change in ({"silver": 6}, {"silver": 6, "unaccounted": 1}, {"orphans": 1}):
        assert not rows_reconciled({**good, **change}).passed
