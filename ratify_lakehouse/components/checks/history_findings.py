"""Checks of one table's Delta history: pure functions of what was committed, declared and reported."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ratify_lakehouse.components.checks.check_state import Position
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_history import FULL_REFRESH, MAINTENANCE, SAME_ROWS, Commit
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.wording import counted

CREATION = frozenset({"CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE AS SELECT"})
"""Operations that create a table."""

REWRITES = frozenset({"DELETE", "RESTORE", "UPDATE", "MERGE", "TRUNCATE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"})
"""Operations that remove or change existing rows."""


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        passed: Whether it is right.
        description: What is wrong, or right, for people.
        numbers: What was counted, by its name.
        checked: Up to where it has compared, by the names of tables.
        warns: Whether a failure harms no reader of the table.
    """

    passed: bool
    description: str
    numbers: Mapping[str, Any]
    checked: Mapping[str, Position] = field(default_factory=dict[str, Position])
    warns: bool = False


def together(*findings: Finding) -> Finding:
    """Return the findings that answer one question as one: it says what is wrong, or else everything that is right."""
    failed = [each for each in findings if not each.passed]
    return Finding(
        not failed,
        " ".join(each.description for each in failed or findings),
        {name: value for each in findings for name, value in each.numbers.items()},
        warns=bool(failed) and all(each.warns for each in failed),
    )


@dataclass(frozen=True)
class Claim:
    """What one materialization reported.

    Attributes:
        versions: Those that it committed.
        added: Rows that it added, less those that it removed.
        version: The table's version at its end.
        rows: Rows in the table at that version.
    """

    versions: tuple[int, ...]
    added: int
    version: int
    rows: int


def rows_as_reported(claim: Claim | None, history: Sequence[Commit], rows_at: Callable[[int], int]) -> Finding:
    """Check that a materialization reported what the table has, counted by reading it: a commit's own metrics, which the
    report is made of, would only agree with themselves.

    Args:
        claim: What it reported; None if the table was never materialized.
        history: The table's commits since then.
        rows_at: Counts the rows of a version by reading them; 0 before the first.
    """
    if claim is None:
        return Finding(True, "Never materialized.", {"rows reported": 0})
    mine = [commit for commit in history if commit.version in claim.versions]
    numbers: dict[str, Any] = {"rows reported": claim.added, "commits": len(mine)}
    if len(mine) != len(claim.versions):
        return Finding(False, "Reported versions are not in the history.", numbers)
    # The version at its end is mostly also the last that it committed.
    at = cache(rows_at)
    pairs = {f"in the table at version {claim.version}": (claim.rows, at(claim.version))}
    if claim.versions:
        pairs["added"] = claim.added, _difference(claim.versions, at)
    numbers |= {f"rows {what}, counted": found for what, (_, found) in pairs.items()}
    wrong = [
        f"{what}: {claimed:,} reported, {found:,} counted" for what, (claimed, found) in pairs.items() if claimed != found
    ]
    right = f"Reported {counted(claim.added, 'row')} added and {claim.rows:,} in the table; counting agrees."
    return Finding(not wrong, f"Rows {'; '.join(wrong)}." if wrong else right, numbers)


def _difference(versions: Sequence[int], at: Callable[[int], int]) -> int:
    """Rows by which versions differ from the versions before them; consecutive ones are counted together."""
    first = [version for version in versions if version - 1 not in versions]
    last = [version for version in versions if version + 1 not in versions]
    return sum(map(at, last)) - sum(at(version - 1) for version in first)


def no_external_commits(claims: Sequence[Claim], history: Sequence[Commit]) -> Finding:
    """Check that no external commit was made since the last materialization but one; it warns where rows stayed as they are.

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
        f"{several} that no run of this table reported: {shown}. Accept legitimate ones with `ratify acknowledge`."
        if external
        else f"All versions {f'after {since} ' if since >= 0 else ''}were reported.",
        {"external commits": len(external), "after version": since, "version": history[0].version if history else -1},
        warns=all(commit.operation in SAME_ROWS for commit in external),
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


def data_is_fresh(
    last: dt.datetime | None, now: dt.datetime, warn_after: dt.timedelta, error_after: dt.timedelta
) -> Finding:
    """Check that a table has got new data lately: a run that found nothing makes no table fresh.

    Args:
        last: When the last version with new rows was committed (UTC); None if the log has no such version.
        now: UTC.
        warn_after: How old the rows may be.
        error_after: From which age on the failure is more than a warning.
    """
    if last is None:
        return Finding(False, "No version in the table's log has new rows.", {"hours": -1.0})
    age, limit = now - last, warn_after / dt.timedelta(hours=1)
    hours = round(age / dt.timedelta(hours=1), 2)
    text = f"The last new rows were committed {hours:,.1f} hours ago; expected within {limit:g}."
    return Finding(age <= warn_after, text, {"hours": hours}, warns=age <= error_after)
