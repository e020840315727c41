"""The columns that a table gets from a file that nobody has declared."""

import json
import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS, RESCUED, NewColumns, SchemaMode
from ratify_lakehouse.ingest.formats.column_names import snake_case
from ratify_lakehouse.ingest.formats.inferred_columns import infer
from tests.ingest.corpus_case import RESCUING, Case, IngestedFile
from tests.ingest.file_corpus import CASES
from tests.ingest.parsed_file import ParsedCounts, parsed

READABLE = [case for case in CASES if isinstance(case.fate, IngestedFile) and case.content.strip()]


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_what_can_be_read_can_be_made_a_table(con: duckdb.DuckDBPyConnection, tmp_path: Path, case: Case) -> None:
    """The columns that are inferred are ones that a table may have, and every record of the file fits them."""
    (tmp_path / "local").write_bytes(case.content)
    source = replace(case.source, schema=SchemaMode.INFERRED, new_columns=NewColumns.RESCUE, table=EMPTY)
    columns = infer(con, source, case.file, tmp_path / "local")
    table = source.inferred_table(columns)
    assert isinstance(table, TableDeclaration)
    counts = parsed(con, source, table.columns, case.file, tmp_path / "local", tmp_path / "out.parquet")
    assert counts.rows == len(case.fate.rows)
    described = con.execute(f"DESCRIBE FROM '{tmp_path}/out.parquet'").fetchall()
    assert [duckdb.sqltype(row[1]) for row in described] == [duckdb.sqltype(sql_type(c.type).sql) for c in table.columns]
    named = {column.name.lower() for column in columns}
    rows = con.execute(f"SELECT _rescued_data FROM '{tmp_path}/out.parquet' WHERE _rescued_data IS NOT NULL").fetchall()
    rescued = {key.lower() for (text,) in rows for key in json.loads(text)} - {"_file_path"}
    assert not rescued & named


EMPTY = replace(RESCUING.table, columns=(*LOAD_COLUMNS, RESCUED))


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("Order ID", "order_id"),
        ("orderId", "order_id"),
        ("HTTPStatus", "http_status"),
        ("Größe (cm)", "grosse_cm"),
        ("  # of items ", "of_items"),
        ("2nd price", "_2nd_price"),
        ("_id", "_id"),
        ("_ID", "_id"),
        ("a__b", "a__b"),
        ("Betrag %", "betrag"),
        ("名前", ""),
        ("-", ""),
    ],
)
def test_a_column_is_named_in_snake_case(field: str, column: str) -> None:
    assert snake_case(field) == column


def test_columns_are_named_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    fields, columns = (
        re.findall(r"`([^`]+)`", line) for line in re.findall(r"^\| (?:in the file|column) \|.*", page, re.MULTILINE)
    )
    assert dict(zip(fields, map(snake_case, fields), strict=True)) == dict(zip(fields, columns, strict=True))
    assert {"Größe (cm)", "Straße"} <= {*fields}


def test_names_of_an_inferred_table(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Neither a name with a space nor one in another script disappears without a word."""
    inferred = replace(RESCUING, table=EMPTY, schema=SchemaMode.INFERRED, rename={"顧客": "customer"})
    (tmp_path / "f").write_text("Order ID,Betrag (EUR),顧客\n7,1.5,a\n")
    columns = infer(con, inferred, "f.csv", tmp_path / "f")
    assert columns == (Column("order_id", "bigint"), Column("betrag_eur", "double"), Column("customer", "string"))
    table = inferred.inferred_table(columns)
    parsed(con, inferred, table.columns, "f.csv", tmp_path / "f", tmp_path / "out.parquet")
    assert con.execute(f"SELECT * EXCLUDE (_loaded_at) FROM '{tmp_path}/out.parquet'").fetchall()[0][:3] == (7, 1.5, "a")
    refusing = replace(inferred, rename={}, new_columns=NewColumns.FAIL, table=replace(EMPTY, columns=LOAD_COLUMNS))
    with pytest.raises(BadFile, match="no column can be named after '顧客'"):
        infer(con, refusing, "f.csv", tmp_path / "f")


def test_what_a_number_would_change_is_inferred_as_text(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    columns = {
        "id": ("90210", "4919", "bigint"),
        "zip": ("02134", "10001", "string"),
        "phone": ("+4919", "4918", "string"),
        "exact": ("9007199254740993", "1.5", "string"),
        "amount": ("12345678901234567.89", "0.10", "string"),
        "small": ("1e-400", "1", "string"),
        "article": ("1E5", "2E7", "string"),
        "measured": ("1.000000000000000056e-01", "1e-05", "double"),
        "price": ("0.10", "1.50", "double"),
    }
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(line) for line in (columns, next(rows), next(rows))]
    (tmp_path / "f").write_text("".join(f"{line}\n" for line in lines))
    found = infer(con, replace(RESCUING, table=EMPTY), "f.csv", tmp_path / "f")
    assert {column.name: column.type for column in found} == {name: wanted for name, (*_, wanted) in columns.items()}


def test_only_a_sample_is_read_to_infer(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("n,never\n" + "1,\n" * 30_000 + "x,\n")
    source = replace(RESCUING, table=EMPTY)
    assert infer(con, source, "f.csv", tmp_path / "f") == (Column("n", "bigint"), Column("never", "string"))
    # What the sample did not show is rescued.
    columns = source.inferred_table(infer(con, source, "f.csv", tmp_path / "f")).columns
    assert parsed(con, source, columns, "f.csv", tmp_path / "f", tmp_path / "out.parquet") == ParsedCounts(30_001, 1)


def test_inferred_columns_stand_as_in_the_file(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for second in ("b", "B"):
        (tmp_path / "f").write_text('{"z": 1, "b": "x", "a": [2]}\n{"' + second + '": "y", "c": {"k": true}}\n')
        assert infer(con, RESCUING, "f.jsonl", tmp_path / "f") == (
            Column("z", "bigint"),
            Column("b", "string"),
            Column("a", "array<bigint>"),
            Column("c", "struct<k:boolean>"),
        )


@pytest.mark.parametrize("content", [b"two words,_batch_id\n1,2\n", b"n,N\n1,2\n", b""])
def test_no_columns_can_be_inferred(con: duckdb.DuckDBPyConnection, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(BadFile, match=r"use letters, digits|rename one|zero bytes"):
        infer(con, RESCUING, "f.csv", tmp_path / "f")
