"""The keys of a destination whose rows a sync has written, for a mirror that deletes no others (`tracked`).

They are in a table of their own, and so in commits of their own. A pass writes there first what it is about to do, with the
id of its record; whether it did so is in the destination's history, where the commit has that id. After its commit a
pass settles: what passes have done needs no id any more, and what earlier passes did not do is removed. These cannot do it
later, because the commit of a pass follows the version that it was computed against (`Spark.merge_following`).

A destination that was dropped and created again has another id, and none of its rows is the sync's.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.engines.spark.overtaken_writes import write_unless_erased
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.spark_sql import at_version, identifier, literal, no_rows, same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def written_keys_table(sync: str) -> str:
    """Return the name of the table with the keys that a sync has written, in the schema `ops`."""
    return f"sync_{sync}_keys"


@dataclass(frozen=True)
class WrittenKeys:
    """The keys that a sync has written to a destination.

    Attributes:
        spark: The session.
        sync: The sync.
        destination: Its destination.
        table_id: The destination's.
    """

    spark: Spark
    sync: SyncDeclaration
    destination: TableDeclaration
    table_id: str

    @property
    def table(self) -> TableDeclaration:
        """Their table."""
        types = self.destination.column_types
        return TableDeclaration(
            layer="ops",
            name=written_keys_table(self.sync.name),
            columns=(
                *(Column(key, types[key]) for key in self.destination.keys),
                Column("pass_id", "string", "Id of the record of the pass that was about to do it; empty: it was done"),
                Column("after", "bigint", "Version of the destination that it was to follow"),
                Column("deleted", "boolean", "Whether the row was deleted"),
                Column("table_id", "string", "Id of the destination; NULL: it was not kept, and is that of now"),
            ),
            comment=f"Keys of {self.destination.table_name} whose rows the sync {self.sync.name} has written",
            writer=Engine.SPARK,
            operations=frozenset({"WRITE", "UPDATE", "DELETE"}),
        )

    def owned(self) -> "DataFrame":
        """Return the keys of the rows that the sync has written last, and not deleted since."""
        keys = ", ".join(map(identifier, self.destination.keys))
        done = ", ".join(map(literal, ["", *self._passes()[0]]))
        return self.spark.query(
            f"SELECT {keys} FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY after DESC, deleted) AS place "
            f"FROM {self._relation()} WHERE pass_id IN ({done}) AND NOT {self._of_another}) WHERE place = 1 AND NOT deleted"
        )

    def intend(self, changes: "DataFrame", record: ComputedInputs, before: int) -> None:
        """Write what a pass is about to do, before it does.

        Args:
            changes: For `Spark.merge_changes`.
            record: Of its commit.
            before: The version of this table before the rows were read that the changes are computed from.

        Raises:
            ReadBeforeErasure: a data subject was erased since.
        """
        self.spark.ensure_table(self.table)
        columns = ", ".join(map(identifier, self.table.column_names))
        keys = ", ".join(identifier(f"ratify_key_{key}") for key in self.destination.keys)
        insert = (
            f"INSERT INTO {self.spark.sql_name(self.table)} ({columns}) "
            f"SELECT {keys}, {literal(record.id)}, {record.after}, NOT ratify_present, {literal(self.table_id)} "
            "FROM {rows}"
        )
        write_unless_erased(self.spark, self.table, insert, changes, before)

    def settle(self, record: ComputedInputs) -> None:
        """Remember what passes have done, after the one of this record has, and forget what earlier ones have not.

        What was done to a table that is not there any more is forgotten, too.
        """
        done, undone, of_others = self._passes()
        name, full_name = self.spark.sql_name(self.table), self.spark.full_name(self.table)
        listed = ", ".join(map(literal, ["", *done]))
        # Of each key what was done last.
        latest = f"row_number() OVER (PARTITION BY {self._keys} ORDER BY after DESC) AS place"
        remembered = (
            f"MERGE INTO {name} AS t USING (SELECT *, {latest} FROM {name} WHERE pass_id IN ({listed}) "
            f"AND NOT {self._of_another}) AS s\nON {same_keys(self.destination.keys, 't', 's')} "
            "AND t.pass_id = s.pass_id AND t.after = s.after AND t.table_id <=> s.table_id\n"
            "WHEN MATCHED AND (s.place > 1 OR s.deleted) THEN DELETE\n"
            "WHEN MATCHED AND (t.pass_id <> '' OR t.table_id IS NULL) "
            f"THEN UPDATE SET pass_id = '', table_id = {literal(self.table_id)}"
        )
        self.spark.commit(full_name, lambda: self.spark.rows(self.spark.sql(remembered)))
        if undone or of_others:
            passes = ", ".join(map(literal, ["none", *undone]))
            forgotten = f"DELETE FROM {name} WHERE (pass_id IN ({passes}) AND after <= {record.after}) OR {self._of_another}"
            self.spark.commit(full_name, lambda: self.spark.rows(self.spark.sql(forgotten)))

    @property
    def _keys(self) -> str:
        return ", ".join(map(identifier, self.destination.keys))

    @property
    def _of_another(self) -> str:
        """The condition that a row is about another table of the destination's name."""
        return f"coalesce(table_id <> {literal(self.table_id)}, false)"

    def _relation(self) -> str:
        full_name = self.spark.full_name(self.table)
        try:
            version, found = self.spark.catalog.version(full_name), self.spark.catalog.table(full_name)
        except TableMissing:
            return no_rows(self.table.column_types)
        rows = at_version(self.spark.sql_name(self.table), version)
        # A plan adds no column to a table of before.
        has_ids = any(column.name == "table_id" for column in found.columns or [])
        return rows if has_ids else f"(SELECT *, CAST(NULL AS STRING) AS table_id FROM {rows})"

    def _passes(self) -> tuple[list[str], list[str], bool]:
        """Ids of the passes of which it is to be found out whether they did what they were about to: did, and did not.

        And whether there are rows about another table of the destination's name.
        """
        text = (
            f"SELECT pass_id, {self._of_another} AS of_another, min(after) AS after FROM {self._relation()} "
            f"WHERE pass_id <> '' OR {self._of_another} GROUP BY 1, 2"
        )
        rows = self.spark.rows(self.spark.query(text))
        waiting = {row["pass_id"]: row["after"] for row in rows if not row["of_another"]}
        of_others = len(waiting) < len(rows)
        if not waiting:
            return [], [], of_others
        found, oldest = set[str](), min(waiting.values())
        full_name = self.spark.full_name(self.destination)
        for commit in self.spark.recent_commits(full_name, self.spark.catalog.version(full_name) - oldest):
            if record := ComputedInputs.of(commit):
                found.add(record.id)
        done = [each for each in waiting if each in found]
        return done, [each for each in waiting if each not in found], of_others
