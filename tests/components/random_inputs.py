"""Input tables of random rows, and the random commits that change them."""

import random
from collections.abc import Mapping, Sequence

from ratify_lakehouse.sql.spark_sql import literal
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "a": {
        "id": "int",
        "k": "int",
        "v": "int",
        "s": "str",
        "m": "dec",
        "day": "day",
        "at": "at",
        "f": "float",
        "tags": "array",
        "st": "struct",
    },
    "b": {"k": "int", "w": "int", "s": "str"},
    "d": {"k": "int", "label": "str", "rate": "dec"},
    "e": {"id": "int", "k": "int", "at": "at", "v": "int"},
}
"""The inputs: kinds of their columns, by name."""

UNIQUE: Mapping[str, tuple[str, ...]] = {"a": ("id",), "d": ("k",), "e": ("id",)}
"""The columns that identify a row of an input; those of `b` are not identified."""

_TYPES = {
    "int": "INT",
    "str": "STRING",
    "dec": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "float": "DOUBLE",
    "array": "ARRAY<STRING>",
    "struct": "STRUCT<x: INT, y: STRING>",
}
_WORDS = ("a", "ab", "A", "", " ", "it's", "{a}", "{}", "a{", "x\\y", '"', "%", "Ä", "😀", "two\nlines", "NULL", "$1")
_FEED = "delta.enableChangeDataFeed"


