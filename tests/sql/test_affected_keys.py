"""The keys that changes affect are all whose rows differ: random queries over random changes, computed by DuckDB."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratify_lakehouse.sql.affected_keys import keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable
from ratify_lakehouse.sql.table_query import TableQuery

COLUMNS = {"a": ("id", "k", "v"), "b": ("k", "w"), "c": ("w", "u")}
_SHARED_NAMES = ("id", "k", "v", "w", "u", "a", "b", "c", "bronze", "key", "value")
Rows = list[tuple[int | None, ...]]


class QueryMaker:
    """Makes random queries over the tables: each gives `key` and `value`."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 queries, not keys
        self.names = 0
        # A name may also be that of a column, or of a table that the query reads.
        self.shared = self.chance.sample(_SHARED_NAMES, len(_SHARED_NAMES)) if self.chance.random() < 0.5 else []

    def name(self, near: Sequence[str] = ()) -> str:
        """A new name, in some queries that of a column, most often of one that is `near`."""
        if self.shared and self.chance.random() < 0.7:
            name = next((name for name in self.shared if name in near), self.shared[0])
            self.shared.remove(name)
            return name
        self.names += 1
        return f"t{self.names}"

    def table(self) -> tuple[str, Sequence[str]]:
        name = self.chance.choice(list(COLUMNS))
        return f"bronze.{name}", COLUMNS[name]

    def relation(self, depth: int) -> tuple[str, Sequence[str]]:
        """A table, or a query in brackets."""
        if depth <= 0 or self.chance.random() < 0.4:
            return self.table()
        return f"({self.query(depth - 1)})", ("key", "value")

    def joined(self, depth: int) -> tuple[str, list[str], list[str]]:
        """A FROM, the columns of its first relation, and all of them."""
        text, names = self.relation(depth)
        alias = self.name()
        first = [f"{alias}.{name}" for name in names]
        columns, clause = list(first), f"{text} AS {alias}"
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            text, names = self.relation(depth - 1)
            alias = self.name([each.partition(".")[2] for each in columns])
            kind = self.chance.choice((*["JOIN"] * 3, *["LEFT JOIN"] * 4, "SEMI JOIN", "ANTI JOIN", "FULL JOIN"))
            others = [f"{alias}.{name}" for name in names]
            same = self.chance.choice(("=", "=", "=", "IS NOT DISTINCT FROM", "<"))
            on = f"{self.chance.choice(columns)} {same} {self.chance.choice(others)}"
            if self.chance.random() < 0.2:
                on += f" AND {self.chance.choice(others)} > {self.chance.randint(0, 2)}"
            clause += f" {kind} {text} AS {alias} ON {on}"
            if kind not in ("SEMI JOIN", "ANTI JOIN"):
                columns += others
        return clause, first, columns

    def query(self, depth: int) -> str:
        clause, first, columns = self.joined(depth)
        key = self.chance.choice(first if self.chance.random() < 0.8 else columns)
        if self.chance.random() < 0.3:
            key = f"{key} % 2"
        value, by = self.chance.choice(columns), self.chance.choice(first)
        where = ""
        if self.chance.random() < 0.4:
            test = self.chance.choice(("> 1", "IS NULL", "IS NOT NULL", "= 2"))
            where = f" WHERE {self.chance.choice(columns)} {test}"
        if self.chance.random() < 0.15:
            where += f"{' AND' if where else ' WHERE'} {self.chance.choice(columns)} < 3"
        match self.chance.choice(("rows", "rows", "group", "group", "group", "distinct", "window", "set", "with")):
            case "rows":
                return f"SELECT {key} AS key, {value} AS value FROM {clause}{where}"
            case "group":
                aggregate = self.chance.choice(
                    ("count(*)", "sum({0})", "min({0})", "median({0})", "count(DISTINCT {0})", "max({0}) - min({0})")
                ).format(value)
                having = self.chance.choice(("", "", " HAVING count(*) > 1"))
                by = self.chance.choice((key, f"{key}, {by}", "ALL"))
                return f"SELECT {key} AS key, {aggregate} AS value FROM {clause}{where} GROUP BY {by}{having}"
            case "distinct":
                return f"SELECT DISTINCT {key} AS key, {value} AS value FROM {clause}{where}"
            case "window":
                order = ", ".join(dict.fromkeys((value, *columns)))
                function = self.chance.choice(("row_number()", f"sum({value})", f"lag({value})", f"max({value})"))
                over = f"PARTITION BY {self.chance.choice((by, key))} ORDER BY {order}"
                return f"SELECT {key} AS key, {function} OVER ({over}) AS value FROM {clause}{where}"
            case "set":
                combined = self.chance.choice(("UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
                other, _, columns = self.joined(depth - 1)
                return (
                    f"SELECT {key} AS key, {value} AS value FROM {clause}{where} {combined} "
                    f"SELECT {self.chance.choice(columns)}, {self.chance.choice(columns)} FROM {other}"
                )
            case _:
                name, alias = self.name(), self.name()
                inner = self.query(depth - 1)
                return (
                    f"WITH {name} AS ({inner}) SELECT {first[0]} AS key, count({alias}.value) AS value FROM {clause} "
                    f"LEFT JOIN {name} AS {alias} ON {first[0]} = {alias}.key{where} GROUP BY {first[0]}"
                )


values = st.one_of(st.none(), st.integers(0, 3))


def rows_of(table: str) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(*[values for _ in COLUMNS[table]]), max_size=6)


@st.composite
def states(draw: st.DrawFn) -> dict[str, tuple[Rows, Rows]]:
    """Each table before and after: some rows stay, some go, some come."""
    found = dict[str, tuple[Rows, Rows]]()
    for table in COLUMNS:
        before = draw(rows_of(table))
        changed = draw(st.booleans())
        kept = [row for row in before if draw(st.integers(0, 3))] if changed else before
        found[table] = before, kept + (draw(rows_of(table))[:2] if changed else [])
    return found


derived: Counter[bool] = Counter()


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One for all cases, each of which replaces the tables that it reads: a new one takes as long as a case."""
    return duckdb.connect(config={"threads": 1})


def check(seed: int, tables: dict[str, tuple[Rows, Rows]]) -> None:
    text = QueryMaker(seed).query(2)
    query = TableQuery.parsed(text, "duckdb", "a query")
    columns = {name: COLUMNS[name.table] for name in query.inputs}
    try:
        queries = keys_queries(query, ["key"], columns)
    except NotDerivable:
        derived[False] += 1
        return
    derived[True] += 1
    con = connection()
    before = outcome(con, text, {table: rows for table, (rows, _) in tables.items()})
    after = outcome(con, text, {table: rows for table, (_, rows) in tables.items()})
    for number, name in enumerate(query.inputs):
        old, new = tables[name.table]
        changed = [*(Counter(old) - Counter(new)).elements(), *(Counter(new) - Counter(old)).elements()]
        fill(con, f"ratify_changed_{number}", COLUMNS[name.table], changed)
        fill(con, f"ratify_every_{number}", COLUMNS[name.table], [*new, *changed])
    affected = {key for each in queries for key, _ in con.execute(each.text).fetchall()}
    differing = {key for key, _ in (before - after) + (after - before)}
    assert differing <= affected, (text, [each.text for each in queries], differing - affected)


def fill(con: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str], rows: Rows) -> None:
    con.execute(f"CREATE OR REPLACE TABLE {name} ({', '.join(f'{column} INT' for column in columns)})")
    if rows:
        values = (", ".join("NULL" if value is None else str(value) for value in row) for row in rows)
        con.execute(f"INSERT INTO {name} VALUES ({'), ('.join(values)})")


def outcome(con: duckdb.DuckDBPyConnection, text: str, tables: dict[str, Rows]) -> Counter[tuple[object, ...]]:
    con.execute("CREATE SCHEMA IF NOT EXISTS bronze")
    for table, rows in tables.items():
        fill(con, f"bronze.{table}", COLUMNS[table], rows)
    return Counter(con.execute(text).fetchall())


_SEMI = "SELECT o.id AS key, o.w AS value FROM bronze.a AS o LEFT {} JOIN {} ON {}.k = o.w"


@pytest.mark.parametrize("kind", ["SEMI", "ANTI"])
@pytest.mark.parametrize(
    ("joined", "name"),
    [("x.b AS v", "v"), ("x.v", "v"), ("(SELECT k FROM x.b) AS v", "v"), ("x.b AS V", "V"), ("x.b AS v", "v.k")],
)
def test_a_joined_table_with_the_name_of_a_column_is_not_taken_for_it(kind: str, joined: str, name: str) -> None:
    """The engine takes v.k for a column of the table, sqlglot for a field of o.v."""
    columns = {"a": ("id", "v", "w"), "b": ("k", "w"), "v": ("k", "w")}

    def derived_from(text: str) -> list[str]:
        query = TableQuery.parsed(text, "databricks", "a query")
        return [each.text for each in keys_queries(query, ["key"], {each: columns[each.table] for each in query.inputs})]

    with pytest.raises(NotDerivable, match="name of a table that it joins, and of a column"):
        derived_from(_SEMI.format(kind, joined, name))
    # Of another name, it is followed; and a field of a structure is one where no table has its column's name.
    assert "`t`.`k` = `o`.`w`" in derived_from(_SEMI.format(kind, "x.b AS t", "t"))[1]
    field = f"SELECT o.id AS key, o.w AS value FROM bronze.a AS o LEFT {kind} JOIN x.b AS t ON t.k = v.k"
    assert "`t`.`k` = `o`.`v`.`k`" in derived_from(field)[1]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9), tables=states())
def test_every_row_that_differs_has_an_affected_key(seed: int, tables: dict[str, tuple[Rows, Rows]]) -> None:
    check(seed, tables)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(seed=st.integers(0, 10**9), tables=states())
def test_every_row_that_differs_has_an_affected_key_at_length(seed: int, tables: dict[str, tuple[Rows, Rows]]) -> None:
    check(seed, tables)
