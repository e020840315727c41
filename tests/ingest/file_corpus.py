"""Landed files of every kind, good and bad, each with what must become of it."""

import gzip
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import zstandard

from assets.bronze.landed_tables import AIRLINES
from ingest.file_source import APPEND, LOAD_COLUMNS, RESCUED, CsvDialect, NewColumns, SchemaMode, Source
from resources.declarations import Column, Engine, TableDeclaration

DATA = (Column("id", "bigint"), Column("name", "string"), Column("amount", "decimal(10,2)"))


def _table(*columns: Column) -> TableDeclaration:
    return TableDeclaration("bronze", "corpus", columns, "of a test", Engine.DUCKDB, APPEND)


RESCUING = Source("*", (), _table(*DATA, *LOAD_COLUMNS, RESCUED), new_columns=NewColumns.RESCUE)
"""Takes every file that can be read: what does not fit goes to `_rescued_data`."""
FAILING = Source("*", (), _table(*DATA, *LOAD_COLUMNS))
"""Refuses a file with a value that does not fit."""
ADDING = Source("*", (), _table(*DATA, *LOAD_COLUMNS, RESCUED), schema=SchemaMode.EVOLVING, new_columns=NewColumns.ADD)
REQUIRING = with_(FAILING, table=_table(Column("id", "bigint", nullable=False), *DATA[1:], *LOAD_COLUMNS))
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
class Ingested:
    """Its rows' data columns, as DuckDB shows them, and what of each (from 1) was rescued."""

    rows: tuple[tuple[Any, ...], ...]
    rescued: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """A pattern of the reason."""

    reason: str


@dataclass(frozen=True)
class Adds:
    """The columns that the table is to get first."""

    columns: Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A landed file and its fate."""

    id: str
    file: str
    content: bytes
    fate: Ingested | Refused | Adds
    source: Source = RESCUING


def _parquet(select: str) -> bytes:
    """The bytes of a Parquet file with the rows of a query."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        con.execute(f"COPY ({select}) TO '{folder}/f' (FORMAT parquet)")
        return (Path(folder) / "f").read_bytes()


