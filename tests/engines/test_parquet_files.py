"""Statistics of Parquet files at the ends of the types, and what is refused."""

import json
import math
from collections.abc import Generator
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection, connect

from ratify_lakehouse.engines.duckdb.parquet_files import write_parquet
from ratify_lakehouse.errors import AppendFailed


@pytest.fixture
def con() -> Generator[DuckDBPyConnection]:
    with connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


@pytest.mark.parametrize(
    ("least", "most", "bounds"),
    [
        # A year has four digits, or Spark keeps no bound of it.
        (
            "TIMESTAMPTZ '0001-01-01 00:00:00Z'",
            "TIMESTAMPTZ '9999-12-31 23:59:59.999999Z'",
            ("0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"),
        ),
        (
            "TIMESTAMPTZ '0999-12-31 23:59:59.000001Z'",
            "TIMESTAMPTZ '1969-12-31 23:59:59.999999Z'",
            ("0999-12-31T23:59:59.000001Z", "1969-12-31T23:59:59.999999Z"),
        ),
        ("DATE '0001-01-01'", "DATE '9999-12-31'", ("0001-01-01", "9999-12-31")),
        ("DATE '0044-03-15 (BC)'", "DATE '12345-01-01'", None),
        ("'-inf'::DOUBLE", "0", None),
        ("1::DOUBLE", "'nan'::DOUBLE", None),
        ("1::DOUBLE", "2::DOUBLE", (1.0, 2.0)),
        ("''", "chr(1048575)", ("", chr(1048575))),
        # From here on DuckDB, as it reads, takes the escapes in the log for other characters, and skips the file.
        ("''", "'a' || chr(1048576)", None),
        ("''", "repeat('z', 33)", None),
        ("'infinity'", "'x'", ("infinity", "x")),
    ],
)
def test_bounds(con: DuckDBPyConnection, tmp_path: Path, least: str, most: str, bounds: tuple[str, str] | None) -> None:
    stats = write_parquet(con, f"SELECT {least} AS c UNION ALL SELECT {most}", tmp_path / "f.parquet").stats
    assert (stats["minValues"], stats["maxValues"]) == (({"c": bounds[0]}, {"c": bounds[1]}) if bounds else ({}, {}))


@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_both_zeros_are_within_the_bounds_of_either(con: DuckDBPyConnection, tmp_path: Path, zero: str, type_: str) -> None:
    stats = write_parquet(con, f"SELECT {zero}::{type_} AS c, 0 AS i", tmp_path / "f.parquet").stats
    bounds = json.loads(json.dumps([stats["minValues"], stats["maxValues"]]))
    assert [math.copysign(1, bound["c"]) for bound in bounds] == [-1, 1]
    assert [bound["i"] for bound in bounds] == [0, 0]


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ("DATE 'infinity'", "c"),
        ("TIMESTAMPTZ '-infinity'", "c"),
        ("[DATE 'infinity', NULL, DATE '2013-01-01']", "c, list, element"),
        ("{'a': {'b': TIMESTAMPTZ 'infinity'}}", "c, a, b"),
        ("MAP {'x': TIMESTAMPTZ '-infinity'}", "c, key_value, value"),
    ],
)
def test_infinite_dates_are_refused(con: DuckDBPyConnection, tmp_path: Path, value: str, column: str) -> None:
    with pytest.raises(AppendFailed, match=f"Column {column}: an infinite date"):
        write_parquet(con, f"SELECT {value} AS c", tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == []
