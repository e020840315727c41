"""Commits that somebody acknowledged: the checks of a table's history pass although it has them, and show who says why.

A DELETE on a table that is append-only is sometimes right, and stays in the history for ever. Which commits are acknowledged
is in a table of their own, because Delta's commits cannot be changed afterwards. A commit that is made with its reason has
it in its own record, too: so the checks pass as soon as it is ratified, whatever happens to who made it.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.components.checks.history_findings import CREATION
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.commit_author import author_of
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing, VersionMissing
from ratify_lakehouse.ingest.records.record_source import RECORD
from ratify_lakehouse.sql.spark_sql import at_version, literal, table_name

ACKNOWLEDGED_COMMITS = TableDeclaration(
    layer="ops",
    name="acknowledged_commits",
    columns=(
        Column("table_id", "string", "Id of the table in the catalog; another one after it was created again"),
        Column("version", "bigint", "The version that is acknowledged"),
        Column("table_name", "string", "The table, as catalog.schema.table"),
        Column("operation", "string", "What the commit did, as the history calls it"),
        Column("engine", "string", "What made it"),
        Column("reason", "string", "Why it is right"),
        Column("rows_removed", "map<string,bigint>", "How many rows it removed, by landed file, or by topic/partition"),
        Column("acknowledged_by", "string", "Who says so"),
        Column("acknowledged_at", "timestamp", "When (UTC)"),
    ),
    comment="Commits that the checks of tables accept, each with the reason",
    writer=Engine.SPARK,
    operations=frozenset({"MERGE"}),
    keys=("table_id", "version"),
)
"""One row for each commit."""

_SOURCE_FILE = "_source_file"
_BY_FILE = f"""
SELECT place, sum(n) AS n FROM (
  SELECT {_SOURCE_FILE} AS place, 1 AS n FROM {{before}} UNION ALL SELECT {_SOURCE_FILE} AS place, -1 AS n FROM {{after}}
)
WHERE place IS NOT NULL GROUP BY place HAVING sum(n) <> 0
"""
# Before the first record that is left, none is missing.
_BY_PARTITION = """
SELECT concat(topic, '/', partition) AS place, count(*) AS n
FROM (SELECT topic, partition, offset FROM {before} EXCEPT SELECT topic, partition, offset FROM {after})
JOIN (SELECT topic, partition, min(offset) AS first FROM {after} GROUP BY topic, partition) USING (topic, partition)
WHERE offset > first GROUP BY topic, partition
"""
_REASON = "acknowledged"
_NAMELESS = "a principal that the catalog does not name"


@dataclass(frozen=True)
class AcknowledgedCommit:
    """A commit that somebody acknowledged.

    Attributes:
        version: The table's version.
        operation: As the history calls it.
        engine: What made it.
        reason: Why it is right.
        by: Who says so.
        at: When (UTC).
    """

    version: int
    operation: str
    engine: str
    reason: str
    by: str
    at: dt.datetime

    def __str__(self) -> str:
        return f"version {self.version}, {self.operation}: {self.reason} ({self.by}, {self.at:%Y-%m-%d})"


def acknowledge(spark: Spark, full_name: str, versions: Sequence[int], reason: str) -> None:
    """Acknowledge commits, in one commit; those that were acknowledged before stay as they are.

    Args:
        spark: The session.
        full_name: The table, as catalog.schema.table.
        versions: Of the table.
        reason: Why they are right.

    Raises:
        TableMissing: the table does not exist.
        VersionMissing: its history has no such version, or the version created it.
    """
    found = spark.catalog.table(full_name)
    history = {commit.version: commit for commit in spark.history(full_name)}
    for version in versions:
        if version not in history:
            raise VersionMissing(
                f"{full_name} has no version {version} in its history, only {min(history)} to {max(history)}: "
                f"`ratify history {full_name}` shows them."
            )
        if history[version].operation in CREATION:
            raise VersionMissing(f"Version {version} of {full_name} created it: there is nothing to acknowledge.")
    spark.ensure_table(ACKNOWLEDGED_COMMITS)
    by = spark.catalog.principal() or _NAMELESS
    count = _counting({column.name or "" for column in found.columns or ()})
    rows = ", ".join(
        _row(history[version], found.table_id or "", full_name, reason, by, _removed(spark, full_name, version, count))
        for version in sorted({*versions})
    )
    names = ACKNOWLEDGED_COMMITS.column_names
    merge = (
        f"MERGE INTO {spark.sql_name(ACKNOWLEDGED_COMMITS)} AS t "
        f"USING (SELECT * FROM VALUES {rows} AS v({', '.join(names)})) AS s "
        "ON t.table_id = s.table_id AND t.version = s.version "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
    )
    spark.commit(spark.full_name(ACKNOWLEDGED_COMMITS), lambda: spark.rows(spark.sql(merge)))


def acknowledged(session: DuckDBSession, table_id: str) -> Mapping[int, AcknowledgedCommit]:
    """Return the commits of a table that were acknowledged after they were made, by version. Spark is not needed."""
    if not _any_stored(session):
        return {}
    session.attach()
    columns = "version, operation, engine, reason, acknowledged_by, acknowledged_at"
    return {row[0]: AcknowledgedCommit(*row) for row in _stored(session, table_id, columns)}


def acknowledged_versions(spark: Spark, full_name: str) -> set[int]:
    """Return the versions of a table that were acknowledged after they were made.

    Raises:
        TableMissing: the table does not exist.
    """
    table_id, stored = spark.catalog.table(full_name).table_id or "", spark.full_name(ACKNOWLEDGED_COMMITS)
    try:
        spark.catalog.version(stored)
    except TableMissing:
        # So it is in a project where nobody has acknowledged anything; Spark would need a second to say so.
        return set()
    text = f"SELECT version FROM {table_name(stored)} WHERE table_id = {literal(table_id)}"
    return {row["version"] for row in spark.rows(spark.query(text))}


def acknowledged_in(history: Iterable[Commit]) -> Mapping[int, AcknowledgedCommit]:
    """Return the commits that were made with their reason, by version."""
    found = (commit for commit in history if isinstance(commit.record.get(_REASON), str))
    return {
        commit.version: AcknowledgedCommit(
            version=commit.version,
            operation=commit.operation,
            engine=commit.engine.value,
            reason=commit.record[_REASON],
            by=author_of(commit.record)[0] or _NAMELESS,
            at=commit.timestamp,
        )
        for commit in found
    }


def acknowledging(reason: str) -> str:
    """Return the record by which a commit of ours is acknowledged when it is made."""
    return json.dumps({_REASON: reason})


def commit_acknowledged(spark: Spark, full_name: str, write: Callable[[], object], reason: str, after: int) -> Commit | None:
    """Run a write to a table, in a commit that is acknowledged; return None if it committed nothing.

    Args:
        spark: The session.
        full_name: The table, as catalog.schema.table.
        write: Makes one commit.
        reason: Why it is right.
        after: The version that the write was planned for.

    Raises:
        CommitConflict: another writer has committed since that version; nothing was committed.
    """
    commit = spark.commit(full_name, write, acknowledging(reason), after)
    if commit:
        acknowledge(spark, full_name, [commit.version], reason)
    return commit


def removed_rows(session: DuckDBSession, table_id: str) -> dict[str, int]:
    """Return how many rows acknowledged commits have removed from a table of landed files, by file, or of records.

    Of records they are those after the first that was left, by topic/partition. A number is negative where rows were added.
    Spark is not needed.
    """
    removed = Counter[str]()
    for (by_file,) in _stored(session, table_id, "rows_removed") if _any_stored(session) else ():
        removed.update(by_file or {})
    return dict(removed)


def _any_stored(session: DuckDBSession) -> bool:
    """Return whether there is the table of them, which a project has once somebody has acknowledged a commit."""
    try:
        session.log(ACKNOWLEDGED_COMMITS).refresh()
    except TableMissing:
        return False
    return True


def _stored(session: DuckDBSession, table_id: str, columns: str) -> list[tuple[Any, ...]]:
    stored = attached(ACKNOWLEDGED_COMMITS.table_name)
    return session.rows(f"SELECT {columns} FROM {stored} WHERE table_id = ?", [table_id])


def _counting(columns: Collection[str]) -> str:
    """The query for the rows that a version removed, by what a check of the table counts them by; empty if none does."""
    if _SOURCE_FILE in columns:
        return _BY_FILE
    return _BY_PARTITION if {column.name for column in RECORD}.issubset(columns) else ""


def _removed(spark: Spark, full_name: str, version: int, count: str) -> Mapping[str, int]:
    """How many rows a version has removed."""
    if not count:
        return {}
    before, after = (at_version(table_name(full_name), each) for each in (version - 1, version))
    return {row["place"]: row["n"] for row in spark.rows(spark.query(count.format(before=before, after=after)))}


def _row(commit: Commit, table_id: str, full_name: str, reason: str, by: str, removed: Mapping[str, int]) -> str:
    texts = (table_id, full_name, commit.operation, commit.engine.value, reason, by)
    id_, name, operation, engine, why, who = map(literal, texts)
    by_place = ", ".join(f"{literal(place)}, {rows}L" for place, rows in removed.items())
    files = f"map({by_place})" if removed else "CAST(map() AS map<string,bigint>)"
    return f"({id_}, {commit.version}L, {name}, {operation}, {engine}, {why}, {files}, {who}, current_timestamp())"
