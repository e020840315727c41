"""A landed file of the corpus and what must become of it, and the sources and contents that many of them share."""

import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import write_table

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.ingest.file_source import APPEND, LOAD_COLUMNS, RESCUED, CsvDialect, NewColumns, SchemaMode, Source
from tests.process_duckdb import cursor

DATA = (Column("id", "bigint"), Column("name", "string"), Column("amount", "decimal(10,2)"))


def _table(*columns: Column) -> TableDeclaration:
    return TableDeclaration("bronze", "corpus", columns, "of a test", Engine.DUCKDB, APPEND)


RESCUING = Source("*", (), _table(*DATA, *LOAD_COLUMNS, RESCUED), new_columns=NewColumns.RESCUE)
"""Takes every file that can be read: what does not fit goes to `_rescued_data`."""
FAILING = Source("*", (), _table(*DATA, *LOAD_COLUMNS))
"""Refuses a file with a value that does not fit."""
HIDING = with_(FAILING, table=_table(Column("id", "bigint", pii=True), *DATA[1:], *LOAD_COLUMNS))
"""Likewise, with a column of personal data."""
ADDING = Source("*", (), _table(*DATA, *LOAD_COLUMNS, RESCUED), schema=SchemaMode.EVOLVING, new_columns=NewColumns.ADD)
RENAMING = with_(RESCUING, rename={"order id": "id", "顧客": "name", "Amount (EUR)": "amount"})
"""Takes fields with other names than the columns."""
REQUIRING = with_(FAILING, table=_table(Column("id", "bigint", nullable=False), *DATA[1:], *LOAD_COLUMNS))
STRICT = Source("*", ("code", "name"), _table(Column("code", "string"), Column("name", "string"), *LOAD_COLUMNS))
"""Refuses a CSV file with another header; its columns are text."""
NESTED = Source(
    "*",
    (),
    _table(
        Column("id", "bigint"),
        Column("tags", "array<bigint>"),
        Column("who", "struct<name:string,born:date>"),
        Column("by_key", "map<string,bigint>"),
        *LOAD_COLUMNS,
        RESCUED,
    ),
    new_columns=NewColumns.RESCUE,
)
TYPES = Source(
    "*",
    (),
    _table(
        Column("i", "int"),
        Column("d", "double"),
        Column("f", "float"),
        Column("b", "boolean"),
        Column("day", "date"),
        Column("at", "timestamp"),
        Column("raw", "binary"),
        *LOAD_COLUMNS,
        RESCUED,
    ),
    new_columns=NewColumns.RESCUE,
)


@dataclass(frozen=True)
class IngestedFile:
    """Its rows' data columns, as DuckDB shows them, and what of each (from 1) was rescued."""

    rows: tuple[tuple[Any, ...], ...]
    rescued: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RefusedFile:
    """A pattern of the reason."""

    reason: str


@dataclass(frozen=True)
class AddsColumns:
    """The columns that the table is to get first."""

    columns: Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A landed file and its fate."""

    id: str
    file: str
    content: bytes
    fate: IngestedFile | RefusedFile | AddsColumns
    source: Source = RESCUING


def parquet_file(select: str) -> bytes:
    """The bytes of a Parquet file with the rows of a query."""
    with tempfile.TemporaryDirectory() as folder, cursor() as con:
        con.execute(f"COPY ({select}) TO '{folder}/f' (FORMAT parquet)")
        return (Path(folder) / "f").read_bytes()


def arrow_file(columns: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> bytes:
    """The bytes of a Parquet file with columns of any names and of Arrow's types, which DuckDB would not write so."""
    pairs = [*columns.items()] if isinstance(columns, Mapping) else columns
    table = pa.table([pa.array(*values) for _, values in pairs], names=[name for name, _ in pairs])
    write_table(table, into := io.BytesIO())
    return into.getvalue()


def jsonl_file(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


A = (1, "Ada", Decimal("1.50"))
B = (2, "Bob", None)
CSV = b"id,name,amount\n1,Ada,1.50\n2,Bob,\n"
JSONL = b'{"id": 1, "name": "Ada", "amount": 1.50}\n{"id": 2, "name": "Bob"}\n'
PARQUET = parquet_file(
    "SELECT * FROM (VALUES (1::BIGINT, 'Ada', 1.50::DECIMAL(10,2)), (2, 'Bob', NULL)) t(id, name, amount)"
)
BOTH = IngestedFile((A, B))
UNICODE = "id,name,amount\n1,Žofie Ünal €,1.50\n"
SEMICOLONS = with_(RESCUING, csv=CsvDialect(delimiter=";", quote="'", escape="'", nulls=("", "NA", "\\N")))


def encoded(encoding: str) -> Source:
    return with_(RESCUING, encoding=encoding)


def csv_file(*lines: str) -> bytes:
    return "\n".join(["id,name,amount", *lines, ""]).encode()
