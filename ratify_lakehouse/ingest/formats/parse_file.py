"""Converts one landed file to one Parquet file with exactly the columns of its bronze table: all of its rows, or none."""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.column_types import SqlType, sql_type
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.engines.duckdb.parquet_files import ParquetFile, write_parquet
from ratify_lakehouse.errors import BadFile, TerminalError
from ratify_lakehouse.ingest.file_source import RESCUED, RESERVED, NewColumns, Source
from ratify_lakehouse.ingest.formats.file_fields import Field, Raw, pair, shown_names
from ratify_lakehouse.ingest.formats.file_readers import MISFIT, reading
from ratify_lakehouse.ingest.formats.inferred_columns import infer, is_plain
from ratify_lakehouse.ingest.list_dates import LANDED_AT, LIST_DATE, ListDate
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    import duckdb

# A file with more uses data as names, and the table could never drop its columns.
_NEW_COLUMNS_LIMIT = 100
_FILE_PATH = "_file_path"


@dataclass(frozen=True)
class Load:
    """Values of the load columns: when the batch was read (with a time zone), and its id.

    Attributes:
        landed_at: Of a file that is a list: when it last changed, where the store reports it.
        list_date: Of such a file: its date; None where its rows have it.
    """

    loaded_at: dt.datetime
    batch_id: str
    landed_at: dt.datetime | None = None
    list_date: dt.date | None = None


@dataclass(frozen=True)
class Parsed:
    """The Parquet file that was written, and how many of its rows have something in `_rescued_data`."""

    written: ParquetFile
    rescued: int


class ColumnsToAdd(TerminalError):
    """A file has columns that its table needs first.

    Attributes:
        columns: The missing columns, with types that all of the file's values fit.
    """

    def __init__(self, path: str, columns: Sequence[Column]) -> None:
        self.path = path
        self.columns = tuple(columns)
        names = ", ".join(f"{column.name} {column.type}" for column in columns)
        super().__init__(f"{path}: the table lacks columns; add them, and parse the file again: {names}")

    def __reduce__(self) -> tuple[Any, ...]:
        # It passes between processes.
        return type(self), (self.path, self.columns)


def parse(
    con: "duckdb.DuckDBPyConnection",
    source: Source,
    columns: Sequence[Column],
    file: str,
    local: Path,
    into: Path,
    load: Load,
) -> Parsed:
    """Write a landed file's records to a Parquet file with the table's columns, in the table's order.

    A value that does not fit its column, and one of a column that the table lacks, goes to `_rescued_data`.

    Args:
        con: A DuckDB connection.
        source: What the file must look like.
        columns: The table's present columns.
        file: The file's name in the landing zone.
        local: Where its bytes are.
        into: Parquet file to write; temporary files are created beside it.
        load: Values of the load columns.

    Raises:
        BadFile: the file cannot be loaded; `into` does not exist then.
        ColumnsToAdd: the source lets its files add columns, and this one has some; `into` does not exist then.
    """
    rescues = any(column.name == RESCUED.name for column in columns)
    wanted = {column.name.lower() for column in columns} - RESERVED
    target = literal(str(into))
    if source.lists:
        load = replace(load, list_date=source.lists.of_file(file, load.landed_at or load.loaded_at))
    try:
        with reading(con, source, file, local, into.parent, wanted) as raw:
            if raw.others:
                settle_others(source, file, raw, rescues=rescues)
            written = write_parquet(con, select_rows(raw, source, columns, FileSql.of(file), load), into)
            count = con.execute(f"SELECT count({RESCUED.name}) FROM read_parquet({target})").fetchone() if rescues else None
    except NewNames as error:
        raise ColumnsToAdd(file, infer(con, source, file, local, error.names)) from None
    except BaseException:
        into.unlink(missing_ok=True)
        raise
    return Parsed(written, int(count[0]) if count else 0)


class NewNames(Exception):
    """Names, in lower case, of fields that have to become columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        super().__init__(names)


def settle_others(source: Source, file: str, raw: Raw, *, rescues: bool) -> None:
    """Decide what to do with a file's fields that are no columns of the table.

    Raises:
        NewNames: some have to become columns.
        BadFile: the file must not have them.
    """
    shown = shown_names(raw.others)
    if source.new_columns is NewColumns.ADD:
        new = [column.lower() for column in map(source.column_of, raw.others) if is_plain(column)]
        if len(new) > _NEW_COLUMNS_LIMIT:
            raise BadFile(file, f"it has {len(new):,} columns that the table lacks: keep data in values, not in names")
        if new:
            raise NewNames(new)
    if source.new_columns is NewColumns.FAIL or not rescues:
        raise BadFile(file, f"the table lacks columns that the file has: {shown}; leave them out, or declare them")
    if not raw.fields:
        raise BadFile(file, f"none of its columns is one of the table's: {shown}; is it another source's file?")


@dataclass(frozen=True)
class FileSql:
    """SQL of a file's name in the landing zone, and of the end of the JSON object that is rescued of a row of it."""

    name: str
    end: str

    @classmethod
    def of(cls, file: str) -> "FileSql":
        """Return the SQL of one file."""
        return cls(literal(file), literal("," + json.dumps({_FILE_PATH: file}, ensure_ascii=False)[1:]))


