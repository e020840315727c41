"""Checks of one table's Delta history: pure functions of what was committed, declared and reported."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.checks.check_state import Position
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.commit_history import FULL_REFRESH, MAINTENANCE, SAME_ROWS, Commit
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.wording import counted

CREATION = frozenset({"CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE AS SELECT"})
_NO_ROWS = CREATION | SAME_ROWS | {"FSCK"}
"""Operations that change none of the rows that can be read from a table."""

REWRITES = frozenset({"DELETE", "RESTORE", "UPDATE", "MERGE", "TRUNCATE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"})
"""Operations that remove or change existing rows."""


@dataclass(frozen=True)
class Finding:
    """What a check found; `checked` says up to where it has compared, by the names of tables."""

    passed: bool
    description: str
    numbers: Mapping[str, Any]
    checked: Mapping[str, Position] = field(default_factory=dict[str, Position])


@dataclass(frozen=True)
class Claim:
    """What one materialization reported.

    Attributes:
        versions: Those that it committed.
        added: Rows that it added, less those that it removed.
        version: The table's version at its end.
        rows: Rows in the table at that version.
        batches: For a table of landed files: its load batches.
        loaded: Rows of those batches in the table at that version.
    """

    versions: tuple[int, ...]
    added: int
    version: int
    rows: int
    batches: tuple[str, ...] = ()
    loaded: int = 0


class TableRows(Protocol):
    """Counts a table's rows by reading it, at a version that it had."""

    def at(self, version: int) -> int:
        """Return the rows of a version; 0 before the first."""
        ...

    def of_batches(self, batches: Sequence[str], version: int) -> tuple[int, int]:
        """Return the rows of a version, and those of them that are of these load batches."""
        ...


def committed_as_declared(declaration: TableDeclaration, history: Sequence[Commit]) -> Finding:
    """Check that the last commit of rows was made by the declared engine with a declared operation."""
    rows = [commit for commit in history if commit.operation not in _NO_ROWS]
    allowed = f"{declaration.writer} ({', '.join(sorted(declaration.operations))})"
    if not rows:
        return Finding(True, "No new commit of rows.", {"versions": len(history)})
    last = rows[0]
    passed = last.engine.declared is declaration.writer and last.operation in declaration.operations
    text = f"Version {last.version} was committed by {last.engine_info or 'an unnamed engine'} ({last.operation})"
    return Finding(
        passed,
        f"{text}, as declared." if passed else f"{text}, but {allowed} is declared.",
        {"version": last.version, "engine": last.engine.value, "operation": last.operation, "versions": len(history)},
    )


def rows_as_reported(claim: Claim | None, history: Sequence[Commit], counted: TableRows) -> Finding:
    """Check that a materialization reported what the table has, counted by reading it: a commit's own metrics, which the
    report is made of, would only agree with themselves.

    Args:
        claim: What it reported; None if the table was never materialized.
        history: The table's commits since then.
        counted: Counts its rows. Several runs may share one version of a table of landed files, so there the rows of each
            run's batches are counted; elsewhere those by which its versions differ from the ones before.
    """
    if claim is None:
        return Finding(True, "Never materialized.", {"rows reported": 0})
    mine = [commit for commit in history if commit.version in claim.versions]
    numbers: dict[str, Any] = {"rows reported": claim.added, "commits": len(mine)}
    if len(mine) != len(claim.versions):
        return Finding(False, "Versions that were reported are not in the history.", numbers)
    if claim.batches:
        in_table, of_batches = counted.of_batches(claim.batches, claim.version)
        more = {"of its load batches": (claim.loaded, of_batches)}
    else:
        # The version at its end is mostly also the last that it committed.
        at = cache(counted.at)
        in_table = at(claim.version)
        more = {"added": (claim.added, _difference(claim.versions, at))} if claim.versions else {}
    pairs = {f"in the table at version {claim.version}": (claim.rows, in_table), **more}
    numbers |= {f"rows {what}, counted": found for what, (_, found) in pairs.items()}
    wrong = [
        f"{what}: {claimed:,} reported, {found:,} counted" for what, (claimed, found) in pairs.items() if claimed != found
    ]
    right = f"Reported {claim.added:,} rows added and {claim.rows:,} in the table; counting agrees."
    return Finding(not wrong, f"Rows {'; '.join(wrong)}." if wrong else right, numbers)


def _difference(versions: Sequence[int], at: Callable[[int], int]) -> int:
    """Rows by which versions differ from the versions before them; consecutive ones are counted together."""
    first = [version for version in versions if version - 1 not in versions]
    last = [version for version in versions if version + 1 not in versions]
    return sum(map(at, last)) - sum(at(version - 1) for version in first)


