"""A text fits a type of numbers if what the type gives back is the same value: as a plain model says, of random texts."""

import random
import re
import struct
from decimal import Decimal

import duckdb
import pytest

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.ingest.formats.fitting_values import from_text, plain_number

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


SEPARATORS = [(",", "."), (",", ""), (".", ","), (",", " "), (".", "'"), (",", "\u00a0"), ("|", ".")]


def plain(text: str, decimal: str, thousands: str) -> str | None:
    """The text of a number that is written so, as programs write it; None if it is not written so."""
    mantissa, exponent, power = re.fullmatch("([^eE]*)([eE]?)(.*)", text.strip(" \t\n"), re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    whole, point, fraction = mantissa.partition(decimal)
    sign = whole[:1] if whole[:1] in {"+", "-"} else ""
    first, *groups = whole.removeprefix(sign).split(thousands) if thousands else [whole.removeprefix(sign)]
    if groups and not (0 < len(first) <= 3 and all(len(group) == 3 for group in groups)):
        return None
    digits = "".join([first, *groups])
    if not re.fullmatch("[0-9]*", digits + fraction) or not digits + fraction:
        return None
    return f"{sign}{digits}{'.' * bool(point)}{fraction}{exponent}{power}"


def localized(rng: random.Random, text: str, decimal: str, thousands: str) -> str:
    """A number as people write it, sometimes with groups, and sometimes with a slip."""
    whole, point, rest = text.partition(".")
    if thousands and rng.random() < 0.5 and whole.strip().isdigit():
        whole = f"{int(whole):,}".replace(",", thousands)
    written = f"{whole}{decimal * bool(point)}{rest}"
    if rng.random() < 0.2:
        place = rng.randrange(len(written) + 1)
        written = written[:place] + rng.choice([decimal, thousands, ".", ",", "0"]) + written[place:]
    return written


@pytest.mark.parametrize("type_text", ["bigint", "decimal(10,2)", "double"])
def test_a_number_is_read_by_its_separators_or_not_at_all(con: duckdb.DuckDBPyConnection, type_text: str) -> None:
    """Never as another number: neither what is written by other separators, nor a slip."""
    rng = random.Random(type_text)  # noqa: S311 texts, not keys
    type_ = sql_type(type_text)
    for decimal, thousands in SEPARATORS:
        by = rng.choice(SEPARATORS)
        texts = [localized(rng, random_text(rng), *rng.choice([by, (decimal, thousands)])) for _ in range(1_000)]
        read, same = from_text(plain_number("each", decimal, thousands), type_), from_text("plain", type_)
        given = [[text, plain(text, decimal, thousands)] for text in texts]
        con.execute(
            "CREATE OR REPLACE TEMP TABLE given AS SELECT unnest(?) AS each, unnest(?) AS plain", [*zip(*given, strict=True)]
        )
        found = con.execute(f"SELECT each, plain, {read} AS r, {same} AS s FROM given WHERE r IS DISTINCT FROM s").fetchall()
        assert found == [], (decimal, thousands)
        ((fitting,),) = con.execute(f"SELECT count({read}) FROM given").fetchall()
        assert 100 < fitting < 950


@pytest.mark.parametrize(
    "text", ["1.234,5", "1,234.5", "1.5", "12.34", "1.2345", "1..234", ".234", "1.234.56", "01.234", "1,2,3"]
)
def test_a_number_of_another_country_is_none(con: duckdb.DuckDBPyConnection, text: str) -> None:
    """By the other one of the two declarations, and by that of a plain number."""
    german, english = (from_text(plain_number("each", *by), sql_type("double")) for by in ((",", "."), (".", ",")))
    query = f"SELECT {german}, {english}, {from_text('each', sql_type('double'))} FROM (SELECT ? AS each)"
    (found,) = con.execute(query, [text]).fetchall()
    wanted = {
        "1.234,5": (1234.5, None, None),
        "1,234.5": (None, 1234.5, None),
        "1.5": (None, 1.5, 1.5),
        "12.34": (None, 12.34, 12.34),
    }
    wanted |= {"1.2345": (None, 1.2345, 1.2345), ".234": (None, 0.234, 0.234)}
    assert found == wanted.get(text, (None, None, None))
