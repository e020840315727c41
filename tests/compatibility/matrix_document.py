"""docs/compatibility.md, generated from the cases."""

from collections.abc import Iterable, Mapping, Sequence

from ratify_lakehouse.delta.table_features import REFUSALS, Refusal, Use
from tests.compatibility.flink_features import REFUSED as FLINK_REFUSES
from tests.compatibility.matrix_cases import INSERT, MAPS, NESTED, ODD, PLAIN
from tests.compatibility.matrix_features import FEATURES
from tests.compatibility.matrix_outcomes import EQUAL, READERS, WRITERS, Cell, Outcome

_HEAD = """# Which engine reads what which wrote

Look up whether a type or a feature of tables is safe with your engines. Example: a column of `timestamp_ntz` that
Spark writes is a *limit* in DuckDB, so declarations refuse it; [the limit](#types-that-hide-a-schema-from-duckdb)
says what to use instead.

| word | meaning |
| --- | --- |
| equal | every value that was written is read, including NULL and the limits of the type |
| refused | a clear error, and nothing is written |
| limit | see [below](#limits) |

Writers: Spark; DuckDB through `DuckDBSession.append`, which this project uses; DuckDB's own `INSERT`, which it [does
not use](writing.md#how-duckdb-commits). Readers: Spark; DuckDB with the catalog attached; [deltalake](#deltalake),
over a copy without the mark that a catalog manages it. databricks-sdk reads no rows; it gets the columns' types.

The tests generate this page (`RATIFY_WRITE_DOCS=1 pytest tests/compatibility -k document`) and check each cell both
ways, for the versions of `requirements.lock`.
"""

_TYPES = """## Types

`declared` is whether a declaration accepts such a column. The values that were written include minimum, maximum,
NULL, NaN, infinities, -0.0, dates and timestamps of the years 1 and 9999 and of October 1582, empty and large
strings, NUL, and characters of four bytes. Each is also found by a query that skips files by their statistics.
"""

_FEATURES = """## Features of tables

A declared table has `delta.columnMapping.mode = none`. The catalog creates no managed table without deletion vectors,
in-commit timestamps and v2 checkpoints.
"""

_LIMITS: Mapping[str, str] = {
    "Types that hide a schema from DuckDB": """\
DuckDB reads no table of a schema in which one column is a TIMESTAMP_NTZ or VARIANT, has a DECIMAL directly in a
struct or map, or a field whose name is not a plain identifier. Declarations refuse them. Instead: `timestamp` (UTC);
JSON as `string`; the decimal in a column of its own or in an array; plain names; or a schema that DuckDB does not
read.""",
    "VOID": """\
DuckDB cannot read a table with a column without a type (`CREATE TABLE … AS SELECT NULL AS c`). Declarations refuse
it. Instead: `CAST(NULL AS <type>)`.""",
    "CHAR and VARCHAR": """\
To Delta both are strings. Only Spark checks their length and pads CHAR on read; DuckDB's `INSERT` does not.
Declarations and `append` refuse them. Instead: `string`, with a check of the length.""",
    "Infinite dates and timestamps": """\
DuckDB's `infinity` and `-infinity` are days in the year 5881580 or 290309 BC for Spark, and their statistics cannot
be parsed by deltalake. `append` refuses them, also inside arrays, maps and structs. Instead: NULL.""",
    "Strings that are not UTF-8": """\
Spark makes a string of any bytes (`CAST(binary AS STRING)`); DuckDB and deltalake refuse to read the file. Instead:
`binary`, or `make_valid_utf8` before the write.""",
    "DuckDB's INSERT": """\
It fails on values of a map or of an array in a struct (`Failed to cast value`), on rows of maps whose keys are not
strings, and on rows of two partitions, after which that DuckDB instance is unusable. Instead: `append`, or Spark
where there are partitions.""",
    "Column mapping": """\
DuckDB's `INSERT` writes columns by their logical names: its rows read as NULL in every engine, or, mapped by id,
Spark cannot read the table. Declarations and `append` refuse it. Instead: `ALTER TABLE … SET TBLPROPERTIES
('delta.columnMapping.mode' = 'none')` before DuckDB's first write.""",
    "deltalake": """\
It reads no table of a catalog (`Max catalog version is required when loading a catalog-managed table`). From a copy
whose protocol omits the catalog it reads what the tables above show; a VARIANT as its two binaries, and no table with
type widening. Instead: DuckDB or Spark.""",
}

_MORE = """## Values that depend on the session

This project sets two options in its Spark sessions; set them in sessions of your own:

- `spark.sql.datetime.java8API.enabled=true`: without it, filters on Parquet miss rows from 1582-10-05 to 1582-10-14,
  whichever engine wrote them.
- `spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS`: without it, Spark writes INT96, which deltalake reads wrong
  before 1677 and after 2262, without an error.

In a partition column Spark writes an empty text, and the text `__HIVE_DEFAULT_PARTITION__`, as NULL, and -0.0 as 0.0.
This project refuses these texts there, texts whose folder would have a name of more than 255 bytes, and dates beyond
the years 1 to 9999: a table fails with the column and the row, a sync has a row that does not fit, and a job of Flink
ends.

### Zero with a sign

Spark records -0.0 as the maximum of a file that holds no greater value, and DuckDB takes that as less than 0.0: a
query for only `x = 0.0` or `x >= 0.0` skips the file; one for `x <= -0.0` skips a file whose minimum is 0.0. What
`append` writes is found. Instead: write `x + 0.0D` in Spark, which is never -0.0.
"""


_PAIRS = """## Pairs of features

Some features are harmless alone, but not together. In each use that is not Spark's, every pair gives the right rows,
except these, which are refused before anything is read or written:
"""
_USES = {
    Use.QUERY: "a query of DuckDB",
    Use.FILES: "the reading of data files and of the change data feed without Spark",
    Use.APPEND: "`append`",
    Use.MOVE: "a compaction, or another layout",
}

_FLINK = """## Flink

The [sink](flink.md) writes the declared types above, nested ones too, and Spark and DuckDB read them. A timestamp is
`TIMESTAMP_LTZ` with a precision of 6 at most, or `TIMESTAMP` where the column is `timestamp_ntz`. NULL in a NOT NULL
column and other types than the table's end the job. Of the features above it refuses:
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
            *(_PAIRS, *map(_refusal, REFUSALS), ""),
            *(_FLINK, *(f"- {name}" for name in FLINK_REFUSES), ""),
            *("## Limits\n", *limits, _MORE),
        ]
    )


def _refusal(refusal: Refusal) -> str:
    uses = [text for use, text in _USES.items() if use in refusal.uses]
    return f"- {' and '.join(sorted(refusal.features))}: {'; '.join(uses)}"


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
