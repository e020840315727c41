"""A file parsed as a load does it, and what was counted."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.formats.isolated_parsing import parse
from ratify_lakehouse.ingest.formats.parse_file import Load

LOAD = Load(dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC), "corpus-1")


@dataclass(frozen=True)
class ParsedCounts:
    """Rows that were written, and how many of them have something rescued."""

    rows: int
    rescued: int


def parsed(
    con: duckdb.DuckDBPyConnection, source: Source, columns: Sequence[Column], file: str, local: Path, into: Path
) -> ParsedCounts:
    made = parse(con, source, columns, file, local, into, LOAD)
    return ParsedCounts(made.written.rows, made.rescued)