def select_rows(raw: Raw, source: Source, columns: Sequence[Column], file: FileSql, load: Load) -> str:
    """Return SQL of the rows as they are written.

    It nests three queries, so that no value is computed twice: what the file has for each column (`found`), that as the
    column's type (`value`), and the columns.
    """
    rescues = any(column.name == RESCUED.name for column in columns)
    hidden = {name.lower() for name in source.table.personal}
    filled = [
        _Filled(column, field, column.name.lower() in hidden)
        for column in columns
        if (field := raw.fields.get(column.name.lower())) and column.name not in RESERVED
    ]
    found = "".join(f", {part.field.sql} AS {part.found}" for part in filled)
    values = "".join(f", {part.outer.as_type(part.type)} AS {part.value}" for part in filled)
    outputs = {part.column.name: part.value if rescues else part.or_error for part in filled} | {
        "_source_file": "file",
        "_source_row": "row",
        "_loaded_at": f"TIMESTAMPTZ {literal(load.loaded_at.isoformat())}",
        "_batch_id": literal(load.batch_id),
        RESCUED.name: _rescued([pair(part.outer, part.misfit) for part in filled if not part.always_fits]),
    }
    if source.lists:
        dated = next((part.value for part in filled if part.column.name == source.lists.column), "NULL")
        outputs |= _list_values(source.lists, load, dated)
    top = ", ".join(f"{_not_null(column, outputs.get(column.name))} AS {identifier(column.name)}" for column in columns)
    rest = raw.rest if raw.others and rescues else "''"
    # A JSON object with a name twice has one of the values for most readers.
    names = {name.lower() for name in (*raw.others, *(field.name for field in raw.fields.values()))}
    end = literal("}") if _FILE_PATH in names else file.end
    row = f"{raw.row} AS row, {file.name} AS file, {end} AS rescued_end, {rest} AS rest"
    return f"SELECT {top} FROM (SELECT *{values} FROM (SELECT {row}{found} FROM {raw.relation}))"


@dataclass(frozen=True)
class _Filled:
    """A column of the table, the file's field for it, and whether messages leave its values out."""

    column: Column
    field: Field
    hidden: bool

    @property
    def type(self) -> SqlType:
        return sql_type(self.column.type)

    @property
    def found(self) -> str:
        return identifier(f"found {self.column.name}")

    @property
    def value(self) -> str:
        return identifier(f"value {self.column.name}")

    @property
    def outer(self) -> Field:
        """The field, by its name in the next outer query."""
        return replace(self.field, sql=self.found)

    @property
    def always_fits(self) -> bool:
        return self.field.always_fits(self.type)

    @property
    def misfit(self) -> str:
        return f"{self.found} IS NOT NULL AND {self.value} IS NULL"

    @property
    def or_error(self) -> str:
        if self.always_fits:
            return self.value
        advice = "fix it, or declare `rescue: true`"
        reason = f"' is not of type {self.column.type}; {advice}"
        shown = "'…'" if self.hidden else f"left({self.outer.text}, 80)"
        error = _error(f"column {self.column.name}: '", f"{shown} || {literal(reason)}")
        return f"CASE WHEN {self.misfit} THEN {error} ELSE {self.value} END"


def _list_values(lists: ListDate, load: Load, dated: str) -> dict[str, str]:
    """SQL of the columns of a list, given that of the column that dates rows."""
    date = f"DATE '{load.list_date}'"
    if load.list_date is None:
        error = _error(f"column {lists.column} has no date, which is that of the row's list; fix the row", "''")
        date = f"coalesce(try_cast({dated} AS DATE), {error})"
    return {LIST_DATE: date, LANDED_AT: f"TIMESTAMPTZ {literal((load.landed_at or load.loaded_at).isoformat())}"}


def _not_null(column: Column, value: str | None) -> str:
    value = value or f"CAST(NULL AS {sql_type(column.type).sql})"
    if column.nullable:
        return value
    error = _error(f"column {column.name} must have a value; fix the row", "''")
    return f"CASE WHEN ({value}) IS NULL THEN {error} ELSE {value} END"


def _error(text: str, more: str) -> str:
    return f"error({literal(f'{MISFIT}row ')} || row || {literal(f': {text}')} || {more})"


def _rescued(pairs: Sequence[str]) -> str:
    """SQL of a row's `_rescued_data`: NULL where everything fits."""
    parts = ", ".join([*pairs, "nullif(rest, '')"])
    found = f"concat_ws(',', {parts})"
    return f"CASE WHEN {found} <> '' THEN '{{' || {found} || rescued_end END"
