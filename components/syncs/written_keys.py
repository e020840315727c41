"""The keys of a destination whose rows a sync has written, for a mirror that deletes no others (`tracked`).

They are in a table of their own, and so in commits of their own. A pass writes there first what it is about to do, with the
id of its record; whether it did so is in the destination's history, where the commit has that id. After its commit a
pass settles: what passes have done needs no id any more, and what earlier passes did not do is removed. These cannot do it
later, because the commit of a pass follows the version that it was computed against (`Spark.merge_following`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from components.syncs.sync_declaration import SyncDeclaration
from resources.declarations import Column, Engine, TableDeclaration
from resources.delta.computed_inputs import ComputedInputs
from resources.errors import TableMissing
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import at_version, identifier, literal, no_rows, same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def written_keys_table(sync: str) -> str:
    """Return the name of the table with the keys that a sync has written, in the schema `ops`."""
    return f"sync_{sync}_keys"


@dataclass(frozen=True)
class WrittenKeys:
    """The keys that a sync has written to a destination."""

    spark: Spark
    sync: SyncDeclaration
    destination: TableDeclaration

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
            f"FROM {self._relation()} WHERE pass_id IN ({done})) WHERE place = 1 AND NOT deleted"
        )

    def intend(self, changes: "DataFrame", record: ComputedInputs) -> None:
        """Write what a pass is about to do, before it does.

        Args:
            changes: For `Spark.merge_changes`.
            record: Of its commit.
        """
        self.spark.ensure_table(self.table)
        columns = ", ".join(map(identifier, self.table.column_names))
        keys = ", ".join(identifier(f"ratify_key_{key}") for key in self.destination.keys)
        insert = (
            f"INSERT INTO {self.spark.sql_name(self.table)} ({columns}) "
            f"SELECT {keys}, {literal(record.id)}, {record.after}, NOT ratify_present FROM {{changes}}"
        )
        self.spark.commit(self.spark.full_name(self.table), lambda: self.spark.rows(self.spark.sql(insert, changes=changes)))

    def settle(self, record: ComputedInputs) -> None:
        """Remember what passes have done, after the one of this record has, and forget what earlier ones have not."""
        done, undone = self._passes()
        name, full_name = self.spark.sql_name(self.table), self.spark.full_name(self.table)
        listed = ", ".join(map(literal, done))
        # Of each key what was done last.
        latest = f"row_number() OVER (PARTITION BY {self._keys} ORDER BY after DESC) AS place"
        remembered = (
            f"MERGE INTO {name} AS t USING (SELECT *, {latest} FROM {name} WHERE pass_id IN ('', {listed})) AS s\n"
            f"ON {same_keys(self.destination.keys, 't', 's')} AND t.pass_id = s.pass_id AND t.after = s.after\n"
            "WHEN MATCHED AND (s.place > 1 OR s.deleted) THEN DELETE\n"
            "WHEN MATCHED AND t.pass_id <> '' THEN UPDATE SET pass_id = ''"
        )
        self.spark.commit(full_name, lambda: self.spark.rows(self.spark.sql(remembered)))
        if undone:
            forgotten = (
                f"DELETE FROM {name} WHERE pass_id IN ({', '.join(map(literal, undone))}) AND after <= {record.after}"
            )
            self.spark.commit(full_name, lambda: self.spark.rows(self.spark.sql(forgotten)))

    @property
    def _keys(self) -> str:
        return ", ".join(map(identifier, self.destination.keys))

    def _relation(self) -> str:
        try:
            version = self.spark.catalog.version(self.spark.full_name(self.table))
        except TableMissing:
            return no_rows(self.table.column_types)
        return at_version(self.spark.sql_name(self.table), version)

    def _passes(self) -> tuple[list[str], list[str]]:
        """Ids of the passes of which it is to be found out whether they did what they were about to: did, and did not."""
        text = f"SELECT pass_id, min(after) AS after FROM {self._relation()} WHERE pass_id <> '' GROUP BY pass_id"
        waiting = {row["pass_id"]: row["after"] for row in self.spark.rows(self.spark.query(text))}
        if not waiting:
            return [], []
        found, oldest = set[str](), min(waiting.values())
        full_name = self.spark.full_name(self.destination)
        for commit in self.spark.recent_commits(full_name, self.spark.catalog.version(full_name) - oldest):
            if record := ComputedInputs.of(commit):
                found.add(record.id)
        return [each for each in waiting if each in found], [each for each in waiting if each not in found]
