"""docs/compatibility.md, made from the cases."""

from collections.abc import Iterable, Mapping, Sequence

from tests.compatibility.matrix_cases import INSERT, MAPS, NESTED, ODD, PLAIN
from tests.compatibility.matrix_features import FEATURES
from tests.compatibility.matrix_outcomes import EQUAL, READERS, WRITERS, Cell, Outcome

_HEAD = """# Which engine reads what which wrote

Made by the tests (`RATIFY_WRITE_DOCS=1 pytest tests/compatibility -k document`), which hold each cell both ways: a
difference that is not named here fails them, and so does a limit that has gone. Versions: those of `requirements.lock`.

Three writers: Spark; DuckDB through `DuckDBSession.append`, which this project uses; and DuckDB's own `INSERT` into the
attached catalog, which it does not use (see [writing.md](writing.md)). Three readers: Spark, DuckDB with the catalog
attached, and [deltalake](#deltalake), over a copy of the table that does not say that it belongs to a catalog. *equal*:
every value that was written is read, NULL and the ends of the type among them. *refused*: a clear error, and nothing is
written. *limit*: see below. databricks-sdk reads no rows; the `type_text` and `type_name` that it gets are those of the
table's columns.
"""

_TYPES = """## Types

`declared` is whether a table declaration takes such a column. Values: the least and the most, NULL, NaN, infinities and
-0.0; dates and timestamps of the years 1 and 9999, before 1970, and of the days that the calendar left out in 1582; empty
strings, arrays and maps, 100,000 characters, NUL, characters of four bytes. A query by any of them finds its row in a
file that has no other, so that the statistics in the log and in Parquet are right.
"""

_FEATURES = """## Features of tables

A declared table is made with `delta.columnMapping.mode = none`. The catalog asks for deletion vectors, in-commit
timestamps and v2 checkpoints on every managed table, and refuses to create one without.
"""

_LIMITS: Mapping[str, str] = {
    "Types that hide a schema from DuckDB": """\
One column of TIMESTAMP_NTZ or VARIANT, a DECIMAL directly in a struct or a map, or a field whose name is no plain
identifier: DuckDB's catalog extension does not understand the type's text, and then reads no table of that schema.
Declarations refuse them. Instead: `timestamp` (UTC); JSON as `string`; the decimal in a column of its own or in an array;
plain names. A table that must have such a column goes into a schema that DuckDB is not asked for.""",
    "VOID": """\
A column without a type (`CREATE TABLE … AS SELECT NULL AS c`) makes the table unreadable in DuckDB.
Declarations refuse it. Instead: `CAST(NULL AS <type>)`.""",
    "CHAR and VARCHAR": """\
To Delta both are strings; their length is known to Spark alone, which checks it as it writes and pads CHAR as it reads.
DuckDB's `INSERT` does not check it. Declarations and `append` refuse such columns. Instead: `string`, with a check of the
length.""",
    "Infinite dates and timestamps": """\
DuckDB's `infinity` and `-infinity` are the last and first numbers that the type can hold, which for Spark are days in the
year 5881580 or 290309 BC. DuckDB's `INSERT` writes them so, with statistics that deltalake cannot parse. `append` refuses
them, also inside of arrays, maps and structs. Instead: NULL.""",
    "Strings that are not UTF-8": """\
Spark makes a string of any bytes (`CAST(binary AS STRING)`); DuckDB and deltalake refuse to read the file. Instead:
`binary`, or `make_valid_utf8` before the write.""",
    "DuckDB's INSERT": """\
It fails on values of a map or of an array in a struct (`Failed to cast value`), for it takes the statistics of a part for
the whole; on any row where the keys of a map are no strings; and on rows of two partitions (an internal error, after
which that DuckDB is not to be used any more). Instead: `append`, or Spark where there are partitions.""",
    "Column mapping": """\
DuckDB writes the columns by their logical names: by `INSERT` its rows read as NULL in every engine, or, mapped by id, the
table is unreadable in Spark. Declarations and `append` refuse it. Instead: `ALTER TABLE … SET TBLPROPERTIES
('delta.columnMapping.mode' = 'none')` before DuckDB's first write.""",
    "deltalake": """\
It refuses every table of a catalog (`Max catalog version is required when loading a catalog-managed table`), and its
Python API has no way to give that version. Over a copy that leaves the catalog out of the protocol it reads what the
tables above say; a VARIANT it gives as its two binaries, and tables with type widening it refuses. Instead: DuckDB or
Spark.""",
}

_MORE = """## Values that depend on the session

Two settings that this project gives to its Spark sessions, for sessions of your own:

- `spark.sql.datetime.java8API.enabled=true`: without it Spark's filters on Parquet miss rows with a date or timestamp from
  1582-10-05 to 1582-10-14, whoever wrote them.
- `spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS`: without it Spark writes INT96, which deltalake reads wrong,
  without an error, before 1677 and after 2262.

In a partition column the empty string becomes NULL and -0.0 becomes 0.0, in every engine, for Spark writes them so.

### Zero with a sign

Spark notes -0.0 as the greatest value of a file that holds no greater one. To DuckDB's reader of the log that is less than
0.0: in a query for `x = 0.0` or `x >= 0.0` and nothing else it skips such a file, although -0.0 equals 0.0 in SQL; likewise
a file whose least value is 0.0 in a query for `x <= -0.0`. What `append` writes is found. Instead: write `x + 0.0D` in
Spark, which is never -0.0.
"""


def document() -> str:
    """Return the text of docs/compatibility.md."""
    types = [_line(f"`{type_}`", "yes", _of_type(type_)) for type_ in (*PLAIN, *NESTED, *MAPS)]
    odd = [
        _line(_named(case.name, case.type), "refused" if case.declared else "yes", case.expected)
        if case.expected
        else f"| {_named(case.name, case.type)} | refused | Spark does not create it: `{case.made}` |" + " |" * (_CELLS - 1)
        for case in ODD
    ]
    features = [
        _line(case.name, None, case.expected)
        if case.expected
        else f"| {case.name} | refused by the catalog when it is created |" + " |" * (_CELLS - 1)
        for case in FEATURES
    ]
    limits = [f"### {title}\n\n{text}\n" for title, text in _LIMITS.items()]
    used = {outcome.limit for case in (*ODD, *FEATURES) for outcome in case.expected.values()} - {""}
    assert used == set(_LIMITS)
    return "\n".join(
        [
            *(_HEAD, _TYPES, *_table("type", "declared"), *types, *odd, ""),
            *(_FEATURES, *_table("feature"), *features, ""),
            *("## Limits\n", *limits, _MORE),
        ]
    )


_CELLS = len(WRITERS) * len(READERS)


def _of_type(type_: str) -> Mapping[Cell, Outcome]:
    return {
        (writer, reader): INSERT if writer == "insert" and type_ in MAPS else EQUAL
        for writer in WRITERS
        for reader in READERS
    }


def _named(name: str, type_: str) -> str:
    return f"`{type_}`" if name == type_ else f"{name}: `{type_.replace('`', '')}`"


def _table(*first: str) -> Sequence[str]:
    by = [f"{writer} → {reader}" for writer in WRITERS.values() for reader in READERS.values()]
    return _row([*first, *by]), _row(["---"] * (len(first) + len(by)))


def _line(name: str, declared: str | None, expected: Mapping[Cell, Outcome]) -> str:
    return _row([name, *([declared] if declared else []), *map(str, expected.values())])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
