"""Conditions that all of some keys fulfil, as Spark evaluates them: none of the keys may be left out."""

import random
from typing import Any

import pytest

from ratify_lakehouse.engines.spark.key_ranges import MOST_HASHES, KeyRanges
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack

VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "int": ["-7", "0", "2147483647"],
    "bigint": ["-9223372036854775808", "12"],
    "date": ["DATE '0001-01-01'", "DATE '2013-03-10'", "DATE '9999-12-31'"],
    "timestamp": ["TIMESTAMP '2013-03-10 02:30:00.000001'", "TIMESTAMP '1950-01-01 00:00:00+09:00'"],
    "string": ["''", "'it''s'", r"'a\\b{}'", "'{rows}'", "'Ä'", "'null'"],
    "decimal(10,2)": ["CAST(1.10 AS DECIMAL(10, 2))", "CAST(-99999999.99 AS DECIMAL(10, 2))"],
    "double": ["CAST('NaN' AS DOUBLE)", "0.1D"],
    "binary": ["X'00'", "X'FF'"],
}


def known_of(lake: Lakehouse, types: dict[str, str], rows: str, view: str) -> KeyRanges:
    lake.spark.sql(rows).createOrReplaceTempView(view)
    return KeyRanges.of(lake.run(KeyRanges.query(types, view))[0], types)


def selected(lake: Lakehouse, ranges: KeyRanges, view: str) -> int:
    """Count the rows of a view within the ranges; those among the hashes, too, are as many or fewer."""
    counts = f"count_if({ranges.within('r')}) AS within, count_if({ranges.among('r')}) AS among"
    (counted,) = lake.run(f"SELECT {counts} FROM {view} AS r")
    assert counted["among"] <= counted["within"]
    return counted["within"]


def among(lake: Lakehouse, ranges: KeyRanges, view: str) -> int:
    counted: list[dict[str, Any]] = lake.run(f"SELECT count(*) AS n FROM {view} AS r WHERE {ranges.among('r')}")
    return counted[0]["n"]


@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("nulls", [False, True])
def test_every_type(lake: Lakehouse, type_: str, nulls: bool) -> None:
    values = [*VALUES[type_], *(["NULL"] if nulls else [])]
    rows = " UNION ALL ".join(f"SELECT CAST({value} AS {type_}) AS k" for value in values)
    ranges = known_of(lake, {"k": type_}, rows, "ranges_of_type")
    assert ranges.number == len(values)
    assert selected(lake, ranges, "ranges_of_type") == among(lake, ranges, "ranges_of_type") == len(values)
    assert bool(ranges.conditions) == (type_ not in {"double", "binary"})


def test_other_keys_are_left_out(lake: Lakehouse) -> None:
    types = {"day": "date", "id": "bigint"}
    few = "SELECT DATE '2020-01-02' AS day, CAST(id * 10 AS BIGINT) AS id FROM range(5)"
    ranges = known_of(lake, types, few, "few_keys")
    assert ranges.within("r").count(" IN (") == 2
    every = "SELECT date_add(DATE '2020-01-01', CAST(id % 3 AS INT)) AS day, id FROM range(2000)"
    lake.spark.sql(every).createOrReplaceTempView("every_key")
    assert selected(lake, ranges, "every_key") == 2, "that day's rows with one of these ids: 10 and 40"
    assert among(lake, ranges, "every_key") == 2
    ranges = known_of(lake, types, "SELECT DATE '2020-01-02' AS day, id FROM range(100, 1600)", "many_keys")
    assert ranges.within("r").count(" BETWEEN ") == 2, "of many rows the values are not listed"
    assert selected(lake, ranges, "every_key") == 500
    every_third = "SELECT id * 3 AS id FROM range(500)"
    ranges = known_of(lake, {"id": "bigint"}, every_third, "every_third")
    assert selected(lake, ranges, "every_key") == 1498
    assert 500 <= among(lake, ranges, "every_key") < 600, "nearly every other key is left out"


def test_very_many_keys_have_ranges_alone(lake: Lakehouse) -> None:
    for number, listed in ((MOST_HASHES, True), (MOST_HASHES + 1, False)):
        ranges = known_of(lake, {"id": "bigint"}, f"SELECT id FROM range({number})", "very_many")
        assert (ranges.number, bool(ranges.hashes)) == (number, listed)
        assert among(lake, ranges, "very_many") == number


@pytest.mark.parametrize("number", [1, 60, 2000])
def test_a_key_that_is_no_utf8_has_no_condition(lake: Lakehouse, number: int) -> None:
    """Its bytes cannot be written as a literal, nor be read by the client."""
    rows = f"SELECT if(id = 0, CAST(X'FF61' AS STRING), CAST(id AS STRING)) AS k, id % 3 AS n FROM range({number})"
    ranges = known_of(lake, {"k": "string", "n": "bigint"}, rows, "keys_of_bytes")
    assert ranges.number == number
    assert selected(lake, ranges, "keys_of_bytes") == number
    assert len(ranges.conditions) == 1, "the other column has its own"


def test_no_keys(lake: Lakehouse) -> None:
    ranges = known_of(lake, {"k": "int"}, "SELECT 1 AS k WHERE false", "no_keys")
    assert (ranges.number, ranges.within("r")) == (0, "(false)")
    ranges = known_of(lake, {"k": "int"}, "SELECT CAST(NULL AS INT) AS k", "null_key")
    assert ranges.within("r") == "(r.`k` IS NULL)"


def test_random_keys(lake: Lakehouse) -> None:
    chance = random.Random(5)  # noqa: S311 keys of rows, not secrets
    for number in (1, 60, 1001, 3000):
        least = chance.randint(-1000, 1000)
        rows = f"SELECT if(id % 97 = 5, NULL, {least} + id * 3) AS a, CAST(id % 45 AS STRING) AS b FROM range({number})"
        ranges = known_of(lake, {"a": "bigint", "b": "string"}, rows, "random_keys")
        assert selected(lake, ranges, "random_keys") == among(lake, ranges, "random_keys") == number
