"""Conditions of Polars on a table: what of them DuckDB gets, and that they mean what they mean in Polars."""

import datetime as dt
import random
from typing import Any

import polars as pl
import pytest

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.engines.duckdb.polars_scan import pushed_condition
from tests.components.sparkless import Sparkless
from tests.engines.opened_tables import address, lake, made, new, opened

__all__ = ["address", "lake", "made"]

pytestmark = pytest.mark.server
UTC = dt.UTC

SCHEMA = {
    "i": pl.Int64(), "f": pl.Float64(), "s": pl.String(), "b": pl.Boolean(), "d": pl.Date(), "t": pl.Datetime("us", "UTC"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        (pl.col("i") >= 5, '"i" >= 5'),
        (pl.lit(5) > pl.col("i"), '"i" < 5'),
        ((pl.col("s") == "it's") & (pl.col("i") % 3 == 1) & (pl.col("b") == True), "\"s\" = 'it''s' AND \"b\" = True"),  # noqa: E712
        (pl.col("f") < 1.5, "\"f\" < CAST('1.5' AS DOUBLE)"),
        (pl.col("d") == dt.date(1969, 12, 31), "\"d\" = (DATE '1970-01-01' + -1::INTEGER)"),
        (pl.col("t") > dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), '"t" > make_timestamptz(1000000::BIGINT)'),
        # Polars makes numbers with a fraction of the column's values.
        (pl.col("i") > 1.5, ""),
        (pl.col("f") < float("inf"), ""),
        ((pl.col("i") > 1) | (pl.col("i") < 0), ""),
        (pl.col("i").is_in([1, 2]), ""),
        (pl.col("i").is_null(), ""),
        (pl.col("i") != 1, ""),
        (pl.col("unknown") == 1, ""),
    ],
)
def test_conditions_that_duckdb_gets(condition: pl.Expr, pushed: str) -> None:
    assert pushed_condition(condition, SCHEMA) == pushed


def test_conditions_of_polars_mean_what_they_mean_in_polars(lake: Sparkless) -> None:
    columns = tuple(Column(name, type_) for name, type_ in zip("ifsbdt", TYPES, strict=True))
    table = new(lake, columns=columns)
    chance = random.Random(7)  # noqa: S311
    lake.insert(table, ", ".join(["VALUES (NULL, NULL, NULL, NULL, NULL, NULL)", *(random_row(chance) for _ in range(60))]))
    frame = opened(lake, table).polars()
    rows = frame.collect()
    assert rows.schema == SCHEMA
    for _ in range(60):
        condition = random_condition(chance)
        found = frame.filter(condition).collect()
        assert sorted(map(str, found.rows())) == sorted(map(str, rows.filter(condition).rows())), condition
    assert frame.filter(pl.col("i") > 0).select("s").head(2).collect().height == 2


TYPES = ("bigint", "double", "string", "boolean", "date", "timestamp")


def random_row(chance: random.Random) -> str:
    number = chance.choice(["'nan'", "'-0.0'", "0", "1.5", "'-inf'", str(chance.randrange(-3, 3))])
    text = chance.choice(["NULL", "'a'", "'b'", "'é'"])
    return (
        f"({chance.randrange(-5, 5)}, {number}::DOUBLE, {text}, "
        f"{chance.choice(['true', 'false', 'NULL'])}, DATE '1970-01-01' + {chance.randrange(-3, 3)}, "
        f"make_timestamptz({chance.randrange(-3, 3) * 1_000_001}))"
    )


def random_condition(chance: random.Random) -> pl.Expr:
    name = chance.choice("ifsdti")
    constant: Any = {
        "i": chance.choice([chance.randrange(-5, 5), 0.5]),
        "f": chance.choice([0.0, -0.0, 1.5, float("nan"), float("inf")]),
        "s": chance.choice("abéz"),
        "d": dt.date(1970, 1, 1) + dt.timedelta(days=chance.randrange(-3, 3)),
        "t": dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=chance.randrange(-3, 3) * 1_000_001),
    }[name]
    column = pl.col(name) % 3 if name == "i" and chance.random() < 0.3 else pl.col(name)
    one = chance.choice([column.__lt__, column.__le__, column.__gt__, column.__ge__, column.__eq__, column.__ne__])(constant)
    if chance.random() < 0.5:
        return one
    other = random_condition(chance)
    return one & other if chance.random() < 0.7 else one | other
