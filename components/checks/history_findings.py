"""Checks of one table's Delta history: pure functions of what was committed, declared and reported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resources.column_types import sql_type
from resources.declarations import TableDeclaration
from resources.delta.commit_history import Commit
from resources.spark.spark_engine import FULL_REFRESH

CREATION = frozenset({"CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE AS SELECT"})
MAINTENANCE = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "ADD COLUMNS", "CLUSTER BY", "FSCK"})
"""Operations that change a table but none of the rows that can be read from it."""

REWRITES = frozenset({"DELETE", "RESTORE", "UPDATE", "MERGE", "TRUNCATE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"})
"""Operations that remove or change existing rows."""


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    passed: bool
    description: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """What one materialization reported: its versions, the rows that it added net, the table's version and rows."""

    versions: tuple[int, ...]
    added: int
    version: int
    rows: int


def committed_as_declared(declaration: TableDeclaration, history: Sequence[Commit]) -> Finding:
    """Check that the last commit of rows was made by the declared engine with a declared operation."""
    rows = [commit for commit in history if commit.operation not in CREATION | MAINTENANCE]
    allowed = f"{declaration.writer} ({', '.join(sorted(declaration.operations))})"
    if not rows:
        return Finding(True, "No rows were committed yet.", {"versions": len(history)})
    last = rows[0]
    passed = last.engine.declared is declaration.writer and last.operation in declaration.operations
    text = f"Version {last.version} was committed by {last.engine_info or 'an unnamed engine'} ({last.operation})"
    return Finding(
        passed,
        f"{text}, as declared." if passed else f"{text}, but {allowed} is declared.",
        {"version": last.version, "engine": last.engine.value, "operation": last.operation, "versions": len(history)},
    )


def rows_as_reported(claim: Claim | None, history: Sequence[Commit], counted: Callable[[], int]) -> Finding:
    """Check that the rows that a materialization reported are those that its commits have.

    Args:
        claim: What it reported; None if the table was never materialized.
        history: The table's commits.
        counted: Counts, by reading the table, the rows at the claim's last version less those before its first; used where
            an engine writes no operationMetrics.
    """
    if claim is None:
        return Finding(True, "Never materialized.", {"rows reported": 0})
    mine = [commit for commit in history if commit.version in claim.versions]
    measured = [_net_rows(commit) for commit in mine if commit.operation not in CREATION | MAINTENANCE]
    known = [rows for rows in measured if rows is not None]
    from_metrics = len(known) == len(measured)
    found = sum(known) if from_metrics else counted()
    source = "operationMetrics" if from_metrics else "counting"
    passed = found == claim.added and len(mine) == len(claim.versions)
    numbers = {"rows reported": claim.added, f"rows by {source}": found, "commits": len(mine)}
    if len(mine) != len(claim.versions):
        return Finding(False, "Versions that were reported are not in the history.", numbers)
    return Finding(passed, f"Reported {claim.added:,} rows; {source} gives {found:,}.", numbers)


def no_external_commits(claims: Sequence[Claim], history: Sequence[Commit]) -> Finding:
    """Check that no external commit was made since the last materialization but one.

    Args:
        claims: The last materializations, newest first.
        history: The table's commits.
    """
    known = {version for claim in claims for version in claim.versions}
    since = _baseline(claims)
    external = [commit for commit in history if commit.version > since and commit.version not in known]
    shown = ", ".join(f"{c.version} ({c.engine_info or 'unnamed'}: {c.operation})" for c in external[:5])
    return Finding(
        not external,
        f"External commits: versions {shown}." if external else f"All versions after {since} were reported.",
        {"external commits": len(external), "after version": since, "version": history[0].version if history else -1},
    )


def _baseline(claims: Sequence[Claim]) -> int:
    """The version after the last materialization but one, or before the only one."""
    if not claims:
        return -1
    if len(claims) > 1:
        return claims[-1].version
    return min(claims[0].versions, default=claims[0].version + 1) - 1


def append_only_respected(history: Sequence[Commit]) -> Finding:
    """Check that no rows of an append-only table were deleted, restored or rewritten since its last full refresh."""
    refreshed = [commit.version for commit in history if (commit.user_metadata or "").startswith(FULL_REFRESH)]
    found = [commit for commit in history if commit.operation in REWRITES and commit.version > max(refreshed, default=0)]
    shown = ", ".join(f"{c.operation} in version {c.version} by {c.engine_info}" for c in found[:5])
    return Finding(
        not found,
        f"Append-only, but it has {shown}." if found else "Rows were only ever appended.",
        {"rewrites": len(found), "versions": len(history)},
    )


def schema_as_declared(declaration: TableDeclaration, actual: Sequence[tuple[str, str]]) -> Finding:
    """Check that a table's columns (name, Spark type) are the declared ones, in order."""
    declared = [(column.name, sql_type(column.type).spark) for column in declaration.columns]
    found = [(name, sql_type(type_).spark) for name, type_ in actual]
    missing = [f"{name} {type_}" for name, type_ in declared if (name, type_) not in found]
    extra = [f"{name} {type_}" for name, type_ in found if (name, type_) not in declared]
    numbers = {"columns": len(found), "missing or changed": len(missing), "not declared": len(extra)}
    if missing or extra:
        text = f"missing or changed: {', '.join(missing) or 'none'}; not declared: {', '.join(extra) or 'none'}"
        return Finding(False, f"The columns are not as declared: {text}.", numbers)
    same_order = found == declared
    return Finding(same_order, "As declared." if same_order else "The columns are in another order.", numbers)


def _net_rows(commit: Commit) -> int | None:
    """Rows that a commit added less those it removed, or None where its engine wrote no metrics."""
    if not commit.metrics:
        return None
    if commit.operation == "MERGE":
        return commit.metrics["numTargetRowsInserted"] - commit.metrics["numTargetRowsDeleted"]
    if commit.rows_added is None:
        return None
    return commit.rows_added - commit.metrics.get("numDeletedRows", 0)
