"""The deletions that the events of a sync of the strategy `cdc` have made, which outlive the rows that they deleted.

An event that comes late, of lower sequence than a deletion, must not bring the row back. The deletions are in a table of
their own. They are written before the destination: a pass that is killed in between leaves deletions of which the rows are
still there, and the next pass, which reads the same events again, deletes them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratify_lakehouse.components.strategies.destination_changes import deletions
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncDeclaration
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.spark.overtaken_writes import write_unless_erased
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.spark_sql import at_version, identifier, no_rows, same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deleted_keys_table(sync: str) -> str:
    """Return the name of the table with the keys that events of a sync have deleted, in the schema `ops`."""
    return f"sync_{sync}_deleted"


@dataclass(frozen=True)
class DeletedKeys:
    """The deletions of a sync.

    Attributes:
        spark: The session.
        sync: The sync.
        destination: Its destination.
        events: How its events are read; the sequence by its name in the destination.
    """

    spark: Spark
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

    def relation(self) -> str:
        """Return what stands for the deletions of earlier passes in a query."""
        table = self.table
        try:
            version = self.spark.catalog.version(self.spark.full_name(table))
        except TableMissing:
            return no_rows(table.column_types)
        return at_version(self.spark.sql_name(table), version)

    def add(self, rows: "DataFrame", before: int) -> None:
        """Write the deletions among events, those that are not there yet or of greater sequence.

        Args:
            rows: The events.
            before: The version of this table before they were read.

        Raises:
            ReadBeforeErasure: a data subject was erased since.
        """
        table, sequence = self.table, identifier(self.events.sequence_by)
        made = deletions(self.destination.table.keys, self.events, "{rows}")
        known = f"{same_keys(table.keys, 't', 's')} AND t.{sequence} >= s.{sequence}"
        new = f"SELECT s.* FROM (\n{made}\n) AS s LEFT ANTI JOIN {self.relation()} AS t ON {known}"
        found = self.spark.computed(self.spark.query(new, rows=rows))
        if found.isEmpty():
            return
        self.spark.ensure_table(table)
        columns = ", ".join(map(identifier, table.column_names))
        values = ", ".join(f"s.{identifier(name)}" for name in table.column_names)
        merge = (
            f"MERGE INTO {self.spark.sql_name(table)} AS t USING {{rows}} AS s ON {same_keys(table.keys, 't', 's')}\n"
            f"WHEN MATCHED AND s.{sequence} > t.{sequence} THEN UPDATE SET {sequence} = s.{sequence}\n"
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
        )
        write_unless_erased(self.spark, table, merge, found, before)
