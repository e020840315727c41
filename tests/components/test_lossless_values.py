"""Values that a sync casts: each is another value, or not, in Spark and in DuckDB alike."""

from collections.abc import Iterable

import duckdb
import pytest

from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK, RuleDialect
from ratify_lakehouse.components.syncs.converted_rows import ERRORS, ConvertedColumn, conversion_sql
from ratify_lakehouse.components.syncs.lossless_values import sql_name
from tests.engines.lakehouse import Lakehouse, engines, lake

__all__ = ["engines", "lake"]

# By the types of the source and of the destination: values that stay, and values that would be others.
CASES = {
    ("string", "int"): (["1", " -7 ", "0"], ["02134", "+4919", "1.5", "x", "2147483648"]),
    ("string", "bigint"): (["9007199254740993"], ["007", "1e3x"]),
    ("string", "decimal(10,2)"): (["1.5", "1.50", "-0.10", ".5", "100"], ["1.005", "01.5", "+1", "x"]),
    ("string", "decimal(38,18)"): (["0.0000000001", "0.000000000000000000", "0"], ["0.0000000000000000001"]),
    ("string", "float"): (["16777216", "0.1", "1e5", "NaN", "-Infinity"], ["16777217", "1e-60", "0.123456789", "1e39"]),
    ("string", "double"): (
        ["0.1", "0.10", "1e300", "-2.5E-3", "9007199254740992", "0.30000000000000004", "NaN", "0"],
        ["12345678901234567.89", "9007199254740993", "1e-400", "1e400", "02134", "+1.5", "x"],
    ),
    ("string", "date"): (["2024-01-31", "2024-01-31 00:00:00"], ["2024-01-31 10:00:00", "2024-01-31T23:59:59", "x"]),
    ("string", "boolean"): (["true", "FALSE"], ["x"]),
    ("bigint", "float"): (["16777216", "0"], ["16777217"]),
    ("double", "float"): (["0.1", "0.5", "NaN"], ["0.123456789", "1e-60"]),
    ("int", "boolean"): (["0", "1"], ["2", "-1"]),
    ("boolean", "int"): (["true", "false"], []),
    ("double", "decimal(10,2)"): (["1.5"], ["1.005"]),
    ("double", "bigint"): (["3.0"], ["2.5"]),
    ("bigint", "double"): (["9007199254740992"], ["9007199254740993"]),
    ("decimal(20,2)", "double"): (["1.25"], ["123456789012345678.91"]),
    ("bigint", "int"): (["5"], ["2147483648"]),
    ("timestamp", "date"): (["2024-01-31 00:00:00"], ["2024-01-31 10:00:00"]),
    ("date", "timestamp"): (["2024-01-31"], []),
    ("bigint", "string"): (["5"], []),
}


def query(sql: RuleDialect, *, cast: bool = False) -> str:
    """Return the query for each case: its number, and what is wrong with its value."""
    parts = list[str]()
    for number, (source_type, type_text, text, _) in enumerate(cases()):
        rows = f"(SELECT CAST({sql.literal(text)} AS {sql_name(sql, source_type)}) AS v)"
        column = ConvertedColumn("c", type_text, "v", source_type, cast=cast)
        converted = conversion_sql(sql, [column], [], rows, "CAST(NULL AS STRING)")
        parts.append(f"SELECT {number} AS number, {sql.size}({ERRORS}) AS errors FROM ({converted})")
    return " UNION ALL ".join(parts)


def cases() -> list[tuple[str, str, str, bool]]:
    return [
        (*types, text, stays)
        for types, both in CASES.items()
        for texts, stays in zip(both, (True, False), strict=True)
        for text in texts
    ]


def wrong(found: Iterable[tuple[int, int]]) -> list[tuple[str, str, str, bool]]:
    """Return the cases of which something else was said."""
    errors = dict(found)
    return [case for number, case in enumerate(cases()) if (errors[number] == 0) != case[-1]]


def test_duckdb_says_which_values_are_others() -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    assert wrong(con.execute(query(DUCKDB)).fetchall()) == []


def test_a_cast_that_is_asked_for_may_lose_digits() -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    refused = [case[2] for case in wrong(con.execute(query(DUCKDB, cast=True)).fetchall())]
    assert {"02134", "1.005", "16777217", "2", "2024-01-31 10:00:00"} <= {*refused}


@pytest.mark.stack
def test_spark_says_which_values_are_others(lake: Lakehouse) -> None:
    assert wrong(lake.spark.session.sql(query(SPARK)).collect()) == []
