"""CSV files with the same columns, read in one pass: for small files, what DuckDB does once a pass takes the most time."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.engines.duckdb.parquet_files import ParquetFile, write_parquet
from ratify_lakehouse.errors import TransientError
from ratify_lakehouse.ingest.file_source import RESCUED, RESERVED, Source
from ratify_lakehouse.ingest.formats.file_fields import Raw, raw
from ratify_lakehouse.ingest.formats.file_readers import RECORDS, csv_fields, csv_header, csv_scan
from ratify_lakehouse.ingest.formats.parse_file import FileSql, Load, select_rows, settle_others
from ratify_lakehouse.sql.duckdb_sql import literal

if TYPE_CHECKING:
    import duckdb

_HEAD = 64 * 1024


class RowsNotTogether(TransientError):
    """The rows of one file do not follow each other, so that their numbers are not known; read file by file, they are."""


@dataclass(frozen=True)
class CsvFile:
    """A landed CSV file, as `unpacked` gives it.

    Attributes:
        file: Its name in the landing zone.
        path: Where its bytes are.
        names: Its columns.
        start: How its text begins: with a byte order mark or not, and with which line end. DuckDB looks at the first file's.
    """

    file: str
    path: Path
    names: tuple[str, ...]
    start: tuple[bool, bool]

    @property
    def group(self) -> tuple[object, ...]:
        """What files have in common that can be read in one pass."""
        return self.names, self.start


@dataclass(frozen=True)
class ParsedGroup:
    """The Parquet file of a group, and of each file the rows and how many of them have something in `_rescued_data`."""

    written: ParquetFile
    counts: tuple[tuple[int, int], ...]


def csv_file(source: Source, columns: Sequence[Column], file: str, path: Path) -> CsvFile:
    """Return a landed CSV file as part of a group.

    Args:
        source: What it must look like.
        columns: The table's present columns.
        file: Its name in the landing zone.
        path: Where its bytes are, unpacked.

    Raises:
        BadFile: its header cannot be read, or has columns that it must not have.
        NewNames: the table has to get columns first.
    """
    names = csv_header(source, file, path)
    opened = _opened(source, columns, names)
    if opened.others:
        settle_others(source, file, opened, rescues=_rescues(columns))
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    return CsvFile(file, path, names, (head.startswith(b"\xef\xbb\xbf"), head.partition(b"\n")[0].endswith(b"\r")))


def parse_group(
    con: "duckdb.DuckDBPyConnection",
    source: Source,
    columns: Sequence[Column],
    files: Sequence[CsvFile],
    into: Path,
    load: Load,
) -> ParsedGroup:
    """Write the records of several files to one Parquet file, each as `parse_file.parse` writes it.

    After any error there is no file: which file of the group has caused it, and why, is known where each is parsed alone.

    Args:
        con: A DuckDB connection.
        source: What the files must look like.
        columns: The table's present columns.
        files: Files of one group, each from `csv_file`.
        into: Parquet file to write.
        load: Values of the load columns.

    Raises:
        duckdb.Error: a file is damaged, or does not fit.
        AppendFailed: see `write_parquet`.
        RowsNotTogether: see there.
    """
    import duckdb

    try:
        first_rows, counts = _read(con, source, files)
        opened = _opened(source, columns, files[0].names, f"rowid + 1 - {first_rows}[place]")
        each = [FileSql.of(file.file) for file in files]
        name, end = ([getattr(sql, part) for sql in each] for part in ("name", "end"))
        of_row = FileSql(f"[{', '.join(name)}][place]", f"[{', '.join(end)}][place]")
        written = write_parquet(con, select_rows(opened, source, columns, of_row, load), into)
        rescued = dict[str, int]()
        if _rescues(columns):
            counted = f"SELECT _source_file, count({RESCUED.name}) FROM read_parquet({literal(str(into))}) GROUP BY ALL"
            rescued = dict(con.execute(counted).fetchall())
    except BaseException:
        into.unlink(missing_ok=True)
        raise
    finally:
        # This fails too in a transaction that the error has aborted; the next file replaces the table.
        with suppress(duckdb.Error):
            con.execute(f"DROP TABLE IF EXISTS temp.{RECORDS}")
    return ParsedGroup(written, tuple((rows, rescued.get(file.file, 0)) for file, rows in zip(files, counts, strict=True)))


def _read(con: "duckdb.DuckDBPyConnection", source: Source, files: Sequence[CsvFile]) -> tuple[list[int], list[int]]:
    """Read the files' records into RECORDS, in order, each with its file's place; return each file's first row and count."""
    paths = [file.path for file in files]
    scan = csv_scan(source, files[0].names, paths, ", filename = true")
    place = f"list_position([{', '.join(literal(str(path)) for path in paths)}], filename)"
    con.execute(f"CREATE OR REPLACE TEMP TABLE {RECORDS} AS SELECT {place} AS place, * EXCLUDE (filename) FROM {scan}")
    found = con.execute(
        f"SELECT coalesce(place, 0), min(rowid), max(rowid), count(*) FROM {RECORDS} GROUP BY ALL"
    ).fetchall()
    firsts, counts = [0] * len(files), [0] * len(files)
    for at, first, last, count in found:
        if not at or last - first + 1 != count:
            raise RowsNotTogether(f"{files[at - 1].file}: its rows are not consecutive; load it on its own.")
        firsts[at - 1], counts[at - 1] = first, count
    return firsts, counts


def _opened(source: Source, columns: Sequence[Column], names: Sequence[str], row: str = "") -> Raw:
    wanted = {column.name.lower() for column in columns} - RESERVED
    return raw(RECORDS, row, csv_fields(source, names), wanted)


def _rescues(columns: Sequence[Column]) -> bool:
    return any(column.name == RESCUED.name for column in columns)
