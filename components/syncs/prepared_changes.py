"""What a pass of a sync would change in its destination, computed by Spark against one version of it. Nothing is written."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from components.syncs.accepted_rows import AcceptedRows, RowConversion
from components.syncs.deleted_keys import DeletedKeys
from components.syncs.destination_changes import COUNTED, applied, merged, mirrored
from components.syncs.source_rows import SourceRows, changed_at
from components.syncs.sync_declaration import ChangeEvents, SyncDeclaration, SyncMode
from components.syncs.sync_destination import SyncDestination, find_destination
from components.syncs.sync_position import SyncPosition
from components.syncs.written_keys import WrittenKeys
from resources.delta.computed_inputs import ComputedInputs
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import SyncRefused
from resources.spark.spark_engine import Spark
from resources.sql.row_history import RowHistory, wanted_history
from resources.sql.spark_sql import at_version, identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SyncCounts:
    """Rows of a pass.

    Attributes:
        read: Of the source.
        failed: Of these, those that do not fit the destination.
        inserted: Of the destination.
        updated: Of the destination.
        deleted: Of the destination.
    """

    read: int = 0
    failed: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class PreparedChanges:
    """What a pass would do.

    Attributes:
        source: What it has read.
        destination: Where its rows go.
        record: For the commit.
        accepted: The rows that fit; None if source and destination are as the last pass left them, so that nothing was read.
        counts: The rows, by what is done with them.
        changes: For `Spark.merge_changes`; in the modes insert and replace the rows; None where nothing is to be done.
    """

    source: SourceRows
    destination: SyncDestination
    record: ComputedInputs
    accepted: AcceptedRows | None = None
    counts: SyncCounts = SyncCounts()
    changes: "DataFrame | None" = None


def prepare(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> PreparedChanges:
    """Read a sync's source and compare it with the destination.

    Raises:
        As `SyncPass.run`.
    """
    position = SyncPosition(spark, sync)
    source = position.read(duckdb)
    destination = find_destination(spark, sync, source.types)
    record = position.record(source, destination.version)
    if position.is_current(source):
        return PreparedChanges(source, destination, record)
    accepted = RowConversion(spark, sync, source, destination).accepted()
    counts, changes = compare(spark, sync, source, destination, accepted)
    return PreparedChanges(source, destination, record, accepted, counts, changes)


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
    return sync.events and replace(sync.events, sequence=destination.column(sync.events.sequence))


_Compared = tuple[SyncCounts, "DataFrame | None"]


@dataclass(frozen=True)
class _Comparison:
    """The accepted rows of a pass beside those of the destination."""

    spark: Spark
    sync: SyncDeclaration
    source: SourceRows
    destination: SyncDestination
    accepted: AcceptedRows

    def compared(self) -> _Compared:
        table, read = self.destination.table, self.accepted.read - self.accepted.failures
        match self.sync.mode:
            case SyncMode.INSERT:
                return self._counts(inserted=read), self.accepted.rows if read else None
            case SyncMode.REPLACE:
                return self._replaced(read)
            case SyncMode.MERGE:
                return self._differing(merged(table.keys, table.column_names, "{rows}", self._stored))
            case SyncMode.MIRROR:
                return self._mirrored()
            case SyncMode.CDC:
                return self._applied()
            case SyncMode.SCD2:
                return self._versioned()

    @property
    def _stored(self) -> str:
        """The destination's rows at the version that the changes are computed against: a relation."""
        table = self.destination.table
        if self.destination.exists:
            return at_version(self.spark.sql_name(table), self.destination.version)
        columns = ", ".join(f"CAST(NULL AS {column.type}) AS {identifier(column.name)}" for column in table.columns)
        return f"(SELECT {columns} WHERE false)"

    def _counts(self, **changes: int) -> SyncCounts:
        return SyncCounts(self.accepted.read, self.accepted.failures, **changes)

    def _differing(self, text: str, **frames: "DataFrame") -> _Compared:
        return self._counted(self.spark.computed(self.spark.query(text, rows=self.accepted.rows, **frames)))

    def _counted(self, changes: "DataFrame") -> _Compared:
        keys = ", ".join(identifier(f"ratify_key_{key}") for key in self.destination.table.keys)
        found = self.spark.rows(self.spark.query(COUNTED.replace("{keys}", keys), changes=changes))[0]
        if found.pop("doubled"):
            raise SyncRefused(
                f"{self.spark.full_name(self.destination.table)} has several rows with the same "
                f"{', '.join(self.destination.table.keys)}, of which the sync {self.sync.name} would change one. Nothing "
                "was written. Delete those that are too many, or name more columns under `upsert_key`."
            )
        counts = self._counts(**{name: int(value) for name, value in found.items()})
        return counts, changes if counts.inserted + counts.updated + counts.deleted else None

    def _replaced(self, read: int) -> _Compared:
        columns, stored, rows = ", ".join(map(identifier, self.destination.table.column_names)), self._stored, "{rows}"
        others = " OR ".join(f"{identifier(name)} IS NOT NULL" for name in self.destination.others)
        filled = f" UNION ALL (SELECT 1 FROM {stored} WHERE {others} LIMIT 1)" if others else ""
        new = f"SELECT {columns} FROM {rows} EXCEPT ALL SELECT {columns} FROM {stored}"
        old = f"SELECT {columns} FROM {stored} EXCEPT ALL SELECT {columns} FROM {rows}"
        differs = f"SELECT 1 AS n FROM (({new}) UNION ALL ({old})){filled} LIMIT 1"
        if self.spark.query(differs, rows=self.accepted.rows).isEmpty():
            return self._counts(), None
        return self._counts(inserted=read, deleted=self._rows_stored()), self.accepted.rows

    def _rows_stored(self) -> int:
        return int(self.spark.rows(self.spark.query(f"SELECT count(*) AS n FROM {self._stored}"))[0]["n"])

    def _mirrored(self) -> _Compared:
        table, guards, accepted = self.destination.table, self.sync.guards, self.accepted
        if accepted.lost:
            # It is not known which rows of the destination these are, so that none may be deleted.
            return self._differing(merged(table.keys, table.column_names, "{rows}", self._stored))
        frames = {"withheld": accepted.failed} if accepted.failed is not None else {}
        withheld = "{withheld}" if frames else ""
        if guards.tracked:
            frames["tracked"] = WrittenKeys(self.spark, self.sync, table).owned()
        text = mirrored(
            table.keys,
            table.column_names,
            "{rows}",
            self._stored,
            scope=[self.destination.column(name) for name in guards.scope],
            withheld=withheld,
            tracked="{tracked}" if guards.tracked else "",
        )
        counts, changes = self._differing(text, **frames)
        if counts.deleted:
            self._check_deletions(counts.deleted)
        return counts, changes

    def _check_deletions(self, deleted: int) -> None:
        """Check that a mirror may delete what it is about to.

        Raises:
            SyncRefused: a guard does not allow it.
        """
        name, full_name, guards = self.sync.name, self.spark.full_name(self.destination.table), self.sync.guards
        if not self.accepted.read and not guards.empty_source:
            raise SyncRefused(
                f"The source of the sync {name} has no rows, so that all {deleted} rows of {full_name} would be deleted. "
                "Nothing was written. If it is really empty, set `delete: {empty_source: true}`."
            )
        if deleted > guards.max_fraction * (rows := self._rows_stored()):
            raise SyncRefused(
                f"The sync {name} would delete {deleted} of {rows} rows of {full_name}, which is more than "
                f"`delete: {{max_fraction: {guards.max_fraction:g}}}` allows. Nothing was written. If it is right, raise it."
            )

    def _applied(self) -> _Compared:
        table, events = self.destination.table, events_of(self.sync, self.destination)
        if events is None:
            raise SyncRefused(f"The sync {self.sync.name} does not say how its rows are events.")
        before = DeletedKeys(self.spark, self.sync, self.destination, events).relation()
        return self._differing(applied(table.keys, table.column_names, events, "{rows}", self._stored, before))

    def _versioned(self) -> _Compared:
        table, rules, accepted = self.destination.table, self.sync.history, self.accepted
        columns = [column.name for column in self.destination.columns]
        keys = [key for key in table.keys if key in columns]
        history = RowHistory(
            keys=tuple(keys),
            changed_at=self.destination.column(rules.changed_at) if rules.changed_at else "",
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
        at = f"TIMESTAMP {literal(changed_at(self.spark, self.source).isoformat())}"
        wanted = wanted_history(history, columns, self._stored, "{rows}", at, there)
        rows = self.spark.computed(self.spark.query(wanted, rows=accepted.rows, **frames))
        changes = self.spark.computed(
            self.spark.query(mirrored(table.keys, table.column_names, "{rows}", self._stored), rows=rows)
        )
        return self._counted(changes)
