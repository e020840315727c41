"""The three readers: a CSV, JSON lines or Parquet file, opened for its fields to be looked at and written out."""

import csv
import io
import re
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.errors import BadFile
from ratify_lakehouse.ingest.file_source import CsvDialect, Format, Source
from ratify_lakehouse.ingest.formats.file_fields import Field, FieldKind, Raw, check_names, doubled_names, raw
from ratify_lakehouse.ingest.formats.fitting_values import opened
from ratify_lakehouse.ingest.formats.unpacked_file import LINE_LIMIT, unpacked
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    import duckdb

RECORDS = "ratify_records"
"""Temporary table with a text file's records in their order, whose rowid numbers them."""

MISFIT = "ratify: "
"""Prefix of a reason of our own that SQL raises, by `error(…)`, while a file is written out."""

# Numbering records while they are read limits DuckDB to one thread. That is cheapest with one thread or little to read:
# of 116 MB, 1.3 s against 1.7 s of computing by way of a table, but 1.3 s against 0.9 s on the clock with two threads.
_MANY_THREADS_BYTES = 8 << 20
_HEADER_LIMIT = 64 * 1024
_FOR_SPREADSHEETS = re.compile(rb'(?:\xef\xbb\xbf)?"?(?P<line>sep=(?P<delimiter>[^\r\n"]))"?\r?\n', re.IGNORECASE)
_KEYS_LIMIT = 10_000


@contextmanager
def reading(
    con: "duckdb.DuckDBPyConnection",
    source: Source,
    file: str,
    local: Path,
    scratch: Path | None,
    wanted: Collection[str] | None = None,
    sample: int | None = None,
) -> Generator[Raw]:
    """Open a landed file.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        file: Its name in the landing zone.
        local: Where its bytes are.
        scratch: Folder for temporary files; None: that of the system.
        wanted: Columns whose fields are wanted, in lower case; None: all fields.
        sample: How many records are read at most, of text; None: all.

    Raises:
        BadFile: the file cannot be read; also for DuckDB's errors inside of the `with`.
    """
    import duckdb

    with unpacked(source, file, local, scratch) as (form, path):
        limit = f" LIMIT {sample}" if sample else ""
        try:
            match form:
                case Format.CSV:
                    yield _csv(con, source, file, path, wanted, limit)
                case Format.JSONL:
                    yield _jsonl(con, source, file, path, wanted, limit)
                case Format.PARQUET:
                    yield _parquet(con, source, file, path, wanted)
        except duckdb.Error as error:
            if _is_ours(error):
                raise
            raise BadFile(file, _reason(form, str(error).replace(str(path), file))) from error
        finally:
            # This fails too in a transaction that the error has aborted; the next file replaces the table.
            with suppress(duckdb.Error):
                con.execute(f"DROP TABLE IF EXISTS temp.{RECORDS}")


def _csv(
    con: "duckdb.DuckDBPyConnection", source: Source, file: str, path: Path, wanted: Collection[str] | None, limit: str
) -> Raw:
    names = csv_header(source, file, path)
    scan = f"FROM {csv_scan(source, names, [path])}{limit}"
    fields = csv_fields(source, names)
    threads = con.execute("SELECT current_setting('threads')").fetchone()
    # DuckDB ends with an internal error where a value that is not UTF-8 is read while another column is left out.
    every = wanted is None or all(field.column.lower() in wanted for field in fields)
    if every and (threads == (1,) or path.stat().st_size < _MANY_THREADS_BYTES):
        return raw(f"(SELECT *, row_number() OVER () AS record {scan})", "record", fields, wanted)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {RECORDS} AS {scan}")
    return raw(RECORDS, "rowid + 1", fields, wanted)


def csv_fields(source: Source, names: Sequence[str]) -> list[Field]:
    """Return the fields of CSV files with these columns, as `csv_scan` names them."""
    decimal, thousands = source.csv.decimal, source.csv.thousands
    return [
        Field(name, f"c{number}", column=source.column_of(name), decimal=decimal, thousands=thousands)
        for number, name in enumerate(names)
    ]


def csv_scan(source: Source, names: Sequence[str], paths: Sequence[Path], more: str = "") -> str:
    """Return SQL that reads CSV files with the same columns, which are `c0`, `c1` and so on: only the table has their names.

    `more` are further options of `read_csv`.
    """
    columns = ", ".join(f"c{number}: 'VARCHAR'" for number in range(len(names)))
    return (
        f"read_csv([{', '.join(literal(str(path)) for path in paths)}], columns = {{{columns}}}, "
        f"header = {source.csv.header}, auto_detect = false, strict_mode = true, delim = {literal(source.csv.delimiter)}, "
        f"quote = {literal(source.csv.quote)}, escape = {literal(source.csv.escape)}, "
        f"nullstr = [{', '.join(map(literal, source.csv.nulls))}], max_line_size = {LINE_LIMIT}, null_padding = false, "
        f"compression = 'none', hive_partitioning = false{more})"
    )


