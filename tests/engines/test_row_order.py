"""The order of the rows of a rewritten file: none is lost, and readers skip what they do not ask for."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ratify_lakehouse.engines.duckdb.row_order import RowOrder
from ratify_lakehouse.sql.duckdb_sql import identifier
from tests.process_duckdb import cursor

ROWS = 20_480
"""Of ten row groups."""
GROUPS = 10


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with cursor() as con:
        yield con


def read_groups(con: duckdb.DuckDBPyConnection, file: Path, column: str, value: int) -> int:
    """How many row groups a reader cannot skip that asks for one value of a column."""
    between = f"{value} BETWEEN CAST(stats_min_value AS BIGINT) AND CAST(stats_max_value AS BIGINT)"
    row = con.execute(
        f"SELECT count_if({between}) FROM parquet_metadata('{file}') WHERE path_in_schema = '{column}'"
    ).fetchone()
    assert row
    return int(row[0])


def test_along_a_curve_values_of_each_column_are_found(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    con.execute(f"CREATE TEMP TABLE t AS SELECT hash(i) % 1000 AS a, hash(i, 1) % 1000 AS b FROM range({ROWS}) r(i)")
    read = dict[tuple[bool, str], float]()
    for z_order in (False, True):
        order = RowOrder(("a", "b"), z_order)
        con.execute(f"COPY ({order.ordered('SELECT * FROM t')}) TO '{tmp_path / 'f.parquet'}' (ROW_GROUP_SIZE 2048)")
        for column in "ab":
            counts = [read_groups(con, tmp_path / "f.parquet", column, value) for value in range(0, 1000, 50)]
            read[z_order, column] = sum(counts) / len(counts)
    # By the first column alone, a reader of the other column reads everything.
    assert read[False, "a"] < 2
    assert read[False, "b"] > GROUPS * 0.9
    assert read[True, "a"] < GROUPS * 0.6
    assert read[True, "b"] < GROUPS * 0.6


@pytest.mark.parametrize("z_order", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_rows_are_the_same(con: duckdb.DuckDBPyConnection, seed: int, z_order: bool) -> None:
    """Also NULLs, -0.0, equal rows, other types, odd names, no rows, and more columns than one number has 16 bits for."""
    chance = random.Random(seed)  # noqa: S311 rows, not keys
    values = {
        "a b": lambda: chance.choice(["NULL", "1", "-7"]),
        'x"y': lambda: chance.choice(["NULL", "TRUE", "FALSE"]),
        "n": lambda: str(chance.randint(-(2**60), 2**60)),
        "s": lambda: chance.choice(["NULL", "''", "'é'", "'z' || chr(0)"]),
        "d": lambda: chance.choice(["NULL", "DATE '0001-01-01'", "DATE '9999-12-31'"]),
        "f": lambda: chance.choice(["'nan'::DOUBLE", "'inf'::DOUBLE", "-0.0::DOUBLE", "0.0::DOUBLE", "NULL"]),
        "l": lambda: chance.choice(["[1, NULL]", "[]", "NULL"]),
    }
    names = tuple(chance.sample(list(values), k=chance.randint(1, len(values))))
    rows = [", ".join(values[name]() for name in names) for _ in range(chance.randint(1, 30))]
    columns = ", ".join(map(identifier, names))
    query = f"SELECT * FROM (VALUES {', '.join(f'({row})' for row in rows)}) AS t({columns}) LIMIT {chance.choice((0, 30))}"
    given = con.execute(query).fetchall()
    ordered = con.execute(RowOrder(names, z_order).ordered(query))
    assert [column[0] for column in ordered.description] == list(names)
    # By their text, which tells -0.0 from 0.0.
    assert Counter(map(repr, ordered.fetchall())) == Counter(map(repr, given))


def test_without_columns_it_is_the_query_itself() -> None:
    assert RowOrder((), z_order=True).ordered("SELECT 1") == "SELECT 1"
