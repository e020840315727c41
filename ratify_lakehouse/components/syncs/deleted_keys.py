"""The deletions that the events of a sync of the strategy `cdc` have made, which outlive the rows that they deleted.

An event that comes late, of lower sequence than a deletion, must not bring the row back. The deletions are in a table of
their own. They are written before the destination: a pass that is killed in between leaves deletions of which the rows are
still there, and the next pass, which reads the same events again, deletes them.
"""

from dataclasses import dataclass

from ratify_lakehouse.components.strategies.destination_changes import change_columns, deletions
from ratify_lakehouse.components.syncs.row_queries import Rows
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncDeclaration
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.components.syncs.sync_tables import SyncTables
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration


def deleted_keys_table(sync: str) -> str:
    """Return the name of the table with the keys that events of a sync have deleted, in the schema `ops`."""
    return f"sync_{sync}_deleted"


@dataclass(frozen=True)
class DeletedKeys:
    """The deletions of a sync.

    Attributes:
        tables: The engine.
        sync: The sync.
        destination: Its destination.
        events: How its events are read; the sequence by its name in the destination.
    """

    tables: SyncTables
    sync: SyncDeclaration
    destination: SyncDestination
    events: ChangeEvents

    @property
    def table(self) -> TableDeclaration:
        """Their table."""
        types = {column.name: column.type for column in self.destination.columns}
        columns = [Column(name, types[name]) for name in (*self.destination.table.keys, self.events.sequence_by)]
        return TableDeclaration(
            layer="ops",
            name=deleted_keys_table(self.sync.name),
            columns=(*columns, Column("truncated", "boolean", "Whether all rows of lower sequence were deleted")),
            comment=f"Keys that events of the sync {self.sync.name} have deleted, each with the sequence of the deletion",
            writer=Engine.SPARK,
            operations=frozenset({"MERGE"}),
            keys=(*self.destination.table.keys, "truncated"),
        )

    def add(self, rows: Rows) -> None:
        """Write the deletions among events, those that are not there yet or of greater sequence.

        Args:
            rows: The events.

        Raises:
            As `SyncTables.update`.
        """
        table, tables, sql = self.table, self.tables, self.tables.sql
        made = deletions(self.destination.table.keys, self.events, "{rows}")
        found = tables.computed(tables.query(sql.translated(made), rows=rows))
        if not tables.rows(tables.query("SELECT 1 AS n FROM {found} LIMIT 1", found=found)):
            return
        tables.ensure_table(table)
        sequence = sql.identifier(self.events.sequence_by)
        listed = change_columns(table.keys, {name: f"s.{sql.identifier(name)}" for name in table.column_names}, sql)
        tables.update(
            table,
            f"SELECT {listed}, true AS ratify_present, t.ratify_here IS NOT NULL AS ratify_found "
            "FROM {found} AS s LEFT JOIN (SELECT *, true AS ratify_here FROM {stored}) AS t "
            f"ON {sql.same(table.keys, 's', 't')} WHERE t.ratify_here IS NULL OR s.{sequence} > t.{sequence}",
            found=found,
        )
