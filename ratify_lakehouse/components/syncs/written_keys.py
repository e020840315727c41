"""The keys of a destination whose rows a sync has written, for a mirror that deletes no others (`tracked`).

They are in a table of their own, and so in commits of their own. A pass writes there first what it is about to do, with the
id of its record; whether it did so is in the destination's history, where the commit has that id. After its commit a
pass settles: what passes have done needs no id any more, and what earlier passes did not do is removed. These cannot do it
later, because the commit of a pass follows the version that it was computed against.

A destination that was dropped and created again has another id, and none of its rows is the sync's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ratify_lakehouse.components.strategies.destination_changes import change_columns
from ratify_lakehouse.components.syncs.row_queries import Rows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.components.syncs.sync_destination import SyncDestination
from ratify_lakehouse.components.syncs.sync_tables import SyncTables
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs


def written_keys_table(sync: str) -> str:
    """Return the name of the table with the keys that a sync has written, in the schema `ops`."""
    return f"sync_{sync}_keys"


@dataclass(frozen=True)
class WrittenKeys:
    """The keys that a sync has written to a destination.

    Attributes:
        tables: The engine.
        sync: The sync.
        destination: Its destination.
        table_id: The destination's.
    """

    tables: SyncTables
    sync: SyncDeclaration
    destination: TableDeclaration
    table_id: str

    @classmethod
    def of(cls, tables: SyncTables, sync: SyncDeclaration, destination: SyncDestination) -> "WrittenKeys":
        """Return those of a destination."""
        return cls(tables, sync, destination.table, destination.table_id)

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
                Column("table_id", "string", "Id of the destination"),
            ),
            comment=f"Keys of {self.destination.table_name} whose rows the sync {self.sync.name} has written",
            writer=Engine.SPARK,
            operations=frozenset({"MERGE"}),
            keys=(*self.destination.keys, "pass_id", "after", "table_id"),
        )

    def owned(self) -> Rows:
        """Return the keys of the rows that the sync has written last, and not deleted since."""
        keys, quoted = self._keys, self.tables.sql.identifier
        latest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {quoted('after')} DESC, deleted) AS place"
        return self.tables.query(
            f"SELECT {keys} FROM (SELECT *, {latest} FROM {{stored}} "
            f"WHERE pass_id IN ({self._listed(['', *self._passes()[0]])}) AND NOT {self._of_another}) "
            "WHERE place = 1 AND NOT deleted",
            stored=self.tables.rows_now(self.table),
        )

    def intend(self, changes: Rows, record: ComputedInputs) -> None:
        """Write what a pass is about to do, before it does.

        Args:
            changes: By keys, see `destination_changes`.
            record: Of its commit.

        Raises:
            As `SyncTables.update`.
        """
        self.tables.ensure_table(self.table)
        sql = self.tables.sql
        given = {
            **{key: sql.identifier(f"ratify_key_{key}") for key in self.destination.keys},
            "pass_id": sql.literal(record.id),
            "after": str(record.after),
            "deleted": "NOT ratify_present",
            "table_id": sql.literal(self.table_id),
        }
        listed = change_columns(self.table.keys, given, sql)
        text = f"SELECT {listed}, true AS ratify_present, false AS ratify_found FROM {{made}}"
        self.tables.update(self.table, text, made=changes)

    def settle(self, record: ComputedInputs) -> None:
        """Remember what passes have done, after the one of this record has, and forget what earlier ones have not.

        What was done to a table that is not there any more is forgotten, too.

        Raises:
            As `SyncTables.update`.
        """
        done, undone = self._passes()
        sql, after = self.tables.sql, self.tables.sql.identifier("after")
        state = (
            f"CASE WHEN {self._of_another} THEN 'other' WHEN pass_id IN ({self._listed(['', *done])}) THEN 'done' "
            f"WHEN pass_id IN ({self._listed(['none', *undone])}) AND {after} <= {record.after} THEN 'undone' END"
        )
        # Of each key what was done last.
        latest = f"row_number() OVER (PARTITION BY {self._keys}, ratify_state ORDER BY {after} DESC) AS ratify_place"
        placed = f"(SELECT *, {latest} FROM (SELECT *, {state} AS ratify_state FROM {{stored}}))"
        as_it_was = {name: sql.identifier(name) for name in self.table.column_names}
        old, new = (change_columns(self.table.keys, values, sql) for values in (as_it_was, as_it_was | {"pass_id": "''"}))
        remembered = "ratify_state = 'done' AND ratify_place = 1 AND NOT deleted"
        self.tables.update(
            self.table,
            f"SELECT {old}, false AS ratify_present, true AS ratify_found FROM {placed} "
            f"WHERE ratify_state IS NOT NULL AND NOT ({remembered} AND pass_id = '') "
            f"UNION ALL SELECT {new}, true, false FROM {placed} WHERE {remembered} AND pass_id <> ''",
        )

    @property
    def _keys(self) -> str:
        return self.tables.sql.listed(self.destination.keys)

    def _listed(self, texts: Iterable[str]) -> str:
        return ", ".join(map(self.tables.sql.literal, texts))

    @property
    def _of_another(self) -> str:
        """The condition that a row is about another table of the destination's name."""
        return f"table_id <> {self.tables.sql.literal(self.table_id)}"

    def _passes(self) -> tuple[list[str], list[str]]:
        """Ids of the passes of which it is to be found out whether they did what they were about to: did, and did not."""
        after = self.tables.sql.identifier("after")
        text = (
            f"SELECT pass_id, min({after}) AS oldest FROM {{stored}} "
            f"WHERE pass_id <> '' AND NOT {self._of_another} GROUP BY pass_id"
        )
        rows = self.tables.rows(self.tables.query(text, stored=self.tables.rows_now(self.table)))
        waiting = {row["pass_id"]: row["oldest"] for row in rows}
        if not waiting:
            return [], []
        done = self.tables.position.records_after(min(waiting.values()))
        return [each for each in waiting if each in done], [each for each in waiting if each not in done]
