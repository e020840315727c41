"""Prepares what a pass of a sync would do; nothing is written."""

from dataclasses import dataclass, replace
from functools import cached_property

from ratify_lakehouse.components.strategies.destination_changes import applied, mirrored
from ratify_lakehouse.components.syncs.accepted_rows import AcceptedRows, RowConversion
from ratify_lakehouse.components.syncs.compared_rows import Compared, RowComparison
from ratify_lakehouse.components.syncs.deleted_keys import DeletedKeys
from ratify_lakehouse.components.syncs.row_queries import Rows
from ratify_lakehouse.components.syncs.source_rows import SourceRows, last_changed_at
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.components.syncs.sync_tables import PreparedChanges, SyncTables
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys
from ratify_lakehouse.errors import CommitConflict, SyncRefused
from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.spark_sql import identifier, literal


def prepare(tables: SyncTables, sync: SyncDeclaration, *, at_once: bool = False) -> PreparedChanges:
    """Read a sync's source and compare it with the destination.

    `at_once`: see `SyncTables.source`.

    Raises:
        As `SyncPass.run`.
    """
    position = tables.position
    source = tables.source(at_once=at_once)
    destination = tables.destination(source.types)
    if source.destination_version not in (None, destination.version):
        raise CommitConflict(f"Another writer committed to {position.full_name} while the source was read.")
    record = position.record(source, max(destination.version, 0))
    if position.is_current(source):
        return PreparedChanges(source, destination, record)
    accepted = RowConversion(tables, sync, source, destination, tables.sql).accepted()
    counts, changes = compare(tables, sync, source, destination, accepted)
    if changes is None and _moves_on(tables, sync, source, accepted):
        changes = accepted.rows
    return PreparedChanges(source, destination, record, accepted, counts, changes)


def _moves_on(tables: SyncTables, sync: SyncDeclaration, source: SourceRows, accepted: AcceptedRows) -> bool:
    """Whether a pass that has no row to insert commits up to where it has read."""
    if sync.strategy is SyncStrategy.APPEND and accepted.failed is not None:
        # Its dead letters count once it has committed: else they would be read again, and a replay may insert them before.
        return True
    if source.more_files:
        # A file without rows must not be the next one for ever.
        return True
    since = source.inserted_until if source.of_new_rows else None
    return since is not None and source.far_behind(tables.catalog, since)


def compare(
    tables: SyncTables, sync: SyncDeclaration, source: SourceRows, destination: SyncDestination, accepted: AcceptedRows
) -> Compared:
    """Return what accepted rows change in a destination: the counts, and the changes of `PreparedChanges`.

    Raises:
        SyncRefused: a guard does not allow it.
    """
    return _Comparison(tables, sync, source, destination, accepted).compared()


def events_of(sync: SyncDeclaration, destination: SyncDestination) -> ChangeEvents | None:
    """Return how the events of a sync are read, with the sequence by its name in the destination."""
    return sync.events and replace(sync.events, sequence_by=destination.column(sync.events.sequence_by))


@dataclass(frozen=True)
class _Comparison:
    """The accepted rows of a pass beside those of the destination."""

    tables: SyncTables
    sync: SyncDeclaration
    source: SourceRows
    destination: SyncDestination
    accepted: AcceptedRows

    def compared(self) -> Compared:
        match self.sync.strategy:
            case SyncStrategy.CDC:
                return self._applied()
            case SyncStrategy.SCD2:
                return self._versioned()
            case SyncStrategy.MIRROR if self.sync.guards.tracked:
                return self._rows.compared(WrittenKeys.of(self.tables, self.sync, self.destination).owned())
            case _:
                return self._rows.compared()

    @cached_property
    def _rows(self) -> RowComparison:
        stored = self.tables.stored(self.destination)
        return RowComparison(self.tables, self.sync, self.destination, self.accepted, self.tables.sql, stored)

    def _applied(self) -> Compared:
        table, events = self.destination.table, events_of(self.sync, self.destination)
        if events is None:
            raise SyncRefused(f"The sync {self.sync.name} does not declare which columns make a row an event.")
        text = applied(table.keys, table.column_names, events, "{rows}", "{stored}", "{deleted}")
        deleted = self.tables.rows_now(DeletedKeys(self.tables, self.sync, self.destination, events).table)
        return self._rows.differing(self.tables.sql.translated(text), stored=self._stored, deleted=deleted)

    def _versioned(self) -> Compared:
        table, rules, accepted = self.destination.table, self.sync.history, self.accepted
        columns = [column.name for column in self.destination.columns]
        keys = [key for key in table.keys if key in columns]
        history = RowHistory(
            keys=tuple(keys),
            updated_at=self.destination.column(rules.updated_at) if rules.updated_at else "",
            ignored=tuple(map(self.destination.column, rules.ignored)),
            # Where the keys of some rows cannot be known, it is not known which rows are not there any more.
            close=rules.close_deleted and not accepted.lost,
        )
        listed = ", ".join(map(identifier, keys))
        relations, there = dict[str, Rows](rows=accepted.rows, stored=self._stored), ""
        if accepted.failed is not None:
            relations["failed"] = accepted.failed
            there = f"(SELECT {listed} FROM {{rows}} UNION SELECT {listed} FROM {{failed}})"
        # Without the letter between date and time, which sqlglot's literal of a time does not have.
        at = f"TIMESTAMP {literal(last_changed_at(self.tables.position.commits, self.source).isoformat(sep=' '))}"
        wanted = wanted_history(history, columns, "{stored}", "{rows}", at, there)
        rows = self.tables.computed(self.tables.query(self.tables.sql.translated(wanted), **relations))
        text = mirrored(table.keys, table.column_names, "{rows}", self._rows.stored, sql=self.tables.sql)
        return self._rows.counted(self.tables.computed(self.tables.query(text, rows=rows)))

    @property
    def _stored(self) -> Rows:
        return self.tables.query(f"SELECT * FROM {self._rows.stored}")