def csv_header(source: Source, file: str, path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a CSV file: those in its header, or the declared ones where it has none.

    Raises:
        BadFile: the header cannot be read, or is not as declared.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEADER_LIMIT)
    if named := _FOR_SPREADSHEETS.match(head):
        line, delimiter = (named.group(part).decode("utf-8", "replace") for part in ("line", "delimiter"))
        raise BadFile(
            file,
            f"its first line {line!r} names the delimiter for a spreadsheet; remove the line, and declare the delimiter "
            f"{delimiter!r}",
        )
    return _header(source, file, head) if source.csv.header else source.header


def _header(source: Source, file: str, head: bytes) -> tuple[str, ...]:
    if b"\n" not in head:
        raise BadFile(
            file,
            f"the first line is longer than {_HEADER_LIMIT:,} bytes: this is not a CSV file with a header; land one, or "
            "declare its format",
        )
    try:
        line = _first_record(head.decode("utf-8-sig", "surrogateescape"), source.csv)
        "".join(line).encode()
    except UnicodeEncodeError as error:
        raise BadFile(file, "the header is not UTF-8; land it as UTF-8, or declare its encoding") from error
    except csv.Error as error:
        raise BadFile(file, f"the header cannot be read ({error}); fix its quotes") from error
    found = tuple(name.strip() for name in line)
    if source.header and found != source.header:
        raise BadFile(file, _header_error(source.header, found))
    check_names(source, file, found)
    return found


def _first_record(text: str, dialect: CsvDialect) -> list[str]:
    escape = dialect.escape if dialect.escape != dialect.quote else None
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        doublequote=escape is None,
        escapechar=escape or None,
    )
    return next(islice(reader, 1), [])


def _header_error(expected: tuple[str, ...], found: tuple[str, ...]) -> str:
    if extra := [name for name in found if name not in expected]:
        return f"the header has columns that are not expected: {', '.join(extra)[:200]}; declare them, or leave them out"
    if missing := [name for name in expected if name not in found]:
        return f"the header lacks columns: {', '.join(missing)[:200]}; land the file with all declared columns"
    return f"the header's columns are in another order: expected {','.join(expected)}"


def _jsonl(
    con: "duckdb.DuckDBPyConnection", source: Source, file: str, path: Path, wanted: Collection[str] | None, limit: str
) -> Raw:
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {RECORDS} AS SELECT json FROM read_json_objects({literal(str(path))}, "
        f"format = 'newline_delimited', compression = 'uncompressed', maximum_object_size = {LINE_LIMIT}, "
        f"hive_partitioning = false){limit}"
    )
    _check_objects(con, file)
    each = "unnest(json_keys(json)) AS key, generate_subscripts(json_keys(json), 1) AS place"
    found = con.execute(
        f"SELECT key FROM (SELECT rowid, {each} FROM {RECORDS}) GROUP BY key "
        f"ORDER BY min(rowid), arg_min(place, rowid) LIMIT {_KEYS_LIMIT + 1}"
    ).fetchall()
    keys = [str(key) for (key,) in found]
    if len(keys) > _KEYS_LIMIT:
        raise BadFile(file, f"its objects have more than {_KEYS_LIMIT:,} different keys: keep data in values, not in keys")
    # One key in several cases is one field.
    check_names(source, file, {key.lower(): key for key in keys}.values())
    # DuckDB drops all names of a struct with an empty one.
    picked = [key for key in keys if key and (wanted is None or source.column_of(key).lower() in wanted)]
    record, fields = _json_fields(source, picked)
    relation = f"(SELECT rowid, json, {record} AS j FROM {RECORDS})"
    others = tuple(key for key in keys if source.column_of(key).lower() not in fields)
    return Raw(relation, "rowid + 1", fields, others, _rest(picked))


def _json_fields(source: Source, keys: Sequence[str]) -> tuple[str, dict[str, Field]]:
    """SQL of a record `j` with these keys, and the fields in it, by their columns."""

    def field(key: str, sql: str) -> Field:
        return Field(key, sql, FieldKind.JSON, column=source.column_of(key))

    spellings = dict[str, list[str]]()
    for key in keys:
        spellings.setdefault(key.lower(), []).append(key)
    if len(spellings) == len(keys):
        found = [field(key, f"j.{identifier(key)}") for key in keys]
        return (opened("json", keys) if keys else "NULL"), {field.column.lower(): field for field in found}
    # Objects that spell a key in different cases: a struct would merge them into one field.
    found = [field(same[0], f"coalesce({', '.join(f'j[{literal(key)}]' for key in same)})") for same in spellings.values()]
    return "CAST(json AS MAP(VARCHAR, JSON))", {field.column.lower(): field for field in found}