class RandomInputs:
    """The inputs in a schema."""

    def __init__(self, lake: Lakehouse | Sparkless, schema: str, chance: random.Random, names: Sequence[str]) -> None:
        self._lake, self.schema, self._chance, self._names = lake, schema, chance, names
        self.log = list[str]()
        """The statements that made the inputs what they are."""
        self.recreated = set[str]()
        """Those that were dropped and created again."""
        self._added = 0
        for name in names:
            self._create(name)
            self.run(self._insert(name, chance.randint(0, 8)))

    def full_name(self, name: str) -> str:
        """Return the name of an input, with the catalog's."""
        return f"ratify.{self.schema}.{name}"

    def change(self) -> None:
        """Make one random commit to one of the inputs."""
        name = self._chance.choice(self._names)
        kinds = {
            self._inserted: 6,
            self._updated: 6,
            self._deleted: 4,
            self._merged: 3,
            self._restored: 2,
            self._overwritten: 1,
            self._emptied: 1,
            self._widened: 1,
            self._feed_switched: 1,
            self._dropped: 1,
        }
        (made,) = self._chance.choices(list(kinds), list(kinds.values()))
        made(name)

    def run(self, statement: str) -> None:
        """Run a statement that changes them."""
        self.log.append(statement)
        # Spark updates and deletes rows in ways of its own.
        (self._lake.quick if statement.startswith(("CREATE", "INSERT INTO")) else self._lake.run)(statement)

    def _table(self, name: str) -> str:
        return f"{self.schema}.{name}"

    def _create(self, name: str) -> None:
        columns = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in COLUMNS[name].items())
        feed = str(self._chance.random() < 0.6).lower()
        properties = f"'delta.columnMapping.mode' = 'none', '{_FEED}' = '{feed}'"
        self.run(f"CREATE TABLE {self._table(name)} ({columns}) USING DELTA TBLPROPERTIES ({properties})")

    def _value(self, kind: str) -> str:
        if self._chance.random() < 0.12:
            return f"CAST(NULL AS {_TYPES[kind]})"
        number, word = self._chance.randint(-2, 4), literal(self._chance.choice(_WORDS))
        words = ", ".join(literal(self._chance.choice(_WORDS)) for _ in range(abs(number) or 1))
        values = {
            "int": str(number),
            "str": word,
            "dec": f"CAST({number}.25 AS DECIMAL(10,2))",
            "day": f"DATE '2026-0{self._chance.randint(1, 3)}-1{abs(number)}'",
            "at": f"TIMESTAMP '2026-03-29 0{abs(number)}:{self._chance.choice(('00', '30'))}:00.123456'",
            "float": self._chance.choice((f"{number}.25D", "-0.0D", "0.0D")),
            "array": f"array({words})",
            "struct": f"named_struct('x', {number}, 'y', {word})",
        }
        return values[kind]

    def _row(self, name: str, identity: int | None = None) -> str:
        values = [self._value(kind) for kind in COLUMNS[name].values()]
        if identity is not None:
            values[0] = str(identity)
        return f"({', '.join(values)})"

    def _identities(self, name: str, number: int) -> Sequence[int | None]:
        if name not in UNIQUE:
            return [None] * number
        return self._chance.sample(range(-1, 6) if name == "d" else range(1, 16), number if name != "d" else min(number, 6))

    def _insert(self, name: str, number: int) -> str:
        rows = ", ".join(self._row(name, identity) for identity in self._identities(name, max(number, 1)))
        columns = ", ".join(COLUMNS[name])
        where = (
            f"WHERE {UNIQUE[name][0]} NOT IN (SELECT {UNIQUE[name][0]} FROM {self._table(name)})" if name in UNIQUE else ""
        )
        return f"INSERT INTO {self._table(name)} ({columns}) SELECT * FROM VALUES {rows} AS t({columns}) {where}"

    def _inserted(self, name: str) -> None:
        self.run(self._insert(name, self._chance.randint(1, 3)))

    def _some(self, name: str) -> str:
        """A condition on some of the rows."""
        first = next(iter(COLUMNS[name]))
        return self._chance.choice(
            (f"{first} % 4 = {self._chance.randint(0, 3)}", f"{first} = {self._chance.randint(1, 12)}")
        )

    def _updated(self, name: str) -> None:
        changeable = [each for each in COLUMNS[name].items() if each[0] not in UNIQUE.get(name, ())]
        chosen = self._chance.sample(changeable, self._chance.randint(1, 2))
        values = ", ".join(f"{column} = {self._value(kind)}" for column, kind in chosen)
        self.run(f"UPDATE {self._table(name)} SET {values} WHERE {self._some(name)}")

    def _deleted(self, name: str) -> None:
        self.run(f"DELETE FROM {self._table(name)} WHERE {self._some(name)}")

    def _merged(self, name: str) -> None:
        if name not in UNIQUE:
            return self._inserted(name)
        columns, (key,) = ", ".join(COLUMNS[name]), UNIQUE[name]
        rows = ", ".join(self._row(name, identity) for identity in self._identities(name, 2))
        update = ", ".join(f"{column} = s.{column}" for column in COLUMNS[name])
        inserted = ", ".join(f"s.{column}" for column in COLUMNS[name])
        return self.run(
            f"MERGE INTO {self._table(name)} AS t USING (SELECT * FROM VALUES {rows} AS s({columns})) AS s "
            f"ON t.{key} = s.{key} "
            f"WHEN MATCHED AND s.{key} % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {update} "
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({inserted})"
        )

    def _restored(self, name: str) -> None:
        version = self._chance.randint(0, self._lake.catalog.version(self.full_name(name)))
        self.run(f"RESTORE TABLE {self._table(name)} TO VERSION AS OF {version}")

    def _overwritten(self, name: str) -> None:
        self.run(f"INSERT OVERWRITE {self._table(name)} SELECT * FROM {self._table(name)} WHERE NOT ({self._some(name)})")

    def _emptied(self, name: str) -> None:
        self.run(f"TRUNCATE TABLE {self._table(name)}")

    def _widened(self, name: str) -> None:
        self._added += 1
        self.run(f"ALTER TABLE {self._table(name)} ADD COLUMNS (more_{self._added} STRING)")

    def _feed_switched(self, name: str) -> None:
        feed = self._chance.choice(("true", "false"))
        self.run(f"ALTER TABLE {self._table(name)} SET TBLPROPERTIES ('{_FEED}' = '{feed}')")

    def _dropped(self, name: str) -> None:
        if self._chance.random() < 0.6:
            return self._inserted(name)
        self.run(f"DROP TABLE {self._table(name)}")
        self._create(name)
        self.recreated.add(name)
        return self.run(self._insert(name, 3))
