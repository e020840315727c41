"""A text fits a type of numbers if what the type gives back is the same value: as a plain model says, of random texts."""

import random
import re
import struct
from decimal import Decimal

import duckdb
import pytest

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.ingest.formats.fitting_values import from_text

_RANGES = {"tinyint": 7, "int": 31, "bigint": 63}


def single(text: str) -> float:
    """Return the number as a float of 32 bits has it, or an infinite one."""
    try:
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    except OverflowError:
        return float("inf")


def fits(text: str, type_text: str) -> bool:
    text = text.strip()
    whole = re.split(r"[.eE]", text.removeprefix("-"))[0]
    if text[0] == "+" or (len(whole) > 1 and whole[0] == "0"):
        return False
    value = Decimal(text)
    if type_text in _RANGES:
        limit = 2 ** _RANGES[type_text]
        return text.removeprefix("-").isdigit() and -limit <= value < limit
    if type_text == "decimal(10,2)":
        return "e" not in text.lower() and value == value.quantize(Decimal("0.01")) and abs(value) < 10**8
    number = single(text) if type_text == "float" else float(text)
    digits = len("".join(map(str, value.as_tuple().digits)).strip("0")) or 1
    return abs(number) != float("inf") and Decimal(f"{number:.{digits - 1}e}") == value


def random_text(rng: random.Random) -> str:
    """Return a number as programs and people write it: of any length, sign and exponent, near the types' limits."""
    near = rng.choice([0, 1, 99, 127, 128, 2**24, 2**31, 2**53, 2**63, 10**8, rng.randrange(10 ** rng.randint(1, 25))])
    text = rng.choice(["", "", "", "-", "+", "0", "00", " "]) + str(abs(near + rng.randint(-2, 2)))
    if rng.random() < 0.5:
        text += "." + "".join(rng.choices("0123456789", k=rng.choice([0, 1, 2, 3, 6, 12, 17, 25])))
    if rng.random() < 0.2:
        text += rng.choice("eE") + rng.choice(["", "+", "-"]) + str(rng.choice([0, 1, 5, 30, 37, 45, 305, 320, 340, 400]))
    return text


@pytest.mark.parametrize("type_text", [*_RANGES, "decimal(10,2)", "float", "double"])
def test_a_text_fits_if_the_same_value_comes_back(con: duckdb.DuckDBPyConnection, type_text: str) -> None:
    rng = random.Random(type_text)  # noqa: S311 texts, not keys
    texts = [random_text(rng) for _ in range(4_000)]
    sql = from_text("each", sql_type(type_text))
    found = con.execute(f"SELECT each, {sql} IS NOT NULL FROM (SELECT unnest(?) AS each)", [texts]).fetchall()
    assert [each for each in found if each[1] != fits(each[0], type_text)] == []
    assert 200 < sum(fitting for _, fitting in found) < 3_800


def test_digits_that_no_type_has_cost_nothing(con: duckdb.DuckDBPyConnection) -> None:
    sql = from_text("each", sql_type("double"))
    texts = ["0." + "1" * 2_000_000, "1" + "0" * 300, "0" * 100 + "1"]
    found = con.execute(f"SELECT {sql} FROM (SELECT unnest(?) AS each)", [texts]).fetchall()
    assert found == [(None,), (1e300,), (None,)]
