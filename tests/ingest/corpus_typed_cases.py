"""The corpus: JSON and Parquet files."""

from datetime import date
from decimal import Decimal

import pyarrow as pa

from tests.ingest.corpus_case import (
    ADDING,
    BOTH,
    FAILING,
    JSONL,
    NESTED,
    PARQUET,
    TYPES,
    A,
    AddsColumns,
    B,
    Case,
    IngestedFile,
    RefusedFile,
    arrow_file,
    encoded,
    jsonl_file,
    parquet_file,
)

JSON_CASES = (
    Case("json lines", "a.jsonl", JSONL, BOTH),
    Case("json lines named ndjson", "a.ndjson", JSONL, BOTH),
    Case("json lines without the last line end", "a.jsonl", JSONL[:-1], BOTH),
    Case("json lines with a byte order mark", "a.jsonl", b"\xef\xbb\xbf" + JSONL, BOTH),
    Case("json lines with CRLF and blank lines", "a.jsonl", JSONL.replace(b"\n", b"\r\n\r\n"), BOTH),
    Case("json lines in UTF-16", "a.jsonl", JSONL.decode().encode("utf-16"), BOTH, encoded("utf-16")),
    Case("json lines of zero bytes", "a.jsonl", b"", RefusedFile("zero bytes")),
    Case("json lines of blank lines", "a.jsonl", b"\n\n", IngestedFile(())),
    Case(
        "json lines with keys in other cases",
        "a.jsonl",
        jsonl_file({"ID": 1, "Name": "Ada"}, {"id": 2, "NAME": "Bob"}),
        IngestedFile(((1, "Ada", None), B)),
    ),
    Case(
        "json lines with an invalid line",
        "a.jsonl",
        JSONL + b'{"id": \n' + JSONL,
        RefusedFile("line 3 is not JSON: .*; land one whole"),
    ),
    Case("json lines cut off", "a.jsonl", JSONL[:-4], RefusedFile("line 2 is not JSON: unexpected end")),
    Case(
        "json lines with two objects in a line",
        "a.jsonl",
        b'{"id": 1} {"id": 2}\n',
        RefusedFile("line 1 is not JSON: unexpected content"),
    ),
    Case(
        "json lines that are not UTF-8", "a.jsonl", b'{"name": "\xff"}\n', RefusedFile("line 1 is not JSON: invalid UTF-8")
    ),
    Case(
        "json lines with a lone surrogate",
        "a.jsonl",
        b'{"name": "\\ud800"}\n',
        RefusedFile("line 1 is not JSON: no low surrogate"),
    ),
    Case("json lines with an escaped NUL", "a.jsonl", b'{"name": "A\\u0000da"}\n', IngestedFile(((None, "A\0da", None),))),
    Case("a json list", "a.json", b'[{"id": 1}]\n', RefusedFile("record 1 is not a JSON object; land one object a line")),
    Case("a json list over lines", "a.json", b'[\n{"id": 1}\n]\n', RefusedFile("line 1 is not JSON")),
    Case("json lines of values", "a.jsonl", b'{"id": 1}\n5\n', RefusedFile("record 2 is not a JSON object")),
    Case(
        "json lines with a key twice", "a.jsonl", b'{"id": 1}\n{"id": 1, "id": 2}\n', RefusedFile("record 2 has a key twice")
    ),
    Case("json lines with a key in two cases", "a.jsonl", b'{"id": 1, "Id": 2}\n', RefusedFile("record 1 has a key twice")),
    Case(
        "json lines with a line of 3 MiB",
        "a.jsonl",
        jsonl_file({"name": "x" * (3 << 20)}),
        RefusedFile("line 1: .* longer than"),
    ),
    Case("json lines of nulls", "a.jsonl", b'{"id": null, "name": null, "more": null}\n', IngestedFile(((None,) * 3,))),
    Case(
        "json lines with values that do not fit",
        "a.jsonl",
        b'{"id": 12345678901234567890123, "name": {"x": [1, null]}, "amount": NaN}\n{"id": "3", "name": 4, "amount": true}\n'
        b'{"id": 1.5, "name": false, "amount": "1.10"}\n',
        IngestedFile(
            ((None, '{"x":[1,null]}', None), (3, "4", None), (None, "false", Decimal("1.10"))),
            {1: {"id": 12345678901234567890123, "amount": "NaN"}, 2: {"amount": True}, 3: {"id": 1.5}},
        ),
    ),
    Case(
        "json lines with ragged new keys",
        "a.jsonl",
        b'{"id": 1, "a": {"b": null}, "": "x"}\n{"id": 2, "q\\"z": [NaN], "c.d": "y"}\n{"id": 3}\n',
        IngestedFile(
            ((1, None, None), (2, None, None), (3, None, None)),
            {1: {"a": {"b": None}, "": "x"}, 2: {'q"z': "[NaN]", "c.d": "y"}},
        ),
    ),
    Case(
        "json lines with new keys, refused",
        "a.jsonl",
        b'{"id": 1, "more": 2}\n',
        RefusedFile("lacks columns .*: more; "),
        FAILING,
    ),
    Case(
        "json lines with new keys, added",
        "a.jsonl",
        b'{"id": 1, "n": 1, "x": 1, "s": "7", "at": "2024-01-31T10:00:00Z", "who": {"name": "A", "age": 1}, "l": [1], '
        b'"odd": [1]}\n'
        b'{"id": 2, "n": 2, "x": 1.5, "s": "8", "at": null, "who": {"name": "B", "age": 2}, "l": [], "odd": {"a": 1}}\n',
        AddsColumns(
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
        jsonl_file({f"k{n}": n for n in range(10_001)}),
        RefusedFile("10,000 different keys"),
    ),
    Case(
        "json lines, deep",
        "a.jsonl",
        b'{"id": 1, "name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        IngestedFile(((1, "[" * 200_000 + "]" * 200_000, None),)),
    ),
    Case(
        "json lines with new keys, deep",
        "a.jsonl",
        b'{"id": 1, "deep": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        AddsColumns({"deep": "string"}),
        ADDING,
    ),
    Case(
        "json lines with nested values",
        "a.jsonl",
        b'{"id": 1, "tags": [1, null], "who": {"name": "Ada", "born": "1815-12-10"}, "by_key": {"a": 1, "b": null}}\n'
        b'{"id": 2, "tags": [1.5], "who": {"name": "Bob", "age": 3}, "by_key": {"a": "x"}}\n'
        b'{"id": 3, "tags": {}, "who": {"name": "A", "name": "B"}, "by_key": {"a": 1, "a": 2}}\n',
        IngestedFile(
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

MANY_TYPES = parquet_file(
    "SELECT 1 AS id, 1::UBIGINT AS u, 1::UTINYINT AS small, 1.5::DECIMAL(9,3) AS d, TIMESTAMP '2024-01-31' AS at, "
    "TIME '10:00' AS t, [1.5::DOUBLE] AS l, {'a': 1, 'b': 'x'} AS s, {'a': 1.5::DECIMAL(9,3)} AS ds, 'x'::BLOB AS b"
)
# The time of the column t becomes one that is none, and DuckDB crashes where it makes it a text.
CRASHING = MANY_TYPES[:189] + bytes([38]) + MANY_TYPES[190:]

PARQUET_CASES = (
    Case("parquet", "a.parquet", PARQUET, BOTH),
    Case("parquet, renamed", "a.csv.parquet", PARQUET, BOTH),
    Case("parquet without rows", "a.parquet", parquet_file("SELECT 1::BIGINT AS id WHERE false"), IngestedFile(())),
    Case(
        "parquet that lacks columns", "a.parquet", parquet_file("SELECT 1::BIGINT AS ID"), IngestedFile(((1, None, None),))
    ),
    Case("parquet of zero bytes", "a.parquet", b"", RefusedFile("zero bytes")),
    Case("parquet without its footer", "a.parquet", PARQUET[:-10], RefusedFile("cut off: its footer is missing; land")),
    Case("parquet of its magic alone", "a.parquet", b"PAR1", RefusedFile("cut off: its footer is missing")),
    Case(
        "parquet with a damaged footer",
        "a.parquet",
        PARQUET[:-40] + b"\xff" * 30 + PARQUET[-10:],
        RefusedFile("damaged .*; write and land it again"),
    ),
    Case("parquet that crashes DuckDB", "a.parquet", CRASHING, RefusedFile("damaged .*; write and land it again"), ADDING),
    Case("parquet, encrypted", "a.parquet", b"PARE" + PARQUET[4:], RefusedFile("encrypted; land it without")),
    Case(
        "parquet of other types",
        "a.parquet",
        parquet_file(
            "SELECT * FROM (VALUES (1::DOUBLE, 7::SMALLINT, 1.5::DOUBLE), (1.5, NULL, 1.505), (1e30, 8, NULL)) "
            "t(id, name, amount)"
        ),
        IngestedFile(
            ((1, "7", A[2]), (None, None, None), (None, "8", None)),
            {2: {"id": "1.5", "amount": "1.505"}, 3: {"id": "1e+30"}},
        ),
    ),
    Case(
        "parquet of other types, with nowhere to rescue",
        "a.parquet",
        parquet_file("SELECT 'x' AS id"),
        RefusedFile("row 1: column id: 'x' is not of type bigint; fix it"),
        FAILING,
    ),
    Case(
        "parquet of nested and temporal types",
        "a.parquet",
        parquet_file(
            "SELECT TIMESTAMP '2024-01-31 10:00:00' AS at, DATE '2024-01-31' AS day, 'AP8=' AS raw, 1.5 AS d, "
            "TIME '10:00' AS b"
        ),
        IngestedFile(((None, 1.5, None, None, "2024-01-31", "2024-01-31 10:00:00+00", b"\0\xff"),), {1: {"b": "10:00:00"}}),
        TYPES,
    ),
    Case(
        "parquet of nested types",
        "a.parquet",
        parquet_file(
            "SELECT 1 AS id, [1, 2]::INT[] AS tags, {'name': 'Ada', 'born': DATE '1815-12-10'} AS who, {'a': 1.5} AS by_key"
        ),
        IngestedFile(((1, [1, 2], {"name": "Ada", "born": date(1815, 12, 10)}, None),), {1: {"by_key": {"a": 1.5}}}),
        NESTED,
    ),
    Case(
        "parquet with new columns, rescued",
        "a.parquet",
        parquet_file("SELECT 1 AS id, '\\x00\\xFF'::BLOB AS b, [1] AS l, 1::UBIGINT AS u, NULL AS n"),
        IngestedFile(((1, None, None),), {1: {"b": "AP8=", "l": [1], "u": 1}}),
    ),
    Case(
        "parquet with new columns, added",
        "a.parquet",
        MANY_TYPES,
        AddsColumns(
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
    Case(
        "parquet of another table",
        "a.parquet",
        parquet_file("SELECT 1 AS x"),
        RefusedFile("none of its columns .*: x; is it"),
    ),
    *(
        Case(
            f"parquet with the columns {first} and {second}",
            "a.parquet",
            arrow_file([(first, ([1],)), (second, ([2],))]),
            RefusedFile(f"two columns are called '{first}' and '{second}'; names ignore case: rename one"),
        )
        for first, second in (("id", "ID"), ("ID", "id"), ("id", "id"), ("more", "More"))
    ),
    Case(
        "parquet with a column named as DuckDB would name a second one",
        "a.parquet",
        arrow_file([("id", ([1],)), ("ID_1", ([2],))]),
        IngestedFile(((1, None, None),), {1: {"ID_1": 2}}),
    ),
    Case(
        "parquet with two fields of a name in a struct",
        "a.parquet",
        arrow_file({"id": ([1],), "who": ([[{"name": "a", "Name": "b"}]],)}),
        RefusedFile("two fields of 'element' are called 'name' and 'Name'"),
    ),
    Case(
        "parquet with a column without a name",
        "a.parquet",
        arrow_file({"id": ([1],), "": ([2],)}),
        IngestedFile(((1, None, None),), {1: {"": 2}}),
    ),
    Case(
        "parquet with times in nanoseconds",
        "a.parquet",
        arrow_file({"id": ([1],), "t": ([1_234_567_891], pa.time64("ns"))}),
        RefusedFile("column 't' has times in nanoseconds, which would be cut: write microseconds, or text"),
    ),
    Case(
        "parquet with timestamps of every precision",
        "a.parquet",
        arrow_file(
            {
                name: ([1_706_695_200 * per_second], pa.timestamp(unit))
                for name, unit, per_second in (("s", "s", 1), ("ms", "ms", 1_000), ("us", "us", 10**6), ("ns", "ns", 10**9))
            }
            | {"id": ([1],), "zoned": ([1_706_695_200 * 10**9], pa.timestamp("ns", "UTC"))}
        ),
        AddsColumns(dict.fromkeys(("s", "ms", "us", "ns", "zoned"), "timestamp")),
        ADDING,
    ),
    Case(
        "parquet with a timestamp in nanoseconds",
        "a.parquet",
        arrow_file({"i": ([1],), "at": ([1_706_695_200_123_456_789], pa.timestamp("ns"))}),
        IngestedFile(((1, None, None, None, None, "2024-01-31 10:00:00.123456+00", None),)),
        TYPES,
    ),
    Case(
        "parquet with DuckDB's row number",
        "a.parquet",
        parquet_file("SELECT 1 AS id, 2 AS file_row_number"),
        RefusedFile("rename it"),
    ),
)
