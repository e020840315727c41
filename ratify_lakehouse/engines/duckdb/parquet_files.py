"""Parquet files written by DuckDB, with their statistics for Delta's log."""

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ratify_lakehouse.delta.snapshot import DataFile
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.errors import AppendFailed
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Delta's readers skip files by these bounds. Longer strings would need a truncated prefix, which is not worth the effort.
_LONGEST_STRING = 32
_MOST_COLUMNS = 32
_INFINITE = frozenset({"infinity", "-infinity"})
# Delta Kernel, which reads the log for DuckDB, misreads the JSON escapes of characters from here on.
_MISREAD = "\U00100000"


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file: rows, bytes, and Delta's statistics of it (numRecords, nullCount, minValues, maxValues)."""

    rows: int
    size: int
    stats: dict[str, Any]


def write_parquet(con: "DuckDBPyConnection", select: str, path: Path) -> ParquetFile:
    """Write the rows of a query to a Parquet file. After an error there is no file.

    Raises:
        AppendFailed: a date or timestamp is infinite; other engines would read a day in the year 5881580 or 294247.
        duckdb.Error: as the query does.
    """
    try:
        target = literal(str(path))
        returned = con.execute(f"COPY ({select}) TO {target} (FORMAT parquet, RETURN_STATS)").fetchall()
        if not returned:
            # For an empty result DuckDB returns no statistics.
            return ParquetFile(0, path.stat().st_size, {"numRecords": 0})
        _, rows, size, _, columns, _ = returned[0]
        _refuse_infinite(con, target, columns)
        types = {name: str(type_) for name, type_, *_ in con.execute(f"DESCRIBE FROM {target}").fetchall()}
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return ParquetFile(rows, size, _stats(rows, columns, types))


def put_data_file(
    storage: TableStorage,
    local: Path,
    written: ParquetFile,
    without: Collection[str] = (),
    partition_values: Mapping[str, str | None] | None = None,
    below: str = "",
) -> DataFile:
    """Copy a Parquet file to a table's storage, and return it as a data file that no version names yet.

    Args:
        storage: The table's.
        local: The file, which stays.
        written: What it has.
        without: Columns of it that are none of the table, so that the log has no statistics of them.
        partition_values: Of its rows, if the table is partitioned.
        below: Folder of the table that gets it; by default the table's own.

    Raises:
        StorageUnavailable.
    """
    stats = dict(written.stats)
    for key in ("nullCount", "minValues", "maxValues") if without and written.rows else ():
        of_columns: dict[str, Any] = stats[key]
        stats[key] = {name: value for name, value in of_columns.items() if name not in without}
    path = "/".join(filter(None, [below, f"duckdb-{uuid4()}.parquet"]))
    storage.put(local, path)
    return DataFile(path, written.rows, written.size, stats, partition_values or {})


def _refuse_infinite(con: "DuckDBPyConnection", target: str, columns: Mapping[str, Mapping[str, str]]) -> None:
    # Only a date, a timestamp or a text can have such a bound, so most files need no further check.
    if not any({stats.get("min"), stats.get("max")} & _INFINITE for stats in columns.values()):
        return
    found = con.execute(
        f"SELECT path_in_schema FROM parquet_metadata({target}) WHERE type <> 'BYTE_ARRAY' "
        "AND (list_contains($1, stats_min_value) OR list_contains($1, stats_max_value))",
        [sorted(_INFINITE)],
    ).fetchone()
    if found:
        raise AppendFailed(f"Column {found[0]}: an infinite date or timestamp exists in DuckDB alone; write NULL instead.")


def _stats(rows: int, columns: Mapping[str, Mapping[str, str]], types: Mapping[str, str]) -> dict[str, Any]:
    nulls, least, most = dict[str, int](), dict[str, Any](), dict[str, Any]()
    for name, type_ in list(types.items())[:_MOST_COLUMNS]:
        stats = columns.get(identifier(name))
        if stats is None or "null_count" not in stats:
            continue
        nulls[name] = int(stats["null_count"])
        bounds = [_bound(type_, stats.get(side)) for side in ("min", "max")]
        if stats.get("has_nan") != "true" and None not in bounds:
            # Readers may sort -0.0 before 0.0, which are equal in SQL: the bounds include both zeros.
            least[name], most[name] = (
                zero if bound == 0.0 and isinstance(bound, float) else bound
                for bound, zero in zip(bounds, (-0.0, 0.0), strict=True)
            )
    return {"numRecords": rows, "nullCount": nulls, "minValues": least, "maxValues": most, "tightBounds": True}


def _bound(type_: str, text: str | None) -> Any:
    """A bound as Delta's JSON has it, or None if there is none."""
    reader = _BOUNDS.get(type_)
    return reader(text) if reader and text is not None else None


def _number(text: str) -> float | None:
    return float(text) if isfinite(float(text)) else None


def _short(text: str) -> str | None:
    return text if len(text) <= _LONGEST_STRING and max(text, default="") < _MISREAD else None


def _moment(text: str) -> str | None:
    # Not by strftime, whose %Y has fewer than four digits before the year 1000.
    return _date(text) and dt.datetime.fromisoformat(text).astimezone(dt.UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def _date(text: str) -> str | None:
    """The text, unless its year is one that other readers may not understand (infinity, BC, beyond 9999)."""
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return text


_BOUNDS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _number),
    "DATE": _date,
    "TIMESTAMP WITH TIME ZONE": _moment,
    "VARCHAR": _short,
}
