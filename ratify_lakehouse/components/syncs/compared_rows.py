"""The accepted rows of a sync beside those of its destination: what a pass would change. Any engine runs the queries."""

from dataclasses import dataclass

from ratify_lakehouse.components.expectations.rule_dialects import SPARK, RuleDialect
from ratify_lakehouse.components.strategies.destination_changes import counted, merged, mirrored
from ratify_lakehouse.components.syncs.accepted_rows import AcceptedRows
from ratify_lakehouse.components.syncs.row_queries import RowQueries, Rows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.errors import SyncRefused
from ratify_lakehouse.sql.spark_sql import at_version, no_rows, table_name

_SAMPLE = 5


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


Compared = tuple[SyncCounts, Rows | None]
"""The counts, and the changes for `Spark.merge_changes`, or the rows to insert; None where nothing is to be done."""


@dataclass(frozen=True)
class RowComparison:
    """Accepted rows, and the destination that they are for.

    Attributes:
        queries: The engine that runs the queries.
        sync: The sync.
        destination: Its destination.
        accepted: The rows.
        sql: The engine's words.
        read: The destination's rows, as a relation; empty: the engine reads them by the name of the table.
    """

    queries: RowQueries
    sync: SyncDeclaration
    destination: SyncDestination
    accepted: AcceptedRows
    sql: RuleDialect = SPARK
    read: str = ""

    def compared(self, tracked: Rows | None = None) -> Compared:
        """Return what the rows change, in the strategies append, full, merge and mirror.

        Args:
            tracked: Keys of the only rows that a mirror deletes; None: all.

        Raises:
            SyncRefused: a guard does not allow it.
        """
        table, read = self.destination.table, self.accepted.read - self.accepted.failures
        match self.sync.strategy:
            case SyncStrategy.APPEND:
                return self._counts(inserted=read), self.accepted.rows if read else None
            case SyncStrategy.FULL:
                return self._replaced(read)
            case SyncStrategy.MIRROR:
                return self._mirrored(tracked)
            case _:
                return self.differing(merged(table.keys, table.column_names, "{rows}", self.stored, self.sql))

    @property
    def stored(self) -> str:
        """The destination's rows at the version that the changes are computed against: a relation."""
        table = self.destination.table
        if self.read:
            return self.read
        if self.destination.exists:
            return at_version(table_name(self.queries.full_name(table)), self.destination.version)
        return no_rows(table.column_types)

    def _counts(self, **changes: int) -> SyncCounts:
        return SyncCounts(self.accepted.read, self.accepted.failures, **changes)

    def differing(self, text: str, **relations: Rows) -> Compared:
        """Return the changes that a query over the accepted rows, `{rows}`, gives.

        Raises:
            SyncRefused: several rows of the destination have the same keys, and one of them would be changed.
        """
        return self.counted(self.queries.computed(self.queries.query(text, rows=self.accepted.rows, **relations)))

    def counted(self, changes: Rows) -> Compared:
        """Return changes with their counts.

        Raises:
            As `differing`.
        """
        text = counted(self.destination.table.keys, self.sql)
        found = self.queries.rows(self.queries.query(text, changes=changes))[0]
        if found.pop("doubled"):
            raise SyncRefused(
                f"{self.queries.full_name(self.destination.table)} has several rows with the same "
                f"{', '.join(self.destination.table.keys)}, of which the sync {self.sync.name} would change one. Nothing "
                "was written. Delete the surplus rows, or name more columns under `keys`."
            )
        counts = self._counts(**{name: int(value) for name, value in found.items()})
        return counts, changes if counts.inserted + counts.updated + counts.deleted else None

    def _replaced(self, read: int) -> Compared:
        columns, stored, rows = self.sql.listed(self.destination.table.column_names), self.stored, "{rows}"
        others = " OR ".join(f"{self.sql.identifier(name)} IS NOT NULL" for name in self.destination.others)
        filled = f" UNION ALL (SELECT 1 FROM {stored} WHERE {others} LIMIT 1)" if others else ""
        new = f"SELECT {columns} FROM {rows} EXCEPT ALL SELECT {columns} FROM {stored}"
        old = f"SELECT {columns} FROM {stored} EXCEPT ALL SELECT {columns} FROM {rows}"
        differs = f"SELECT 1 AS n FROM (({new}) UNION ALL ({old})){filled} LIMIT 1"
        if not self.queries.rows(self.queries.query(differs, rows=self.accepted.rows)):
            return self._counts(), None
        return self._counts(inserted=read, deleted=self._rows_stored()), self.accepted.rows

    def _rows_stored(self) -> int:
        return int(self.queries.rows(self.queries.query(f"SELECT count(*) AS n FROM {self.stored}"))[0]["n"])

    def _mirrored(self, tracked: Rows | None) -> Compared:
        table, guards, accepted = self.destination.table, self.sync.guards, self.accepted
        if accepted.lost:
            # It is not known which rows of the destination these are, so that none may be deleted.
            return self.differing(merged(table.keys, table.column_names, "{rows}", self.stored, self.sql))
        relations = {"withheld": accepted.failed} if accepted.failed is not None else {}
        withheld = "{withheld}" if relations else ""
        if tracked is not None:
            relations["tracked"] = tracked
        text = mirrored(
            table.keys,
            table.column_names,
            "{rows}",
            self.stored,
            scope=[self.destination.column(name) for name in guards.scope],
            withheld=withheld,
            tracked="{tracked}" if tracked is not None else "",
            sql=self.sql,
        )
        counts, changes = self.differing(text, **relations)
        if counts.deleted:
            self._check_deletions(counts.deleted)
        return counts, changes

    def _check_deletions(self, deleted: int) -> None:
        """Check that a mirror may delete what it is about to.

        Raises:
            SyncRefused: a guard does not allow it.
        """
        name, full_name, guards = self.sync.name, self.queries.full_name(self.destination.table), self.sync.guards
        if not self.accepted.read and not guards.empty_source:
            raise SyncRefused(
                f"The source of the sync {name} has no rows, so all {deleted} rows of {full_name} would be deleted. "
                "Nothing was written. If it is really empty, set `delete: {empty_source: true}`."
            )
        if deleted > guards.max_fraction * (rows := self._rows_stored()):
            raise SyncRefused(
                f"The sync {name} would delete {deleted} of {rows} rows of {full_name}, which is more than `delete: "
                f"{{max_fraction: {guards.max_fraction:g}}}` allows. Nothing was written. If this is intended, raise it."
            )


def sample_sql(table: TableDeclaration, *, keyed: bool, sql: RuleDialect = SPARK) -> str:
    """Return the query for some of `{changes}`, without personal data.

    Args:
        table: The destination.
        keyed: Whether they are changes by keys; otherwise they are rows to insert.
        sql: The words of the engine that runs it.
    """
    shown = table.shown_columns
    if not keyed:
        return f"SELECT 'insert' AS change, {sql.listed(shown)} FROM {{changes}} LIMIT {_SAMPLE}"
    listed = ", ".join(
        f"{sql.identifier(f'ratify_key_{name}')} AS {sql.identifier(name)}" if name in table.keys else sql.identifier(name)
        for name in shown
    )
    change = "CASE WHEN NOT ratify_present THEN 'delete' WHEN ratify_found THEN 'update' ELSE 'insert' END AS change"
    return (
        f"SELECT change, {listed} FROM (SELECT *, {change}, "
        "row_number() OVER (PARTITION BY ratify_present, ratify_found ORDER BY 1) AS place FROM {changes}) "
        f"WHERE place <= {_SAMPLE} ORDER BY change, place"
    )