def _check_objects(con: "duckdb.DuckDBPyConnection", file: str) -> None:
    # A key in two cases would be one column twice.
    folded = "list_distinct(list_transform(json_keys(json), lambda key: lower(key)))"
    found = con.execute(
        f"SELECT min(rowid) FILTER (json_type(json) <> 'OBJECT'), min(rowid) FILTER (len(json_keys(json)) <> len({folded})) "
        f"FROM {RECORDS}"
    ).fetchone()
    no_object, twice = found or (None, None)
    if no_object is not None:
        raise BadFile(file, f"record {no_object + 1} is not a JSON object; land one object a line, not a list of them")
    if twice is not None:
        raise BadFile(file, f"record {twice + 1} has a key twice (names ignore case); write each key once")


def _rest(picked: list[str]) -> str:
    entry = Field("", "e.value", FieldKind.JSON)
    known = ", ".join(map(literal, picked)) or "NULL"
    entries = "map_entries(CAST(json AS MAP(VARCHAR, JSON)))"
    others = f"list_filter({entries}, lambda e: e.value IS NOT NULL AND e.key NOT IN ({known}))"
    return f"array_to_string(list_transform({others}, lambda e: to_json(e.key)::VARCHAR || ':' || {entry.json}), ',')"


def _parquet(con: "duckdb.DuckDBPyConnection", source: Source, file: str, path: Path, wanted: Collection[str] | None) -> Raw:
    options = f"{literal(str(path))}, hive_partitioning = false"
    described = con.execute(f"DESCRIBE FROM read_parquet({options})").fetchall()
    names = parquet_names(con, file, path)
    if "file_row_number" in (name.lower() for name in names):
        raise BadFile(file, "it has a column file_row_number, which is DuckDB's own name for a row's place; rename it")
    check_names(source, file, names)
    # DuckDB names a column without a name.
    fields = (
        Field(name, identifier(read), FieldKind.TYPED, str(held), source.column_of(name))
        for name, (read, held, *_) in zip(names, described, strict=True)
    )
    return raw(f"read_parquet({options}, file_row_number = true)", "file_row_number + 1", fields, wanted)


def parquet_names(con: "duckdb.DuckDBPyConnection", file: str, path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file as they are written there.

    DuckDB numbers the second of two names that differ by case alone, so that it would depend on their order which is which.

    Raises:
        BadFile: two fields of a struct have one name, or a column has times in nanoseconds, which DuckDB cuts.
    """
    schema = con.execute(f"SELECT name, num_children, logical_type FROM parquet_schema({literal(str(path))})").fetchall()
    if cut := [name for name, _, logical in schema if "TimeType" in (logical or "") and "NANOS=NanoSeconds" in logical]:
        raise BadFile(
            file, f"the column {cut[0]!r} has times in nanoseconds, which would be cut: write microseconds, or text"
        )
    elements = iter(schema)

    def names_in(count: int) -> list[str]:
        found = list[str]()
        for _ in range(count):
            name, children, _ = next(elements)
            found.append(str(name))
            if doubled := doubled_names(names_in(children or 0)):
                first, second = doubled
                raise BadFile(
                    file, f"two fields of {name!r} are called {first!r} and {second!r}; names ignore case: rename one"
                )
        return found

    _, columns, _ = next(elements)
    return names_in(columns or 0)


def _is_ours(error: "duckdb.Error") -> bool:
    """Whether the error is this machine's, so that a retry may succeed."""
    import duckdb

    ours = duckdb.OutOfMemoryException | duckdb.InterruptException | duckdb.FatalException | duckdb.ConnectionException
    return isinstance(error, ours | duckdb.TransactionException) or "No space left" in str(error)


_CAUSES = (
    ("Maximum line size", f"a line is longer than {LINE_LIMIT:,} bytes; is a quote not closed?"),
    (
        "Expected Number of Columns",
        "a line has another number of columns than the header; quote values with delimiters, and end no line with one",
    ),
    ("unterminated quote", "a quoted value is not closed; double the quotes inside of values, or land the whole file again"),
    (
        "invalid state",
        "its lines end in different ways (CRLF, LF, CR), or a value holds a line end without quotes; end all alike",
    ),
    ("nicode", "a value is not UTF-8; land it as UTF-8, or declare its encoding"),
    ("UTF-8", "a value is not UTF-8; land it as UTF-8, or declare its encoding"),
)


def _reason(form: Format, text: str) -> str:
    if MISFIT in text:
        return text.partition(MISFIT)[2]
    if form is Format.PARQUET:
        return f"the Parquet file is damaged ({text.splitlines()[0][:200]}); write and land it again"
    if form is Format.JSONL:
        # DuckDB counts lines from 2.
        if found := re.search(r"in line (\d+): (.*)", text):
            reason = found.group(2).partition(". Try")[0]
            return f"line {int(found.group(1)) - 1} is not JSON: {reason}; land one whole object a line"
        return f"the file is not JSON lines ({text.splitlines()[0][:200]}); land one whole object a line"
    cause = next((cause for mark, cause in _CAUSES if mark in text), f"{text.splitlines()[0][:200]}; fix the file")
    line = re.search(r"CSV Error on Line: (\d+)", text)
    return f"line {line.group(1)}: {cause}" if line else cause