def no_external_commits(claims: Sequence[Claim], history: Sequence[Commit]) -> Finding:
    """Check that no external commit was made since the last materialization but one.

    One that only moved rows is none, nor is one of ours that left the rows as they are, such as a declared column's.

    Args:
        claims: The last materializations, newest first.
        history: The table's commits.
    """
    known = {version for claim in claims for version in claim.versions}
    since = _baseline(claims)
    others = [commit for commit in history if commit.version > since and commit.version not in known]
    external = [commit for commit in others if commit.operation not in (SAME_ROWS if commit.is_ours else MAINTENANCE)]
    shown = ", ".join(f"version {c.version} ({c.operation} by {c.engine_info or 'an unnamed engine'})" for c in external[:5])
    several = counted(len(external), "commit")
    return Finding(
        not external,
        f"{several} that no run of this table reported: {shown}. Accept what is right with `ratify acknowledge`."
        if external
        else f"All versions after {since} were reported.",
        {"external commits": len(external), "after version": since, "version": history[0].version if history else -1},
    )


def first_version(claim: Claim) -> int:
    """Return the first version that a materialization committed, or else the one after its end."""
    return min(claim.versions, default=claim.version + 1)


def _baseline(claims: Sequence[Claim]) -> int:
    """The version after the last materialization but one, or before the only one."""
    if not claims:
        return -1
    return claims[-1].version if len(claims) > 1 else first_version(claims[0]) - 1


def append_only_respected(
    declaration: TableDeclaration, history: Sequence[Commit], removed: Mapping[int, int], replaceable: str = ""
) -> Finding:
    """Check that no rows of an append-only table were deleted, restored or rewritten since its last full refresh.

    Args:
        declaration: The table.
        history: Its commits.
        removed: The versions that removed rows, each with the number of files, by the log (`table_changes.removed_files`):
            an INSERT OVERWRITE is as much a WRITE as an append.
        replaceable: Column of which the declared writer may replace the rows of one value: the file of a source whose
            rewritten files replace their earlier rows.
    """
    refreshed = [commit.version for commit in history if (commit.user_metadata or "").startswith(FULL_REFRESH)]
    since = max(refreshed, default=0)
    rewrites = [
        commit
        for commit in history
        if commit.version > since
        and ((commit.operation in REWRITES and not commit.only_adds_rows) or removed.get(commit.version))
        and not _declared(declaration, commit, replaceable)
    ]
    shown = ", ".join(
        f"{c.operation} in version {c.version} by {c.engine_info} ({removed.get(c.version, 0)} files removed)"
        for c in rewrites[:5]
    )
    return Finding(
        not rewrites,
        f"Append-only, but it has {shown}." if rewrites else "Rows were only ever appended.",
        {"rewrites": len(rewrites), "versions": len(history)},
    )


def _declared(declaration: TableDeclaration, commit: Commit, replaceable: str) -> bool:
    """Whether an append-only table may have this commit that removed files."""
    if commit.operation == "FSCK":
        # A repair removes files that are not in storage any more, whichever engine wrote them.
        return True
    replaced = replaceable and commit.parameters.get("predicate", "").startswith(f"{identifier(replaceable)} = ")
    by_writer = commit.engine.declared is declaration.writer and commit.operation in declaration.operations
    return bool(replaced and by_writer)


def schema_as_declared(declaration: TableDeclaration, actual: Sequence[tuple[str, str]]) -> Finding:
    """Check that a table's columns (name, Spark type) are the declared ones, in order.

    Where columns are inferred, others may be there, and those that are declared without a type may have any. DuckDB writes
    columns by name: where it is the writer, their order means nothing, and those that were added are the last.
    """
    found = [(name, sql_type(type_).spark) for name, type_ in actual]
    types = dict(found)
    declared = [
        (column.name, sql_type(column.type).spark if column.type else types.get(column.name, ""))
        for column in declaration.columns
    ]
    if declaration.inferred:
        found = [column for column in found if column[0] in declaration.column_names]
    missing = [f"{name} {type_}" for name, type_ in declared if (name, type_) not in found]
    extra = [f"{name} {type_}" for name, type_ in found if (name, type_) not in declared]
    numbers = {"columns": len(found), "missing or changed": len(missing), "not declared": len(extra)}
    if missing or extra:
        text = f"missing or changed: {', '.join(missing) or 'none'}; not declared: {', '.join(extra) or 'none'}"
        return Finding(False, f"The columns are not as declared: {text}.", numbers)
    same_order = declaration.inferred or declaration.writer is Engine.DUCKDB or found == declared
    return Finding(same_order, "As declared." if same_order else "The columns are in another order.", numbers)


def data_is_fresh(last: dt.datetime | None, now: dt.datetime, warn_after: dt.timedelta) -> Finding:
    """Check that a table has got new data lately: a run that found nothing makes no table fresh.

    Args:
        last: When the last version with new rows was committed (UTC); None if the log has no such version.
        now: UTC.
        warn_after: How old the rows may be.
    """
    if last is None:
        return Finding(False, "No version in the table's log has new rows.", {"hours": -1.0})
    hours = round((now - last) / dt.timedelta(hours=1), 2)
    text = (
        f"The last new rows were committed {hours:,.1f} hours ago; expected within {warn_after / dt.timedelta(hours=1):g}."
    )
    return Finding(now - last <= warn_after, text, {"hours": hours})
