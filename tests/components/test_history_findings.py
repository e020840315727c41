"""What the checks validate, on made-up histories."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from ratify_lakehouse.components.checks.history_findings import (
    Claim,
    Finding,
    append_only_respected,
    data_is_fresh,
    no_external_commits,
    rows_as_reported,
    together,
)
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.checks.row_reconciliation import rows_reconciled
from ratify_lakehouse.components.checks.table_findings import files_present
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


def counted(*rows: int) -> Callable[[int], int]:
    """Return what counts the rows of a table by its versions."""
    return lambda version: rows[version] if version >= 0 else 0


def test_findings_of_one_question_say_together_what_is_wrong_or_all_that_is_right() -> None:
    right, warned, wrong = (
        Finding(True, "R.", {"r": 1}),
        Finding(False, "W.", {"w": 2}, warns=True),
        Finding(False, "E.", {}),
    )
    assert together(right, right) == Finding(True, "R. R.", {"r": 1})
    assert together(right, warned) == Finding(False, "W.", {"r": 1, "w": 2}, warns=True)
    assert together(warned, right, wrong) == Finding(False, "W. E.", {"r": 1, "w": 2})


def test_rows_as_reported() -> None:
    history = [merged(3, 1), merged(2, 5, 2), merged(1, 10), commit(0, "CREATE TABLE")]
    table = counted(0, 10, 13, 14)
    assert rows_as_reported(Claim((2,), 3, 2, 13), history, table).passed
    assert rows_as_reported(Claim((0, 1, 3), 11, 3, 14), history, table).passed
    assert not rows_as_reported(Claim((2,), 4, 2, 13), history, table).passed
    assert not rows_as_reported(Claim((2,), 3, 2, 12), history, table).passed
    assert not rows_as_reported(Claim((2, 7), 3, 7, 13), history, table).passed
    # The commit agrees with the report, and the table with neither.
    assert not rows_as_reported(Claim((2,), 3, 2, 13), history, counted(0, 10, 10, 11)).passed
    assert rows_as_reported(Claim((), 0, 2, 13), history, table).passed
    assert not rows_as_reported(Claim((), 0, 2, 12), history, table).passed
    assert rows_as_reported(None, history, table).passed


def test_no_external_commits() -> None:
    history = [merged(version, 1) for version in range(4, -1, -1)]
    assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], history).passed
    found = no_external_commits([Claim((4,), 1, 4, 5), Claim((2,), 1, 2, 3)], history)
    assert (found.passed, found.numbers["external commits"]) == (False, 1)
    assert found.description.startswith("1 commit that no run of this table reported: version 3 (MERGE by ")
    # A compaction moves rows to other files.
    for operation in ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "REORG", "UPGRADE PROTOCOL"):
        maintained = [commit(5, operation, Engine.DUCKDB), *history]
        assert no_external_commits([Claim((3, 4), 2, 4, 5), Claim((2,), 1, 2, 3)], maintained).passed
    # A commit of others that left the rows as they are is no more than a warning.
    for operation, warns in (("SET TBLPROPERTIES", True), ("ADD COLUMNS", True), ("WRITE", False)):
        by_others = no_external_commits([Claim((3, 4), 2, 4, 5)], [commit(5, operation, Engine.DUCKDB), *history])
        assert (by_others.passed, by_others.warns) == (False, warns)
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
    limits = dt.timedelta(hours=25), dt.timedelta(hours=36)
    assert data_is_fresh(now - dt.timedelta(hours=24), now, *limits).passed
    for hours, warns in ((26, True), (37, False)):
        late = data_is_fresh(now - dt.timedelta(hours=hours), now, *limits)
        assert (late.passed, late.warns) == (False, warns)
    never = data_is_fresh(None, now, *limits)
    assert (never.passed, never.warns) == (False, False)


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
