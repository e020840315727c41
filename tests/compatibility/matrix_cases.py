"""The matrix: types with their values, odd types and values, features of tables, and what is expected of each.

`docs/compatibility.md` is made from it, and `test_matrix.py` holds that it is so.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.compatibility.matrix_outcomes import EQUAL, Cell, Outcome, cells, limit, refused

NAN, INF = float("nan"), float("inf")


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # pyright: ignore[reportArgumentType] six of them at most, and microseconds


# Types that every engine reads and writes alike, with values at their ends; NULL comes on top for each.
PLAIN: Mapping[str, Sequence[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127, 0],
    "smallint": [-32768, 32767, -1],
    "int": [-(2**31), 2**31 - 1, 0],
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1],
    "float": [NAN, INF, -INF, -0.0, 0.0, 3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612],
    "double": [NAN, INF, -INF, -0.0, 0.0, 1.7976931348623157e308, 5e-324, 0.1],
    "decimal(1,0)": [Decimal(9), Decimal(-9), Decimal(0)],
    "decimal(9,2)": [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.01")],
    "decimal(18,6)": [Decimal("999999999999.999999"), Decimal("-999999999999.999999"), Decimal("0.000001")],
    "decimal(38,0)": [Decimal("9" * 38), Decimal("-" + "9" * 38)],
    "decimal(38,18)": [
        Decimal(f"{'9' * 20}.{'9' * 18}"),
        Decimal(f"-{'9' * 20}.{'9' * 18}"),
        Decimal("0.000000000000000001"),
    ],
    "decimal(38,38)": [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)],
    "date": [
        dt.date(1, 1, 1),
        dt.date(9999, 12, 31),
        dt.date(1582, 10, 4),
        dt.date(1582, 10, 10),
        dt.date(1582, 10, 15),
        dt.date(1969, 12, 31),
        dt.date(2000, 2, 29),
    ],
    "timestamp": [
        at(1, 1, 1),
        at(9999, 12, 31, 23, 59, 59, 999999),
        at(1582, 10, 10, 1, 2, 3, 4),
        at(1969, 12, 31, 23, 59, 59, 999999),
        at(999, 12, 31, 23, 59, 59, 1),
        at(1900, 1, 1),
        at(1677, 9, 21),
        at(2262, 4, 12),
        # An hour that clocks in Europe left out.
        at(2024, 3, 31, 1, 30, 0, 1),
    ],
    "string": [
        "",
        " ",
        "a\0b",
        "\0",
        "Zoë 𝄞 😀",
        "\U0010ffff",
        "\U000fffff",
        "e\u0301",
        "'\"\\%_\n\r\t",
        "😀" * 33,
        "long" * 25_000,
    ],
    "binary": [b"", b"\0", bytes(range(256)), b"\xff" * 40],
}
NESTED: Mapping[str, Sequence[Any]] = {
    "array<int>": [[], [None], [1, None, -(2**31)]],
    "array<string>": [["", None, "𝄞\0"], []],
    "array<double>": [[NAN, -0.0, INF]],
    "array<decimal(38,18)>": [[Decimal(f"{'9' * 20}.{'9' * 18}"), None]],
    "array<timestamp>": [[at(1, 1, 1), at(9999, 12, 31, 23, 59, 59, 999999)]],
    "array<array<int>>": [[[], None, [1, None]], []],
    "array<struct<a:int,b:string>>": [[None, {"a": None, "b": None}, {"a": 1, "b": "x"}], []],
    "struct<a:int,b:string>": [{"a": None, "b": None}, {"a": 1, "b": ""}],
    "struct<f:float,t:tinyint,s:smallint,b:boolean>": [{"f": NAN, "t": -128, "s": 32767, "b": True}],
}
# Likewise, but DuckDB's INSERT takes none of their values: it takes its own statistics of the parts for those of the whole.
MAPS: Mapping[str, Sequence[Any]] = {
    "map<string,int>": [{}, {"": None, "𝄞": 1}],
    "map<int,array<string>>": [{1: [], 2: None, 3: ["a", None]}],
    "map<date,timestamp>": [{dt.date(1, 1, 1): at(1, 1, 1)}],
    "map<string,struct<a:int>>": [{"a": None, "b": {"a": None}, "c": {"a": 1}}],
    "map<string,array<decimal(10,2)>>": [{"a": [Decimal("99999999.99"), None]}],
    "struct<a:array<decimal(10,2)>>": [{"a": [Decimal("-99999999.99"), None]}],
    "struct<a:struct<b:array<int>,c:map<string,double>>,d:date,t:timestamp,x:binary>": [
        {"a": None, "d": None, "t": None, "x": None},
        {"a": {"b": [], "c": {}}, "d": dt.date(9999, 12, 31), "t": at(1, 1, 1), "x": b"\0"},
        {"a": {"b": [1, None], "c": {"x": -0.0}}, "d": None, "t": None, "x": b""},
    ],
}


TYPE_NAMES = {
    "tinyint": "BYTE",
    "smallint": "SHORT",
    "bigint": "LONG",
    **{
        name: name.upper()
        for name in (
            *("boolean", "int", "float", "double", "decimal", "date", "timestamp", "string", "binary"),
            *("array", "map", "struct"),
        )
    },
}
"""What the catalog calls a type in `type_name`."""


@dataclass(frozen=True)
class Odd:
    """A type that some engine does not know, or a value that some engine takes for another.

    Attributes:
        type: In Spark's words, as CREATE TABLE has it.
        spark, duckdb: The value in either SQL; what DuckDB writes may break a rule that the type has.
        shown: Spark's value, as `str` of what Python gets for `read`.
        by_duckdb: Likewise what DuckDB writes, where that is another value.
        read: What the readers select.
        expected: Of each writer and reader.
        written: The type that a declaration says which goes on where the type itself is refused: `append` is tried by it.
        declared: What the declaration of such a column says; empty where it takes it.
        made: What Spark says to the table; empty where it makes it.
        short: Whether it is among the tests' short form.
    """

    name: str
    type: str
    spark: str
    duckdb: str
    shown: str
    expected: Mapping[Cell, Outcome]
    written: str = ""
    declared: str = ""
    made: str = ""
    by_duckdb: str = ""
    read: str = "c"
    short: bool = False


HIDDEN = limit("Types that hide a schema from DuckDB", "^error: .*Tried to fallback to unknown type")
VOID = limit("VOID", "^error: .*Unsupported Delta table type: 'void'")
LENGTHS = limit("CHAR and VARCHAR", "^differs: ")
INSERT = limit("DuckDB's INSERT", "^error: ")
INFINITY = limit("Infinite dates and timestamps", r"^differs: .*(\+5881580|-290308)")
BROKEN = limit("Infinite dates and timestamps", "^error: .*(parsing object|Failed to convert)")
NOT_UTF8 = limit("Strings that are not UTF-8", "^error: .*(Invalid string encoding|non UTF-8)")
MAPPED = limit("Column mapping", r"^differs: \[\] for insert|FAILED_READ_FILE")
WIDENED = limit("deltalake", "^error: .*TypeWidening")
OTHERWISE = "(UnsafeDeclaration|UnsafeTable: .*(requires writers to support|the table has))"

# What it is to DuckDB whoever writes: the table cannot even be attached. deltalake reads the Parquet files.
_HIDDEN = cells(append=refused(OTHERWISE), insert=HIDDEN, duckdb=HIDDEN)

ODD: Sequence[Odd] = (
    Odd(
        "timestamp_ntz",
        "timestamp_ntz",
        "TIMESTAMP_NTZ '2013-01-01 00:00:00.000001'",
        "TIMESTAMP '2013-01-01 00:00:00.000001'",
        "2013-01-01 00:00:00.000001",
        _HIDDEN,
        written="timestamp",
        declared="TIMESTAMP_NTZ hides its whole schema",
    ),
    Odd(
        "variant",
        "variant",
        """parse_json('{"a":1}')""",
        """'{"a":1}'""",
        '{"a":1}',
        {**_HIDDEN, ("spark", "deltalake"): limit("deltalake", "^differs: .*metadata")},
        written="string",
        declared="VARIANT hides its whole schema",
    ),
    Odd(
        "decimal directly in a struct",
        "struct<a:decimal(10,2)>",
        "named_struct('a', 1.10BD)",
        "{'a': 1.10}",
        "{'a': Decimal('1.10')}",
        _HIDDEN,
        declared="DECIMAL inside a struct hides",
    ),
    Odd(
        "decimal directly in a map",
        "map<string,decimal(10,2)>",
        "map('a', 1.10BD)",
        "MAP {'a': 1.10}",
        "{'a': Decimal('1.10')}",
        _HIDDEN,
        declared="DECIMAL inside a map hides",
    ),
    Odd(
        "field that is not a plain identifier",
        "struct<`a:b`:int>",
        "named_struct('a:b', 1)",
        "{'a:b': 1}",
        "{'a:b': 1}",
        _HIDDEN,
        declared="not a plain identifier",
    ),
    Odd(
        "void",
        "void",
        "NULL",
        "NULL",
        "None",
        cells(append=refused(OTHERWISE), insert=VOID, duckdb=VOID),
        "int",
        "'void' is not one",
    ),
    Odd("interval", "interval day to second", "", "", "", {}, declared="not one", made="DELTA_UNSUPPORTED_DATA_TYPES"),
    Odd("time", "time", "", "", "", {}, declared="not one", made="UNSUPPORTED_TIME_TYPE"),
    Odd("geometry", "geometry(4326)", "", "", "", {}, declared="not one", made="DELTA_GEOSPATIAL_NOT_SUPPORTED"),
    Odd(
        "string with a collation",
        "string collate UTF8_LCASE",
        "",
        "",
        "",
        {},
        declared="not one",
        made="DELTA_UNSUPPORTED_DATA_TYPES",
    ),
    Odd(
        "char(n)",
        "char(3)",
        "'a'",
        "'a'",
        "a  ",
        cells(
            append=refused(r"the type char\(3\)"),
            insert=EQUAL,
            insert_duckdb=LENGTHS,
            insert_deltalake=LENGTHS,
            spark_duckdb=LENGTHS,
            spark_deltalake=LENGTHS,
        ),
        written="string",
        declared="not one",
        short=True,
    ),
    Odd(
        "varchar(n)",
        "varchar(3)",
        "'abc'",
        "'abcdef'",
        "abc",
        cells(append=refused(r"the type varchar\(3\)"), insert=LENGTHS),
        written="string",
        declared="not one",
    ),
    Odd(
        "NOT NULL inside of a type",
        "struct<a:int not null>",
        "named_struct('a', 1)",
        "{'a': NULL}",
        "{'a': 1}",
        cells(append=refused("parts that must not be NULL"), insert=refused("NOT NULL constraint failed")),
        written="struct<a:int>",
        declared="not one",
    ),
    Odd(
        "infinite date",
        "date",
        "DATE '9999-12-31'",
        "DATE 'infinity'",
        "9999-12-31",
        cells(append=refused("infinite date or timestamp"), insert=INFINITY, insert_duckdb=EQUAL, insert_deltalake=BROKEN),
        by_duckdb="infinity",
        read="CAST(c AS STRING)",
        short=True,
    ),
    Odd(
        "infinite timestamp",
        "timestamp",
        "TIMESTAMP '9999-12-31 00:00:00'",
        "TIMESTAMPTZ '-infinity'",
        "9999-12-31",
        cells(append=refused("infinite date or timestamp"), insert=INFINITY, insert_duckdb=EQUAL, insert_deltalake=BROKEN),
        by_duckdb="-infinity",
        read="CAST(CAST(c AS DATE) AS STRING)",
    ),
    Odd(
        "string that is not UTF-8",
        "string",
        "CAST(unhex('ff41') AS STRING)",
        "'a'",
        "16",
        cells(duckdb=NOT_UTF8, deltalake=NOT_UTF8),
        by_duckdb="8",
        read="bit_length(c)",
    ),
)