def _jsonl(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


A = (1, "Ada", Decimal("1.50"))
B = (2, "Bob", None)
CSV = b"id,name,amount\n1,Ada,1.50\n2,Bob,\n"
JSONL = b'{"id": 1, "name": "Ada", "amount": 1.50}\n{"id": 2, "name": "Bob"}\n'
PARQUET = _parquet("SELECT * FROM (VALUES (1::BIGINT, 'Ada', 1.50::DECIMAL(10,2)), (2, 'Bob', NULL)) t(id, name, amount)")
BOTH = Ingested((A, B))
UNICODE = "id,name,amount\n1,Žofie Ünal €,1.50\n"
SEMICOLONS = with_(RESCUING, csv=CsvDialect(delimiter=";", quote="'", escape="'", nulls=("", "NA", "\\N")))


def _in(encoding: str) -> Source:
    return with_(RESCUING, encoding=encoding)


def _csv(*lines: str) -> bytes:
    return "\n".join(["id,name,amount", *lines, ""]).encode()


CSV_CASES = (
    Case("csv", "a.csv", CSV, BOTH),
    Case("csv with a byte order mark", "a.csv", b"\xef\xbb\xbf" + CSV, BOTH),
    Case("csv with CRLF", "a.csv", CSV.replace(b"\n", b"\r\n"), BOTH),
    Case("csv with upper-case suffix", "A.CSV", CSV, BOTH),
    Case("csv with upper-case header", "a.csv", CSV.replace(b"id,name", b"ID,Name"), BOTH),
    Case("csv with columns in another order", "a.csv", b"amount,id,name\n1.50,1,Ada\n,2,Bob\n", BOTH),
    Case("csv that lacks a column", "a.csv", b"id,name\n1,Ada\n", Ingested(((1, "Ada", None),))),
    Case("csv with a quoted line end", "a.csv", _csv('1,"A\nda, ""x""",1.50'), Ingested(((1, 'A\nda, "x"', A[2]),))),
    Case("csv with a quoted header", "a.csv", b'"id","name","amount"\n1,Ada,1.50\n2,Bob,\n', BOTH),
    Case("csv with a NUL in a value", "a.csv", _csv("1,A\0da,1.50"), Ingested(((1, "A\0da", A[2]),))),
    Case("csv with blank lines", "a.csv", CSV.replace(b"1.50\n", b"1.50\n\n") + b"\n", BOTH),
    Case("csv with a header alone", "a.csv", _csv(), Ingested(())),
    Case("csv of zero bytes", "a.csv", b"", Refused("zero bytes; land it again")),
    Case("csv cut off in a line", "a.csv", CSV[:-3], Refused("cut off: it has no line end; land the whole file")),
    Case("csv cut off in a quote", "a.csv", _csv('1,"Ada'), Refused("not closed; double the quotes")),
    Case("csv with a row too wide", "a.csv", _csv("1,Ada,1.50", "2,Bob,3,4"), Refused("line 3: .* number of columns")),
    Case("csv with a row too narrow", "a.csv", _csv("1,Ada,1.50", "2,Bob"), Refused("line 3: .* number of columns")),
    Case("csv with one name twice", "a.csv", b"id,name,ID\n1,Ada,2\n", Refused("'id' and 'ID'; .* rename one")),
    Case("csv of lines that end in two ways", "a.csv", _csv("1,Ada,3\r", "2,Bob,4"), Refused("end in different ways")),
    Case("csv with a line of 3 MiB", "a.csv", _csv("1," + "x" * (3 << 20) + ",1"), Refused("line 2: .* longer than 2,097")),
    Case("csv with a record of 3 MiB", "a.csv", _csv('1,"' + "xxx\n" * (3 << 18) + '",1'), Refused("longer than 2,097,152")),
    Case("csv with a header without end", "a.csv", b"x" * 70_000 + b"\n", Refused("first line is longer than 65,536")),
    Case("csv of random bytes", "a.csv", bytes(range(256)) * 40 + b"\n", Refused("UTF-16")),
    Case(
        "csv of text without a header",
        "a.csv",
        b"Dear all,\nthis is no table.\n",
        Refused("none of its columns|number of col"),
    ),
    Case("csv that is not UTF-8", "a.csv", UNICODE.encode("cp1250"), Refused("not UTF-8; .* declare its encoding")),
    Case("csv whose header is not UTF-8", "a.csv", "id,größe\n1,2\n".encode("latin-1"), Refused("header is not UTF-8")),
    Case("csv that is UTF-16", "a.csv", UNICODE.encode("utf-16"), Refused("is UTF-16; land it as UTF-8, or declare")),
    Case("csv that is UTF-16 without a mark", "a.csv", UNICODE.encode("utf-16-le"), Refused("is UTF-16; land it as UTF-8")),
    Case("csv declared as UTF-16", "a.csv", UNICODE.encode("utf-16"), Ingested(((1, "Žofie Ünal €", A[2]),)), _in("utf-16")),
    Case(
        "csv declared as Windows-1250",
        "a.csv",
        UNICODE.encode("cp1250"),
        Ingested(((1, "Žofie Ünal €", A[2]),)),
        _in("cp1250"),
    ),
    Case(
        "csv declared as Latin-1",
        "a.csv",
        "id,name\n1,Zoë\n".encode("latin-1"),
        Ingested(((1, "Zoë", None),)),
        _in("latin-1"),
    ),
    Case("csv that is not as declared", "a.csv", b"\xff\xfe" + CSV, Refused("not utf-16 .*; declare"), _in("utf-16")),
    Case(
        "csv in a dialect",
        "a.csv",
        b"id;name;amount\n1;'A;d''a';1.50\nNA;\\N;\n",
        Ingested(((1, "A;d'a", A[2]), (None,) * 3)),
        SEMICOLONS,
    ),
    Case("csv in another dialect", "a.csv", CSV, Refused("none of its columns"), SEMICOLONS),
    Case(
        "csv without a header line",
        "a.csv",
        b"1,Ada,1.50\n2,Bob,\n",
        BOTH,
        with_(RESCUING, header=("id", "name", "amount"), csv=CsvDialect(header=False)),
    ),
    Case(
        "csv with values that do not fit",
        "a.csv",
        _csv("one,Ada,1.50", "1.5,Bob,1.505", "9223372036854775808,Eve,12345678901.00", "0x1F,Dan,1e3", "4,Zoe,5"),
        Ingested(
            (
                (None, "Ada", A[2]),
                (None, "Bob", None),
                (None, "Eve", None),
                (None, "Dan", None),
                (4, "Zoe", Decimal("5.00")),
            ),
            {
                1: {"id": "one"},
                2: {"id": "1.5", "amount": "1.505"},
                3: {"id": "9223372036854775808", "amount": "12345678901.00"},
                4: {"id": "0x1F", "amount": "1e3"},
            },
        ),
    ),
    Case(
        "csv with a value that does not fit, and nowhere to rescue it",
        "a.csv",
        _csv("1,Ada,1.50", "two,Bob,3"),
        Refused("row 2: column id: 'two' is not of type bigint; fix it, or add the column _rescued_data"),
        FAILING,
    ),
    Case(
        "csv without a value that must be",
        "a.csv",
        _csv("1,Ada,", ",Bob,"),
        Refused("row 2: column id has no value"),
        REQUIRING,
    ),
    Case("csv without a column that must be", "a.csv", b"name\nAda\n", Refused("row 1: column id has no value"), REQUIRING),
    Case(
        "csv with new columns, rescued",
        "a.csv",
        b'id,name,amount,Note "x",more\n1,Ada,1.50,"say ""hi""",\n2,Bob,,,\n',
        Ingested((A, B), {1: {'Note "x"': 'say "hi"'}}),
    ),
    Case("csv with new columns, refused", "a.csv", b"id,more\n1,2\n", Refused("table lacks columns .*: more; "), FAILING),
    Case(
        "csv with new columns, added",
        "a.csv",
        b"id,n,x,day,at,ok,zip,empty,two words\n1,2,1.5,2024-01-31,2024-01-31T10:00:00Z,true,01234,,a\n"
        b"2,3,2,2024-02-01,,FALSE,1,,b\n",
        Adds(
            {
                "n": "bigint",
                "x": "double",
                "day": "date",
                "at": "timestamp",
                "ok": "boolean",
                "zip": "string",
                "empty": "string",
            }
        ),
        ADDING,
    ),
    Case(
        "csv with a new column that cannot be added",
        "a.csv",
        b"id,two words\n1,a\n",
        Ingested(((1, None, None),), {1: {"two words": "a"}}),
        ADDING,
    ),
    Case("csv with our own columns", "a.csv", b"id,_batch_id\n1,x\n", Ingested(((1, None, None),), {1: {"_batch_id": "x"}})),
    Case(
        "csv with too many new columns",
        "a.csv",
        ",".join(["id", *(f"c{n}" for n in range(101))]).encode() + b"\n",
        Refused("101 columns"),
        ADDING,
    ),
    Case(
        "csv of every type",
        "a.csv",
        b"i,d,f,b,day,at,raw\n"
        b"1,1e3,0.5,TRUE,2024-01-31,2024-01-31 10:00:00+02:00,AP8=\n"
        b" +7 ,NaN,-inf,false,2024-1-1,2024-01-31 10:00,\n"
        b"2147483648,1e400,1_0,yes,2024-01-31 10:00,infinity,!\n",
        Ingested(
            (
                (1, 1000.0, 0.5, True, "2024-01-31", "2024-01-31 08:00:00+00", b"\0\xff"),
                (7, float("nan"), float("-inf"), False, "2024-01-01", "2024-01-31 10:00:00+00", None),
                (None,) * 7,
            ),
            {
                3: {
                    "i": "2147483648",
                    "d": "1e400",
                    "f": "1_0",
                    "b": "yes",
                    "day": "2024-01-31 10:00",
                    "at": "infinity",
                    "raw": "!",
                }
            },
        ),
        TYPES,
    ),
    Case(
        "csv with nested values",
        "a.csv",
        b'id,tags,who,by_key\n1,"[1,2]","{""name"":""Ada""}","{""a"":1}"\n2,"[1.5]",x,"[]"\n',
        Ingested(
            ((1, [1, 2], {"name": "Ada", "born": None}, {"a": 1}), (2, None, None, None)),
            {2: {"tags": "[1.5]", "who": "x", "by_key": "[]"}},
        ),
        NESTED,
    ),
    Case("strict csv", "a.csv", b"carrier,name\nAA,American\n", Ingested((("AA", "American"),)), AIRLINES),
    Case(
        "strict csv is text",
        "a.csv",
        b'carrier,name\r\nnot-a-number,1e400\r\nAA,"a, ""b"""\r\n 007 ,\r\n',
        Ingested((("not-a-number", "1e400"), ("AA", 'a, "b"'), (" 007 ", None))),
        AIRLINES,
    ),
    Case("strict csv of other columns", "a.csv", b"foo,bar\n1,2\n", Refused("not expected: foo, bar; declare"), AIRLINES),
    Case(
        "strict csv with a new column",
        "a.csv",
        b"carrier,name,x\nAA,American,1\n",
        Refused("not expected: x; declare"),
        AIRLINES,
    ),
    Case("strict csv that lacks a column", "a.csv", b"carrier\nAA\n", Refused("lacks columns: name; land"), AIRLINES),
    Case(
        "strict csv in another order",
        "a.csv",
        b"name,carrier\nAmerican,AA\n",
        Refused("another order: expected carrier,name"),
        AIRLINES,
    ),
)

PACKED_CASES = (
    Case("gzip", "a.csv.gz", gzip.compress(CSV), BOTH),
    Case("gzip in two members", "a.csv.gz", gzip.compress(CSV[:20]) + gzip.compress(CSV[20:]), BOTH),
    Case("gzip, cut off", "a.csv.gz", gzip.compress(CSV * 50)[:-12], Refused("gzip file is cut off; land the whole")),
    Case("gzip, without the last byte", "a.csv.gz", gzip.compress(CSV)[:-1], Refused("gzip file is cut off")),
    Case(
        "gzip, with a wrong checksum",
        "a.csv.gz",
        gzip.compress(CSV)[:-8] + b"\0" * 8,
        Refused("gzip file is damaged .*; land it"),
    ),
    Case("gzip, with garbage behind", "a.csv.gz", gzip.compress(CSV) + b"garbage", Refused("gzip file is damaged")),
    Case("gzip of nothing", "a.csv.gz", gzip.compress(b""), Refused("zero bytes")),
    Case("gzip of gzip", "a.csv.gz", gzip.compress(gzip.compress(CSV)), Refused("packed twice, not csv; land")),
    Case("gzip by another name", "a.csv", gzip.compress(CSV), BOTH),
    Case("plain by the name of gzip", "a.csv.gz", CSV, BOTH),
    Case("Zstandard", "a.csv.zst", zstandard.compress(CSV), BOTH),
    Case("Zstandard in two frames", "a.csv.zst", zstandard.compress(CSV[:20]) + zstandard.compress(CSV[20:]), BOTH),
    Case("Zstandard, cut off", "a.csv.zst", zstandard.compress(CSV)[:-4], Refused("Zstandard file is cut off")),
    Case(
        "Zstandard, with garbage behind",
        "a.csv.zst",
        zstandard.compress(CSV) + b"garbage",
        Refused("Zstandard file is damaged"),
    ),
    Case("JSON lines in gzip", "a.jsonl.gz", gzip.compress(JSONL), BOTH),
    Case("Parquet in Zstandard", "a.parquet.zst", zstandard.compress(PARQUET), BOTH),
    Case("no suffix", "a", CSV, Refused("does not show its format; name it")),
    Case("zip", "a.csv", b"PK\x03\x04" + CSV, Refused("zip archive or an Excel workbook, not csv; land it as csv")),
    Case("Parquet by the name of csv", "a.csv", PARQUET, Refused("the file is Parquet, not csv; land it as csv")),
    Case("csv by the name of Parquet", "a.parquet", CSV, Refused("not Parquet, whatever its name; land it")),
    Case("csv by the name of JSON lines", "a.jsonl", CSV, Refused("line 1 is not JSON")),
)

JSON_CASES = (
    Case("json lines", "a.jsonl", JSONL, BOTH),
    Case("json lines named ndjson", "a.ndjson", JSONL, BOTH),
    Case("json lines without the last line end", "a.jsonl", JSONL[:-1], BOTH),
    Case("json lines with a byte order mark", "a.jsonl", b"\xef\xbb\xbf" + JSONL, BOTH),
    Case("json lines with CRLF and blank lines", "a.jsonl", JSONL.replace(b"\n", b"\r\n\r\n"), BOTH),
    Case("json lines in UTF-16", "a.jsonl", JSONL.decode().encode("utf-16"), BOTH, _in("utf-16")),
    Case("json lines of zero bytes", "a.jsonl", b"", Refused("zero bytes")),
    Case("json lines of blank lines", "a.jsonl", b"\n\n", Ingested(())),
    Case(
        "json lines with keys in other cases",
        "a.jsonl",
        _jsonl({"ID": 1, "Name": "Ada"}, {"id": 2, "NAME": "Bob"}),
        Ingested(((1, "Ada", None), B)),
    ),
    Case(
        "json lines with an invalid line",
        "a.jsonl",
        JSONL + b'{"id": \n' + JSONL,
        Refused("line 3 is not JSON: .*; land one whole"),
    ),
    Case("json lines cut off", "a.jsonl", JSONL[:-4], Refused("line 2 is not JSON: unexpected end")),
    Case(
        "json lines with two objects in a line",
        "a.jsonl",
        b'{"id": 1} {"id": 2}\n',
        Refused("line 1 is not JSON: unexpected content"),
    ),
    Case("json lines that are not UTF-8", "a.jsonl", b'{"name": "\xff"}\n', Refused("line 1 is not JSON: invalid UTF-8")),
    Case(
        "json lines with a lone surrogate",
        "a.jsonl",
        b'{"name": "\\ud800"}\n',
        Refused("line 1 is not JSON: no low surrogate"),
    ),
    Case("json lines with an escaped NUL", "a.jsonl", b'{"name": "A\\u0000da"}\n', Ingested(((None, "A\0da", None),))),
    Case("a json list", "a.json", b'[{"id": 1}]\n', Refused("record 1 is not a JSON object; land one object a line")),
    Case("a json list over lines", "a.json", b'[\n{"id": 1}\n]\n', Refused("line 1 is not JSON")),
    Case("json lines of values", "a.jsonl", b'{"id": 1}\n5\n', Refused("record 2 is not a JSON object")),
    Case("json lines with a key twice", "a.jsonl", b'{"id": 1}\n{"id": 1, "id": 2}\n', Refused("record 2 has a key twice")),
    Case("json lines with a key in two cases", "a.jsonl", b'{"id": 1, "Id": 2}\n', Refused("record 1 has a key twice")),
    Case("json lines with a line of 3 MiB", "a.jsonl", _jsonl({"name": "x" * (3 << 20)}), Refused("line 1: .* longer than")),
    Case("json lines of nulls", "a.jsonl", b'{"id": null, "name": null, "more": null}\n', Ingested(((None,) * 3,))),
    Case(
        "json lines with values that do not fit",
        "a.jsonl",
        b'{"id": 12345678901234567890123, "name": {"x": [1, null]}, "amount": NaN}\n{"id": "3", "name": 4, "amount": true}\n'
        b'{"id": 1.5, "name": false, "amount": "1.10"}\n',
        Ingested(
            ((None, '{"x":[1,null]}', None), (3, "4", None), (None, "false", Decimal("1.10"))),
            {1: {"id": 12345678901234567890123, "amount": "NaN"}, 2: {"amount": True}, 3: {"id": 1.5}},
        ),
    ),
    Case(
        "json lines with ragged new keys",
        "a.jsonl",
        b'{"id": 1, "a": {"b": null}, "": "x"}\n{"id": 2, "q\\"z": [NaN], "c.d": "y"}\n{"id": 3}\n',
        Ingested(
            ((1, None, None), (2, None, None), (3, None, None)),
            {1: {"a": {"b": None}, "": "x"}, 2: {'q"z': "[NaN]", "c.d": "y"}},
        ),
    ),
    Case(
        "json lines with new keys, refused",
        "a.jsonl",
        b'{"id": 1, "more": 2}\n',
        Refused("lacks columns .*: more; "),
        FAILING,
    ),
    Case(
        "json lines with new keys, added",
        "a.jsonl",
        b'{"id": 1, "n": 1, "x": 1, "s": "7", "at": "2024-01-31T10:00:00Z", "who": {"name": "A", "age": 1}, "l": [1], '
        b'"odd": [1]}\n'
        b'{"id": 2, "n": 2, "x": 1.5, "s": "8", "at": null, "who": {"name": "B", "age": 2}, "l": [], "odd": {"a": 1}}\n',
        Adds(
            {
                "n": "bigint",
                "x": "double",
                "s": "string",
                "at": "timestamp",
                "who": "struct<name:string,age:bigint>",
                "l": "array<bigint>",
                "odd": "string",
            }
        ),
        ADDING,
    ),
    Case(
        "json lines with data for keys",
        "a.jsonl",
        _jsonl({f"k{n}": n for n in range(10_001)}),
        Refused("10,000 different keys"),
    ),
    Case(
        "json lines, deep",
        "a.jsonl",
        b'{"id": 1, "name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        Ingested(((1, "[" * 200_000 + "]" * 200_000, None),)),
    ),
    Case(
        "json lines with new keys, deep",
        "a.jsonl",
        b'{"id": 1, "deep": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        Adds({"deep": "string"}),
        ADDING,
    ),
    Case(
        "json lines with nested values",
        "a.jsonl",
        b'{"id": 1, "tags": [1, null], "who": {"name": "Ada", "born": "1815-12-10"}, "by_key": {"a": 1, "b": null}}\n'
        b'{"id": 2, "tags": [1.5], "who": {"name": "Bob", "age": 3}, "by_key": {"a": "x"}}\n'
        b'{"id": 3, "tags": {}, "who": {"name": "A", "name": "B"}, "by_key": {"a": 1, "a": 2}}\n',
        Ingested(
            (
                (1, [1, None], {"name": "Ada", "born": date(1815, 12, 10)}, {"a": 1, "b": None}),
                (2, None, None, None),
                (3, None, None, None),
            ),
            {
                2: {"tags": [1.5], "who": {"name": "Bob", "age": 3}, "by_key": {"a": "x"}},
                3: {"tags": {}, "who": {"name": "B"}, "by_key": {"a": 2}},
            },
        ),
        NESTED,
    ),
)

PARQUET_CASES = (
    Case("parquet", "a.parquet", PARQUET, BOTH),
    Case("parquet, renamed", "a.csv.parquet", PARQUET, BOTH),
    Case("parquet without rows", "a.parquet", _parquet("SELECT 1::BIGINT AS id WHERE false"), Ingested(())),
    Case("parquet that lacks columns", "a.parquet", _parquet("SELECT 1::BIGINT AS ID"), Ingested(((1, None, None),))),
    Case("parquet of zero bytes", "a.parquet", b"", Refused("zero bytes")),
    Case("parquet without its footer", "a.parquet", PARQUET[:-10], Refused("cut off: its footer is missing; land")),
    Case("parquet of its magic alone", "a.parquet", b"PAR1", Refused("cut off: its footer is missing")),
    Case(
        "parquet with a damaged footer",
        "a.parquet",
        PARQUET[:-40] + b"\xff" * 30 + PARQUET[-10:],
        Refused("damaged .*; write and land it again"),
    ),
    Case("parquet, encrypted", "a.parquet", b"PARE" + PARQUET[4:], Refused("encrypted; land it without")),
    Case(
        "parquet of other types",
        "a.parquet",
        _parquet(
            "SELECT * FROM (VALUES (1::DOUBLE, 7::SMALLINT, 1.5::DOUBLE), (1.5, NULL, 1.505), (1e30, 8, NULL)) "
            "t(id, name, amount)"
        ),
        Ingested(
            ((1, "7", A[2]), (None, None, None), (None, "8", None)),
            {2: {"id": "1.5", "amount": "1.505"}, 3: {"id": "1e+30"}},
        ),
    ),
    Case(
        "parquet of other types, with nowhere to rescue",
        "a.parquet",
        _parquet("SELECT 'x' AS id"),
        Refused("row 1: column id: 'x' is not of type bigint; fix it"),
        FAILING,
    ),
    Case(
        "parquet of nested and temporal types",
        "a.parquet",
        _parquet(
            "SELECT TIMESTAMP '2024-01-31 10:00:00' AS at, DATE '2024-01-31' AS day, 'AP8=' AS raw, 1.5 AS d, "
            "TIME '10:00' AS b"
        ),
        Ingested(((None, 1.5, None, None, "2024-01-31", "2024-01-31 10:00:00+00", b"\0\xff"),), {1: {"b": "10:00:00"}}),
        TYPES,
    ),
    Case(
        "parquet of nested types",
        "a.parquet",
        _parquet(
            "SELECT 1 AS id, [1, 2]::INT[] AS tags, {'name': 'Ada', 'born': DATE '1815-12-10'} AS who, {'a': 1.5} AS by_key"
        ),
        Ingested(((1, [1, 2], {"name": "Ada", "born": date(1815, 12, 10)}, None),), {1: {"by_key": {"a": 1.5}}}),
        NESTED,
    ),
    Case(
        "parquet with new columns, rescued",
        "a.parquet",
        _parquet("SELECT 1 AS id, '\\x00\\xFF'::BLOB AS b, [1] AS l, 1::UBIGINT AS u, NULL AS n"),
        Ingested(((1, None, None),), {1: {"b": "AP8=", "l": [1], "u": 1}}),
    ),
    Case(
        "parquet with new columns, added",
        "a.parquet",
        _parquet(
            "SELECT 1 AS id, 1::UBIGINT AS u, 1::UTINYINT AS small, 1.5::DECIMAL(9,3) AS d, TIMESTAMP '2024-01-31' AS at, "
            "TIME '10:00' AS t, [1.5::DOUBLE] AS l, {'a': 1, 'b': 'x'} AS s, {'a': 1.5::DECIMAL(9,3)} AS ds, 'x'::BLOB AS b"
        ),
        Adds(
            {
                "u": "decimal(20,0)",
                "small": "smallint",
                "d": "decimal(9,3)",
                "at": "timestamp",
                "t": "string",
                "l": "array<double>",
                "s": "struct<a:int,b:string>",
                "ds": "string",
                "b": "binary",
            }
        ),
        ADDING,
    ),
    Case("parquet of another table", "a.parquet", _parquet("SELECT 1 AS x"), Refused("none of its columns .*: x; is it")),
    Case(
        "parquet with DuckDB's row number",
        "a.parquet",
        _parquet("SELECT 1 AS id, 2 AS file_row_number"),
        Refused("rename it"),
    ),
)

CASES = (*CSV_CASES, *PACKED_CASES, *JSON_CASES, *PARQUET_CASES)
