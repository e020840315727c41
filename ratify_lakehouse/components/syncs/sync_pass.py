"""One pass of a sync, by Spark: the one commit that changes the destination as the source wants it.

The commit's user metadata names the sync and the versions of the source that it has read (`ComputedInputs`), so that rows
and record are ratified together. A pass that is killed leaves the destination as it was before or as it is after.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ratify_lakehouse.components.syncs.compared_rows import SyncCounts, sample_sql
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS, FindingPass, settle_dead_letters, store_dead_letters
from ratify_lakehouse.components.syncs.deleted_keys import DeletedKeys, deleted_keys_table
from ratify_lakehouse.components.syncs.needed_rows import position_of
from ratify_lakehouse.components.syncs.pass_retries import retried
from ratify_lakehouse.components.syncs.prepared_changes import PreparedChanges, events_of, prepare
from ratify_lakehouse.components.syncs.source_rows import inputs_by_now
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_position import insertion_of
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys, written_keys_table
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.merge_statements import insert_sql
from ratify_lakehouse.engines.spark.overtaken_writes import refuse_erased, versions_before
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CommitConflict, SyncRefused, TableMissing
from ratify_lakehouse.sql.spark_sql import readable


@dataclass(frozen=True)
class SyncResult:
    """What a pass did.

    Attributes:
        counts: Its rows.
        version: The destination's version now.
        commit: The last commit, None where nothing was to be changed.
        created: Whether the pass created the destination.
        rows: In the destination.
        inputs: The versions of the source that it has read, by name.
        seconds: How long it took.
        sample: Some of the changes: what is done, and the columns.
        lineage: By column of the destination, the columns of tables that it comes from, as `schema.table.column`.
        types: Types of the columns that are written, by name.
        unchanged: Whether source and destination were as the last pass left them, so that nothing was read.
        earlier: Versions of the run's commits before that one: Spark inserts each new file in one of its own.
        more_files: Whether such files wait.
        overtook: Whether it changed rows that another commit had changed since they were compared.
    """

    counts: SyncCounts
    version: int
    commit: Commit | None
    created: bool
    rows: int
    inputs: Mapping[str, InputVersion]
    seconds: float
    sample: Sequence[Mapping[str, Any]] = ()
    lineage: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    unchanged: bool = False
    earlier: Sequence[int] = ()
    more_files: bool = False
    overtook: bool = False

    @property
    def versions(self) -> Sequence[int]:
        """The versions of all commits of the run."""
        return [*self.earlier, self.commit.version] if self.commit else self.earlier


_ANOTHER_PASS = (SyncStrategy.MERGE, SyncStrategy.MIRROR, SyncStrategy.FULL, SyncStrategy.SCD2)
"""Modes in which older rows of the source would undo newer ones."""


def followed(
    once: Callable[[], SyncResult],
    sync: SyncDeclaration,
    by_now: Callable[[Mapping[str, InputVersion]], Mapping[str, InputVersion]],
    attempts: int = 5,
) -> SyncResult:
    """Run a pass; once more if it has committed, and its source has got new rows meanwhile.

    Another pass that has read these, and to which the destination was right already, has made no commit that would refuse
    this one: its rows were older.

    Args:
        once: The pass.
        sync: Its sync.
        by_now: Returns what is there to be read now, in the place of what was read.
        attempts: See `retried`.

    Raises:
        As `retried`.
    """
    result = retried(once, attempts)
    if result.commit is None or sync.strategy not in _ANOTHER_PASS:
        return result
    moved = False
    # Where the source is gone, the next run says so.
    with suppress(TableMissing, SyncRefused):
        moved = by_now(result.inputs) != result.inputs
    for _ in range(attempts):
        if not moved and not result.overtook:
            break
        last, moved = retried(once, attempts), False
        result = replace(_joined(result, last), overtook=last.overtook)
    return result


class SyncPass:
    """A pass of a sync over Spark."""

    def __init__(self, spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> None:
        self._spark, self._duckdb, self._sync = spark, duckdb, sync

    def run(self) -> SyncResult:
        """Write what differs.

        Raises:
            RowsNotConverted: rows do not fit the destination, or several have the same keys.
            SyncRefused: a guard of the declaration, or the destination, does not allow it.
            TableMissing: the source or the destination does not exist.
            HistoryNotContinued: the strategy is append or cdc, and the source did other than get rows.
            CommitConflict: other writers won every attempt.
        """
        sync, catalog, attempts = self._sync, self._spark.catalog, self._spark.attempts
        result = followed(self._once, sync, partial(inputs_by_now, catalog, sync), attempts)
        while result.more_files:
            result = _joined(result, retried(self._once, attempts))
        return result

    def plan(self) -> tuple[SyncCounts, Sequence[Mapping[str, Any]]]:
        """Return what a run would do: the rows, by what is done with them, and some of them. Nothing is written.

        Raises:
            As `run`.
        """
        prepared = prepare(self._spark, self._duckdb, self._sync, at_once=True)
        return prepared.counts, self._sample(prepared)

    def _once(self) -> SyncResult:
        began, full_name = time.monotonic(), self._spark.full_name(self._sync.table)
        before = noted_before(self._spark, self._sync)
        if self._sync.strategy is SyncStrategy.APPEND:
            position_of(self._spark, self._sync).refuse_written()
        prepared = prepare(self._spark, self._duckdb, self._sync)
        destination, created = prepared.destination, False
        if not destination.exists:
            # The version that the changes follow is that of an empty table.
            if not self._spark.ensure_table(destination.table):
                raise CommitConflict(f"Another writer created {destination.table.table_name} meanwhile.")
            created = True
        if accepted := prepared.accepted:
            refuse_erased(self._spark, full_name, before[full_name])
            table_id = destination.table_id or self._spark.catalog.table(full_name).table_id or ""
            found_by, of_table = (
                (self._found_by(prepared), table_id) if self._sync.strategy is SyncStrategy.APPEND else (None, "")
            )
            of_letters = before[self._spark.full_name(DEAD_LETTERS)]
            store_dead_letters(self._spark, self._sync, accepted.failed, prepared.source, of_letters, found_by, of_table)
        sample = self._sample(prepared)
        refuse_erased(self._spark, full_name, before[full_name])
        wrote = write_changes(self._spark, self._sync, prepared, before)
        if self._sync.strategy is SyncStrategy.APPEND and self._sync.row_errors is RowErrors.SKIP:
            settle_dead_letters(self._spark, position_of(self._spark, self._sync))
        return SyncResult(
            counts=prepared.counts,
            version=wrote.version,
            commit=wrote.commit,
            created=created,
            rows=wrote.rows,
            inputs=prepared.source.inputs,
            seconds=time.monotonic() - began,
            sample=sample,
            lineage={column.name: prepared.source.lineage.get(column.source, ()) for column in destination.columns},
            types={column.name: column.type for column in destination.table.columns},
            unchanged=prepared.accepted is None,
            more_files=prepared.source.more_files,
        )

    def _found_by(self, prepared: PreparedChanges) -> FindingPass:
        """The pass, in the strategy append."""
        source, record = prepared.source, prepared.record
        app_id, version = insertion_of(self._sync, record)
        since = -1 if source.inserted_until is None else source.inserted_until
        return FindingPass(record.id, record.after, app_id, since + 1 if source.of_new_rows else version)

    def _sample(self, prepared: PreparedChanges) -> list[dict[str, Any]]:
        """Some of the changes, without personal data."""
        changes = prepared.changes
        if changes is None:
            return []
        table = prepared.destination.table
        sampled = self._spark.query(sample_sql(table, keyed=self._sync.strategy.keyed), changes=changes)
        columns = (readable(name, table.column_types.get(name, "")) for name in table.shown_columns)
        return self._spark.rows(sampled.selectExpr("change", *columns))


def _joined(before: SyncResult, last: SyncResult) -> SyncResult:
    """What two commits of one run did."""
    one, other = asdict(before.counts), asdict(last.counts)
    return replace(
        last,
        counts=SyncCounts(**{name: one[name] + other[name] for name in one}),
        commit=last.commit or before.commit,
        created=before.created or last.created,
        seconds=before.seconds + last.seconds,
        sample=before.sample or last.sample,
        unchanged=False,
        earlier=before.versions if last.commit else before.earlier,
    )


def noted_before(spark: Spark, sync: SyncDeclaration) -> Mapping[str, int]:
    """Return the versions of what a pass writes, by full name, which it notes before it reads (see `versions_before`)."""
    beside = [DEAD_LETTERS.table_name]
    beside += [f"ops.{written_keys_table(sync.name)}"] if sync.guards.tracked else []
    beside += [f"ops.{deleted_keys_table(sync.name)}"] if sync.events else []
    catalog = spark.catalog.connection.name
    return versions_before(spark, spark.full_name(sync.table), *(f"{catalog}.{name}" for name in beside))


def write_changes(spark: Spark, sync: SyncDeclaration, prepared: PreparedChanges, before: Mapping[str, int]) -> WriteResult:
    """Write what a pass has prepared, in one commit to the destination, which exists.

    Args:
        spark: The session.
        sync: The sync.
        prepared: The changes.
        before: See `noted_before`.

    Raises:
        CommitConflict: another writer of such changes committed first, or the destination was created again.
        ReadBeforeErasure: a data subject was erased since the source was read.
        WrittenAfterErasure: so it is in the strategy append, and the rows are there.
    """
    table, changes = prepared.destination.table, prepared.changes
    table_id = spark.catalog.table(spark.full_name(table)).table_id or ""
    if prepared.destination.exists and table_id != prepared.destination.table_id:
        raise CommitConflict(f"{spark.full_name(table)} was dropped and created again while it was compared.")
    if prepared.accepted and (events := events_of(sync, prepared.destination)):
        deleted = DeletedKeys(spark, sync, prepared.destination, events)
        deleted.add(prepared.accepted.rows, before[spark.full_name(deleted.table)])
    if changes is None:
        return spark.write_result(table, None)
    after = max(prepared.destination.version, 0)
    record = prepared.record.to_json()
    if sync.strategy is SyncStrategy.APPEND:
        insert = insert_sql(table, spark.full_name(table), "{rows}")
        source = prepared.source
        app_id, version = insertion_of(sync, prepared.record)
        # Delta skips the write if all of its versions were inserted meanwhile. It does not if only some of them were.
        if source.of_new_rows and position_of(spark, sync).inserted_until(app_id) != source.inserted_until:
            raise CommitConflict(f"Another run of the sync {sync.name} has inserted rows since these were read.")
        wrote = spark.merge_following(table, insert, changes, record, version, app_id=app_id)
        # Its `txn` is not that of a fence, which may have come before the statement began.
        position_of(spark, sync).refuse_written()
        return wrote
    if sync.strategy is SyncStrategy.FULL:
        overwrite = insert_sql(table, spark.full_name(table), "{rows}", overwrite=True)
        return spark.merge_following(table, overwrite, changes, record, after)
    if sync.guards.tracked:
        written = WrittenKeys(spark, sync, table, table_id)
        written.intend(changes, prepared.record, before[spark.full_name(written.table)])
        wrote = spark.merge_changes(table, changes, record, after)
        written.settle(prepared.record)
        return wrote
    return spark.merge_changes(table, changes, record, after)
