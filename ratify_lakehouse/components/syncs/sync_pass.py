"""One pass of a sync, by Spark or DuckDB: the one commit that changes the destination as the source wants it.

The commit's user metadata names the sync and the versions of the source that it has read (`ComputedInputs`), so that rows
and record are ratified together. A pass that is killed leaves the destination as it was before or as it is after.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.syncs.compared_rows import SyncCounts, sample_sql
from ratify_lakehouse.components.syncs.dead_letters import FindingPass, settle_dead_letters, store_dead_letters
from ratify_lakehouse.components.syncs.deleted_keys import DeletedKeys
from ratify_lakehouse.components.syncs.prepared_changes import events_of, prepare
from ratify_lakehouse.components.syncs.source_rows import inputs_by_now
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_position import insertion_of
from ratify_lakehouse.components.syncs.sync_tables import OpenTables, PreparedChanges, SyncTables
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.errors import CommitConflict, SyncRefused, TableMissing


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
    """A pass of a sync."""

    def __init__(self, opened: OpenTables, catalog: UnityCatalog, sync: SyncDeclaration, attempts: int) -> None:
        """Take what opens the engine for an attempt, the catalog, the sync, and how many attempts there are."""
        self._opened, self._catalog, self._sync, self._attempts = opened, catalog, sync, attempts

    def run(self) -> SyncResult:
        """Write what differs.

        Raises:
            RowsNotConverted: rows do not fit the destination, or several have the same keys.
            SyncRefused: a guard of the declaration, or the destination, does not allow it.
            TableMissing: the source or the destination does not exist.
            HistoryNotContinued: the strategy is append or cdc, and the source did other than get rows.
            CommitConflict: other writers won every attempt.
            UnsafeTable: the destination is one that DuckDB does not write to.
            CommitOutcomeUnknown: it may have been ratified; run it again, which writes nothing twice.
        """
        result = followed(self._once, self._sync, partial(inputs_by_now, self._catalog, self._sync), self._attempts)
        while result.more_files:
            result = _joined(result, retried(self._once, self._attempts))
        return result

    def plan(self) -> tuple[SyncCounts, Sequence[Mapping[str, Any]]]:
        """Return what a run would do: the rows, by what is done with them, and some of them. Nothing is written.

        Raises:
            As `run`.
        """
        with self._opened() as tables:
            prepared = prepare(tables, self._sync, at_once=True)
            return prepared.counts, self._sample(tables, prepared)

    def _once(self) -> SyncResult:
        began = time.monotonic()
        with self._opened() as tables:
            if self._sync.strategy is SyncStrategy.APPEND:
                tables.position.refuse_written()
            prepared = prepare(tables, self._sync)
            created = not prepared.destination.exists
            if created:
                prepared = _with_destination(tables, prepared)
            if prepared.accepted:
                self._store_dead_letters(tables, prepared)
            sample = self._sample(tables, prepared)
            wrote = write_changes(tables, self._sync, prepared)
            if self._sync.strategy is SyncStrategy.APPEND and self._sync.row_errors is RowErrors.SKIP:
                settle_dead_letters(tables, self._sync)
        source, destination = prepared.source, prepared.destination
        return SyncResult(
            counts=prepared.counts,
            version=wrote.version,
            commit=wrote.commit,
            created=created,
            rows=wrote.rows,
            inputs=source.inputs,
            seconds=time.monotonic() - began,
            sample=sample,
            lineage={column.name: source.lineage.get(column.source, ()) for column in destination.columns},
            types={column.name: column.type for column in destination.table.columns},
            unchanged=prepared.accepted is None,
            more_files=source.more_files,
        )

    def _store_dead_letters(self, tables: SyncTables, prepared: PreparedChanges) -> None:
        source, record, sync = prepared.source, prepared.record, self._sync
        failed = prepared.accepted.failed if prepared.accepted else None
        if sync.strategy is not SyncStrategy.APPEND:
            store_dead_letters(tables, sync, failed, source)
            return
        app_id, version = insertion_of(sync, record)
        found_by = FindingPass(record.id, record.after, app_id, source.since + 1 if source.of_new_rows else version)
        store_dead_letters(tables, sync, failed, source, found_by, prepared.destination.table_id)

    def _sample(self, tables: SyncTables, prepared: PreparedChanges) -> list[dict[str, Any]]:
        """Some of the changes, without personal data."""
        if prepared.changes is None:
            return []
        table = prepared.destination.table
        sampled = sample_sql(table, keyed=self._sync.strategy.keyed, sql=tables.sql)
        return tables.shown_rows(table, tables.query(sampled, changes=prepared.changes))


def _with_destination(tables: SyncTables, prepared: PreparedChanges) -> PreparedChanges:
    """Create the destination. The version that the changes follow is that of an empty table.

    Raises:
        CommitConflict: another writer was first.
    """
    table = prepared.destination.table
    if not tables.ensure_table(table):
        raise CommitConflict(f"Another writer created {table.table_name} meanwhile.")
    table_id = tables.catalog.table(tables.full_name(table)).table_id or ""
    return replace(prepared, destination=replace(prepared.destination, table_id=table_id))


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


def write_changes(tables: SyncTables, sync: SyncDeclaration, prepared: PreparedChanges) -> WriteResult:
    """Write what a pass has prepared, in one commit to the destination, and what is remembered beside it.

    Raises:
        As `SyncTables.write`.
    """
    if prepared.accepted and (events := events_of(sync, prepared.destination)):
        DeletedKeys(tables, sync, prepared.destination, events).add(prepared.accepted.rows)
    if prepared.changes is None or not sync.guards.tracked:
        return tables.write(prepared)
    written = WrittenKeys.of(tables, sync, prepared.destination)
    written.intend(prepared.changes, prepared.record)
    wrote = tables.write(prepared)
    written.settle(prepared.record)
    return wrote
