"""Checks of landed files: no row is lost and none is doubled between the landing zone and bronze."""

import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from components.checks.history_findings import Finding
from ingest.file_source import Source
from ingest.formats.parse_file import Load, parse
from ingest.ledger.file_ledger import LedgerEntry, Status
from ingest.ledger.ledger_queries import table_entries
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.errors import BadFile
from resources.landing.landing_zone import LandedFile, LandingZone

WAIT_LIMIT = timedelta(hours=1)
"""A file that waits longer for the sensor fails the check."""


def files_loaded_once(landing: LandingZone, duckdb: DuckDB, source: Source) -> Finding:
    """Check that every landed file is in bronze exactly once, or in the ledger with the reason why not."""
    landed = landing.files(source.pattern)
    with duckdb.session() as session:
        ledger = table_entries(session, source)
        in_bronze = _rows_by_file(session, source)
    waiting = ledger.waiting(landed)
    loaded = list(ledger.held)
    expected = Counter[str]()
    for entry in loaded:
        expected[entry.path] += entry.rows
    doubled = sorted(path for path, rows in expected.items() if in_bronze.get(path, 0) > rows)
    lost = [path for path, rows in expected.items() if in_bronze.get(path, 0) < rows]
    unrecorded = sorted(set(in_bronze) - set(expected))
    overdue = [file.path for file in waiting if _overdue(file)]
    faults = {"doubled": doubled, "lost": lost, "not in the ledger": unrecorded, "waiting too long": overdue}
    numbers = {
        "files landed": len(landed),
        "loaded": len(loaded),
        **{status.value: sum(e.status is status for e in ledger.entries) for status in (Status.REPEATED, Status.REFUSED)},
        "waiting": len(waiting),
        **{name: len(paths) for name, paths in faults.items()},
    }
    wrong = "; ".join(f"{name}: {', '.join(paths[:5])}" for name, paths in faults.items() if paths)
    return Finding(not wrong, wrong or f"{len(loaded)} files are in bronze, each once.", numbers)


def csv_rows_in_bronze(landing: LandingZone, duckdb: DuckDB, source: Source) -> Finding:
    """Check that bronze has exactly the rows of the loaded files, by reading each file again.

    Files that have changed or are missing since cannot be compared; they are counted.
    """
    landed = {file.path for file in landing.files(source.pattern)}
    with duckdb.session() as session, tempfile.TemporaryDirectory(prefix="ratify-") as folder:
        loaded = list(table_entries(session, source).held)
        in_bronze = _rows_by_file(session, source)
        read = {
            entry.path: rows
            for entry in loaded
            if entry.path in landed and (rows := _read_again(session, landing, source, entry, Path(folder))) is not None
        }
    csv_rows, bronze_rows = sum(read.values()), sum(in_bronze.get(path, 0) for path in read)
    wrong = sorted(path for path, rows in read.items() if in_bronze.get(path, 0) != rows)
    numbers = {
        "rows in CSV files": csv_rows,
        "rows in bronze": bronze_rows,
        "files read": len(read),
        "files missing or changed since": len(loaded) - len(read),
    }
    if wrong:
        return Finding(False, f"Row counts differ for {', '.join(wrong[:5])} ({len(wrong)} files).", numbers)
    return Finding(True, f"{csv_rows:,} rows in {len(read)} files, {bronze_rows:,} in bronze.", numbers)


def _rows_by_file(session: DuckDBSession, source: Source) -> dict[str, int]:
    rows = session.rows(f"SELECT _source_file, count(*) FROM {ALIAS}.{source.table_name} GROUP BY ALL")
    return {str(path): int(count) for path, count in rows}


def _read_again(
    session: DuckDBSession, landing: LandingZone, source: Source, record: LedgerEntry, folder: Path
) -> int | None:
    fetched = landing.fetch(record.path, folder)
    try:
        if fetched.sha256 != record.sha256:
            return None
        load = Load(datetime.now(UTC), "check")
        parquet = fetched.local.with_suffix(".parquet")
        return parse(
            session.con, source, session.columns(source.table), record.path, fetched.local, parquet, load
        ).written.rows
    except BadFile:
        return None
    finally:
        fetched.local.unlink()


def _overdue(file: LandedFile) -> bool:
    return file.modified_at is not None and datetime.now(UTC) - file.modified_at > WAIT_LIMIT
