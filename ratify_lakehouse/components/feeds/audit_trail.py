"""The audit trail of a table: who changed which row, when, and what the row was before and after.

Each pass appends the changes of the versions since the last one, in one commit that records up to which version it has read
(`last_position`). The record is the only state: a pass that is killed appends nothing, and of two passes at once one is
refused by Delta's `txn` and starts again. What others commit to the trail does not move the position, but for a RESTORE. A
change that the trail has is not appended again.
"""

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.components.feeds.paired_changes import (
    given_version,
    next_version,
    opened_log,
    paired_changes,
    readable,
)
from ratify_lakehouse.components.strategies.pass_scope import is_far_behind
from ratify_lakehouse.components.table_asset import COMMITS, materialize_by
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_author import author_of
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion, TablePosition, last_position
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.spark.merge_statements import fill_sql
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = Path(__file__).with_name("audit_trail.sql")
_COMMIT_COLUMNS = "version BIGINT, operation STRING, engine STRING, engine_info STRING, principal STRING, run_id STRING"

PAGE = 1000
"""So many materializations are read at once."""

Runs = Callable[[Mapping[int, dt.datetime]], Mapping[int, str]]
"""Returns the Dagster runs that reported versions of the table, of those with the times at which they were committed."""


@dataclass(frozen=True)
class AuditedTable:
    """A table and its audit trail.

    Attributes:
        trail: The audit trail.
        table: The table that is audited, as schema.table.
        keys: Columns that identify its rows.
        from_version: The version that the trail begins with, or goes on from without those before.
    """

    trail: TableDeclaration
    table: str
    keys: tuple[str, ...]
    from_version: int = 0


@dataclass(frozen=True)
class _Followed:
    """Up to where the trail has the changes of its table."""

    table_id: str
    version: int
    from_version: int

    @classmethod
    def of(cls, record: ComputedInputs, full_name: str) -> "_Followed | None":
        found = record.inputs.get(full_name)
        return cls(found.table_id, found.version, record.from_version) if found else None


def append_changes(spark: Spark, audited: AuditedTable, runs: Runs) -> dg.MaterializeResult[Any]:
    """Append to the trail what has changed since its last version, and return its materialization.

    Raises:
        ChangesNotRecorded: the feed lacks versions that the trail does not have yet, or they cannot be read.
        QueryMismatch: the table has, or had, no such key.
        UnsafeTable: it is not known which versions the trail has, and the feed does not go back far enough to find out.
        CommitConflict: other passes won every attempt.
    """
    return retried(lambda: _append_once(spark, audited, runs), spark.attempts)


def reported_runs(instance: dg.DagsterInstance, key: dg.AssetKey, committed: Mapping[int, dt.datetime]) -> Mapping[int, str]:
    """Return the Dagster runs that have reported versions of a table, by version; several of one are separated by commas.

    Args:
        instance: Has the materializations.
        key: Of the table's asset.
        committed: The versions, and when each was committed. What was reported before was of a table that was dropped since.
    """
    if not committed:
        return {}
    runs, cursor = defaultdict[int, set[str]](set), None
    since = dg.AssetRecordsFilter(asset_key=key, after_timestamp=min(committed.values()).timestamp())
    while True:
        found = instance.fetch_materializations(since, limit=PAGE, cursor=cursor)
        for record in found.records:
            for version in _reported(record.asset_materialization):
                if version in committed and record.timestamp >= committed[version].timestamp():
                    runs[version].add(record.run_id)
        if not found.has_more:
            return {version: ",".join(sorted(ids)) for version, ids in runs.items()}
        cursor = found.cursor


def _reported(materialization: dg.AssetMaterialization | None) -> Sequence[int]:
    if materialization is None or COMMITS not in materialization.metadata:
        return ()
    commits: Any = materialization.metadata[COMMITS].value
    return commits.get("versions", ())


def _append_once(spark: Spark, audited: AuditedTable, runs: Runs) -> dg.MaterializeResult[Any]:
    began = time.monotonic()
    trail, full_name = audited.trail, f"{spark.catalog.connection.name}.{audited.table}"
    log = opened_log(spark, full_name)
    created = spark.ensure_table(trail)
    position = _position(spark, audited, log)
    last = _Followed.of(position.record, full_name) if position.record else None
    first = next_version(log, trail.table_name, last, given_version(last, audited.from_version))
    if first > log.version:
        rows = spark.table(trail)
        return materialize_by(spark, trail, created, began, spark.write_result(trail, None), rows, **{"rows appended": 0})
    with readable(spark, log, first, trail.table_name):
        rows = spark.computed(_changes(spark, audited, log, first, runs))
    inputs = {full_name: InputVersion(log.table_id, log.version)}
    record = ComputedInputs(repr(audited.keys), position.version, inputs, uuid4().hex, from_version=audited.from_version)
    needed = not rows.isEmpty() or is_far_behind(log, first, log.version)
    wrote = _merge(spark, trail, rows, record) if needed else spark.write_result(trail, None)
    more = {"versions read": f"{first} to {log.version}", "rows appended": rows.count()}
    return materialize_by(spark, trail, created, began, wrote, rows, **more)


def _merge(spark: Spark, trail: TableDeclaration, rows: "DataFrame", record: ComputedInputs) -> WriteResult:
    return spark.merge_following(
        trail, fill_sql(trail, spark.full_name(trail), "{rows}"), rows, record.to_json(), record.after
    )


def _position(spark: Spark, audited: AuditedTable, log: TableLog) -> TablePosition:
    """Up to where the trail has the changes of its table."""
    full_name = spark.full_name(audited.trail)
    latest = spark.catalog.version(full_name)
    try:
        return last_position(spark.recent_commits(full_name, EVERY_COMMIT))
    except FullRecompute as reason:
        since = log.feed_since()
        if since is not None and since > audited.from_version:
            raise UnsafeTable(
                f"It is unknown up to which version {audited.trail.table_name} has the changes of {audited.table}: "
                f"{reason}. RESTORE it to a version that its asset wrote, or set `from_version: {since}` in its "
                "defs.yaml: the feed begins there. Changes it already has are not appended again."
            ) from None
        return TablePosition(None, latest)


def _changes(spark: Spark, audited: AuditedTable, log: TableLog, first: int, runs: Runs) -> "DataFrame":
    """The rows for the trail, of the versions from `first` on."""
    paired = paired_changes(spark, log, audited.keys, first, audited.trail.table_name)
    text = Template(_ROWS.read_text()).substitute(table_id=literal(log.table_id))
    return spark.sql(text, paired=paired, commits=_commits(spark, log, first, runs))


def _commits(spark: Spark, log: TableLog, first: int, runs: Runs) -> "DataFrame":
    """The commits of the versions from `first` on, each with what is known of who made it."""
    commits = list(takewhile(lambda commit: commit.version >= first, log.commits()))
    authors = {commit.version: author_of(commit.record) for commit in commits}
    reported = runs({commit.version: commit.timestamp for commit in commits if not authors[commit.version][1]})
    rows = list[tuple[Any, ...]]()
    for commit in commits:
        principal, run_id = authors[commit.version]
        run_id = run_id or reported.get(commit.version)
        rows.append((commit.version, commit.operation, commit.engine.value, commit.engine_info or None, principal, run_id))
    return spark.session.createDataFrame(rows, _COMMIT_COLUMNS)  # pyright: ignore[reportUnknownMemberType]
