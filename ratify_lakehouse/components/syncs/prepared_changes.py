"""What a pass of a sync would change in its destination, computed by Spark against one version of it. Nothing is written."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ratify_lakehouse.components.strategies.destination_changes import applied, mirrored
from ratify_lakehouse.components.syncs.accepted_rows import AcceptedRows, RowConversion
from ratify_lakehouse.components.syncs.compared_rows import Compared, RowComparison, SyncCounts
from ratify_lakehouse.components.syncs.deleted_keys import DeletedKeys
from ratify_lakehouse.components.syncs.needed_rows import position_of, read_needed
from ratify_lakehouse.components.syncs.source_rows import SourceRows, last_changed_at
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination, find_destination
from ratify_lakehouse.components.syncs.written_keys import WrittenKeys
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CommitConflict, SyncRefused
from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.spark_sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PreparedChanges:
    """What a pass would do.

    Attributes:
        source: What it has read.
        destination: Where its rows go.
        record: For the commit.
        accepted: The rows that fit; None if source and destination are as the last pass left them, so that nothing was read.
        counts: The rows, by what is done with them.
        changes: For `Spark.merge_changes`; in the strategies append and full the rows; None where nothing is to be done.
    """

    source: SourceRows
    destination: SyncDestination
    record: ComputedInputs
    accepted: AcceptedRows | None = None
    counts: SyncCounts = field(default_factory=SyncCounts)
    changes: "DataFrame | None" = None


def prepare(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration, *, at_once: bool = False) -> PreparedChanges:
    """Read a sync's source and compare it with the destination.

    `at_once`: see `read_needed`.

    Raises:
        As `SyncPass.run`.
    """
    position = position_of(spark, sync)
    source = read_needed(spark, duckdb, sync, at_once=at_once)
    destination = find_destination(spark, sync, source.types)
    if source.destination_version not in (None, destination.version):
        raise CommitConflict(f"Another writer of {position.full_name} committed while the source was read.")
    record = position.record(source, max(destination.version, 0))
    if position.is_current(source):
        return PreparedChanges(source, destination, record)
    accepted = RowConversion(spark, sync, source, destination).accepted()
    counts, changes = compare(spark, sync, source, destination, accepted)
    if changes is None and _moves_on(spark, sync, source, accepted):
        changes = accepted.rows
    return PreparedChanges(source, destination, record, accepted, counts, changes)


def _moves_on(spark: Spark, sync: SyncDeclaration, source: SourceRows, accepted: AcceptedRows) -> bool:
    """Whether a pass that has no row to insert commits up to where it has read."""
    if sync.strategy is SyncStrategy.APPEND and accepted.failed is not None:
        # Its dead letters count once it has committed: else they would be read again, and a replay may insert them before.
        return True
    if source.more_files:
        # A file without rows must not be the next one for ever.
        return True
    since = source.inserted_until if source.of_new_rows else None
    return since is not None and source.far_behind(spark.catalog, since)


def compare(
    spark: Spark, sync: SyncDeclaration, source: SourceRows, destination: SyncDestination, accepted: AcceptedRows
) -> "tuple[SyncCounts, DataFrame | None]":
    """Return what accepted rows change in a destination: the counts, and the changes of `PreparedChanges`.

    Raises:
        SyncRefused: a guard does not allow it.
    """
    return _Comparison(spark, sync, source, destination, accepted).compared()


def events_of(sync: SyncDeclaration, destination: SyncDestination) -> ChangeEvents | None:
    """Return how the events of a sync are read, with the sequence by its name in the destination."""
    return sync.events and replace(sync.events, sequence_by=destination.column(sync.events.sequence_by))


@dataclass(frozen=True)
class _Comparison:
    """The accepted rows of a pass beside those of the destination."""

    spark: Spark
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
                written = WrittenKeys(self.spark, self.sync, self.destination.table, self.destination.table_id)
                return self._rows.compared(written.owned())
            case _:
                return self._rows.compared()

    @property
    def _rows(self) -> RowComparison:
        return RowComparison(self.spark, self.sync, self.destination, self.accepted)

    def _applied(self) -> Compared:
        table, events = self.destination.table, events_of(self.sync, self.destination)
        if events is None:
            raise SyncRefused(f"The sync {self.sync.name} does not say how its rows are events.")
        before = DeletedKeys(self.spark, self.sync, self.destination, events).relation()
        return self._rows.differing(applied(table.keys, table.column_names, events, "{rows}", self._rows.stored, before))

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
        frames, there = dict[str, "DataFrame"](), ""
        if accepted.failed is not None:
            frames["failed"], there = (
                accepted.failed,
                f"(SELECT {listed} FROM {{rows}} UNION SELECT {listed} FROM {{failed}})",
            )
        at = f"TIMESTAMP {literal(last_changed_at(self.spark, self.source).isoformat())}"
        wanted = wanted_history(history, columns, self._rows.stored, "{rows}", at, there)
        rows = self.spark.computed(self.spark.query(wanted, rows=accepted.rows, **frames))
        changes = self.spark.computed(
            self.spark.query(mirrored(table.keys, table.column_names, "{rows}", self._rows.stored), rows=rows)
        )
        return self._rows.counted(changes)
