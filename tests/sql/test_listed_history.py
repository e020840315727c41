"""The versions that follow from full lists, by DuckDB: those of the model."""

import datetime as dt
import random

import duckdb
import pytest

from ratify_lakehouse.sql.listed_history import current_lists, listed_history
from ratify_lakehouse.sql.row_history import RowHistory
from ratify_lakehouse.sql.transpiled import by_duckdb
from tests.sql.list_model import ListedRow, Lists, some_list, versions

_HISTORY = RowHistory(("k",), "d", ("note",), lists="bronze.a")
_TEXT = by_duckdb(listed_history(_HISTORY, ("k", "value", "note", "d"), "given", "there", "dates", "date"))
_TYPES = "k INT, value INT, note INT, d DATE"


def day(number: int) -> dt.date:
    return dt.date(2024, 1, 1) + dt.timedelta(number)


def computed(con: duckdb.DuckDBPyConnection, lists: Lists) -> list[object]:
    """The versions by the query. A list may have no rows, or none that pass."""
    con.execute(f"CREATE OR REPLACE TABLE there ({_TYPES}, fails BOOLEAN)")
    con.execute("CREATE OR REPLACE TABLE dates (d DATE)")
    con.executemany("INSERT INTO dates VALUES (?)", [[date] for date in lists])
    rows = [[key, row.value, row.note, date, row.fails] for date, rows in lists.items() for key, row in rows.items()]
    if rows:
        con.executemany("INSERT INTO there VALUES (?, ?, ?, ?, ?)", rows)
    con.execute("CREATE OR REPLACE VIEW given AS SELECT * EXCLUDE fails FROM there WHERE NOT fails")
    text = f'SELECT k, value, note, valid_from, valid_to, "current", d FROM ({_TEXT})'
    found = con.execute(text).fetchall()
    assert all(current == (until is None) and since == d for *_, since, until, current, d in found)
    return sorted((row[:5] for row in found), key=str)


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 300), marks=pytest.mark.long)])
def test_versions_are_those_of_the_model(seeds: range) -> None:
    con = duckdb.connect(config={"threads": 1})
    for seed in seeds:
        chance = random.Random(seed)  # noqa: S311 rows, not keys
        lists = {day(number): some_list(chance) for number in chance.sample(range(12), chance.randint(1, 8))}
        for empty in chance.sample(sorted(lists), 1 if chance.random() < 0.3 else 0):
            lists[empty] = {}
        assert computed(con, lists) == versions(lists), seed


def test_a_row_that_is_back_as_it_was_begins_again() -> None:
    row = {1: ListedRow(1, 1)}
    lists: Lists = {day(1): row, day(2): {2: ListedRow(1, 1)}, day(5): row}
    found = computed(duckdb.connect(), lists)
    assert found == versions(lists)
    assert [each for each in found if isinstance(each, tuple) and each[0] == 1] == [
        (1, 1, 1, day(1), day(2)),
        (1, 1, 1, day(5), None),
    ]


def test_the_file_that_landed_last_is_the_list_of_its_date() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE a (d DATE, landed TIMESTAMP, file VARCHAR, k INT)")
    rows = [(1, 2, "b", 1), (1, 2, "b", 2), (1, 3, "a", 3), (2, 5, "a", 4), (2, 5, "c", 5), (None, 9, "z", 6)]
    for number, landed, file, key in rows:
        con.execute("INSERT INTO a VALUES (?, make_timestamp(?), ?, ?)", [number and day(number), landed, file, key])
    found = con.execute(by_duckdb(f"SELECT k FROM ({current_lists('a', 'd', 'landed', 'file')}) ORDER BY k")).fetchall()
    assert found == [(3,), (5,)]
