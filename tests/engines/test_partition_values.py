"""Values that no partition column can have: the rule in both dialects, and what DuckDB makes of those that it allows."""

import re
from collections.abc import Generator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.syncs.converted_rows import ERRORS, ConvertedColumn, conversion_sql
from ratify_lakehouse.engines.spark.partition_guard import guarded_value, partition_types, refused_value
from ratify_lakehouse.errors import AppendFailed
from ratify_lakehouse.sql.partition_values import HIVE_NULL, IN_DUCKDB, MOST_BYTES, unusable

_NAME = "pä"
_SPECIAL = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\\[\]^{]""")
TEXTS = st.one_of(
    st.text(max_size=5),
    st.text(alphabet="aé%/\n😀", min_size=60, max_size=260),
    st.sampled_from(["", HIVE_NULL, HIVE_NULL.lower(), f" {HIVE_NULL}", " ", "NULL", "infinity"]),
)


@pytest.fixture(scope="module")
def con() -> Generator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def folder(text: str) -> bytes:
    """The name of the folder of a value, as Spark escapes it."""
    return f"{_NAME}={_SPECIAL.sub(lambda found: f'%{ord(found[0]):02X}', text)}".encode()


@given(text=TEXTS)
def test_a_text_is_refused_if_it_is_null_or_has_no_folder(con: duckdb.DuckDBPyConnection, text: str) -> None:
    rule = unusable(IN_DUCKDB, _NAME, "string", "v")
    ((wrong,),) = con.execute(f"SELECT {rule} FROM (SELECT $1::VARCHAR AS v)", [text]).fetchall()
    assert bool(wrong) == (text in ("", HIVE_NULL) or len(folder(text)) > MOST_BYTES)


@pytest.mark.parametrize(
    ("date", "refused"),
    [("0001-01-01", False), ("9999-12-31", False), ("0044-03-15 (BC)", True), ("10000-01-01", True), ("infinity", True)],
)
def test_a_date_is_refused_beyond_four_digits(con: duckdb.DuckDBPyConnection, date: str, refused: bool) -> None:
    rule = unusable(IN_DUCKDB, "d", "date", "v")
    ((wrong,),) = con.execute(f"SELECT {rule} FROM (SELECT $1::DATE AS v)", [date]).fetchall()
    assert bool(wrong) == refused


def test_null_is_a_value_and_other_types_have_no_others(con: duckdb.DuckDBPyConnection) -> None:
    for type_ in ("string", "date"):
        rule = unusable(IN_DUCKDB, "p", type_, "v")
        cast = "VARCHAR" if type_ == "string" else "DATE"
        assert con.execute(f"SELECT {rule} FROM (SELECT NULL::{cast} AS v)").fetchall() == [(None,)]
    assert [unusable(IN_DUCKDB, "p", type_, "v") for type_ in ("bigint", "boolean")] == ["", ""]
    assert guarded_value("c.s.t", "p", "int") == ""


def test_a_sync_says_so_of_each_row(con: duckdb.DuckDBPyConnection) -> None:
    """Of the value as the destination has it, after its cast."""
    columns = [
        ConvertedColumn("id", "int", "id", "int"),
        ConvertedColumn("p", "string", "p", "string", partition=True),
        ConvertedColumn("d", "date", "d", "string", partition=True),
        ConvertedColumn("other", "string", "p", "string"),
    ]
    rows = (
        f"(VALUES (1, 'a', '2013-01-01'), (2, '', NULL), (3, '{HIVE_NULL}', '10000-01-01'), (4, NULL, NULL)) AS v(id, p, d)"
    )
    text = conversion_sql(DUCKDB, columns, ["id"], f"(SELECT * FROM {rows})", "CAST(NULL AS STRING)")
    found = dict(con.execute(f"SELECT id, {ERRORS} FROM ({text})").fetchall())
    assert found == {
        1: [],
        2: ["column p: an empty text, which is NULL in a partition column"],
        3: [
            f"column p: {HIVE_NULL}, which is NULL in a partition column",
            "column d: 10000-01-01, a date that not every engine reads there",
        ],
        4: [],
    }


def test_the_catalog_names_the_partition_columns() -> None:
    fields = [{"name": name, "type": type_} for name, type_ in (("id", "long"), ("p", "string"), ("D", "date"))]
    metadata = {"columns": {"fields": fields}, "partition-columns": ["p", "D"]}
    assert partition_types({"metadata": metadata}) == {"p": "string", "D": "date"}
    assert partition_types({"metadata": {"columns": {"fields": fields}}}) == {}


def test_what_spark_raises_becomes_an_error_of_ours() -> None:
    raised = "[USER_RAISED_EXCEPTION] ratify refuses (c.s.t, column p: an empty text) a value of a partition SQLSTATE: P0001"
    found = refused_value(f"x\n{raised}\nJVM stacktrace")
    assert isinstance(found, AppendFailed)
    assert str(found).startswith("c.s.t, column p: an empty text. Nothing was written.")
    assert refused_value("[DIVIDE_BY_ZERO]") is None
