"""Checks of rows: none is lost and none is doubled between the landing zone, bronze and silver."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from components.checks.history_findings import Finding
from ingest.file_source import Source
from ingest.formats.parse_file import Load, parse
from ingest.ledger.file_ledger import LEDGER, Status
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.errors import BadFile
from resources.landing.landing_zone import LandedFile, LandingZone

WAIT_LIMIT = timedelta(hours=1)
"""A file may wait this long for the sensor before it counts as forgotten."""


@dataclass(frozen=True)
class LedgerRecord:
    """A ledger entry: one version of one landed file."""

    path: str
    fingerprint: str
    sha256: str
    status: Status
    rows: int
    reason: str


def files_loaded_once(landing: LandingZone, duckdb: DuckDB, source: Source) -> Finding:
    """Check whether every landed file is in bronze exactly once, or in the ledger with a reason why not."""
    landed = landing.files(source.pattern)
    with duckdb.session() as session:
        ledger = _ledger_records(session, source)
        in_bronze = _rows_by_file(session, source)
    known = {(entry.path, entry.fingerprint) for entry in ledger}
    waiting = [file for file in landed if (file.path, file.fingerprint) not in known]
    loaded = _in_bronze(ledger)
    expected = Counter[str]()
    for entry in loaded:
        expected[entry.path] += entry.rows
    versions = Counter((entry.path, entry.sha256) for entry in loaded)
    doubled = sorted(
        {path for (path, _), count in versions.items() if count > 1}
        | {path for path, rows in expected.items() if in_bronze.get(path, 0) > rows}
    )
    lost = [path for path, rows in expected.items() if in_bronze.get(path, 0) < rows]
    unrecorded = sorted(set(in_bronze) - set(expected))
    forgotten = [file.path for file in waiting if _overdue(file)]
    faults = {"doubled": doubled, "lost": lost, "not in the ledger": unrecorded, "waiting too long": forgotten}
    numbers = {
        "files landed": len(landed),
        "loaded": len(loaded),
        **{
            status.value: sum(entry.status is status for entry in ledger) for status in (Status.REPEATED, Status.QUARANTINED)
        },
        "waiting": len(waiting),
        **{name: len(paths) for name, paths in faults.items()},
    }
    said = "; ".join(f"{name}: {', '.join(paths[:5])}" for name, paths in faults.items() if paths)
    return Finding(not said, said or f"{len(loaded)} files are in bronze, each once.", numbers)


def csv_rows_in_bronze(landing: LandingZone, duckdb: DuckDB, source: Source) -> Finding:
    """Check whether bronze has just as many rows as the files that were loaded, by reading each of them again.

    Only files whose bytes are still those that were loaded can be compared; the others are counted.
    """
    here = {file.path for file in landing.files(source.pattern)}
    with duckdb.session() as session, tempfile.TemporaryDirectory(prefix="ratify-") as folder:
        loaded = _in_bronze(_ledger_records(session, source))
        in_bronze = _rows_by_file(session, source)
        again = {
            entry.path: rows
            for entry in loaded
            if entry.path in here and (rows := _read_again(session, landing, source, entry, Path(folder))) is not None
        }
    csv_rows, bronze_rows = sum(again.values()), sum(in_bronze.get(path, 0) for path in again)
    wrong = sorted(path for path, rows in again.items() if in_bronze.get(path, 0) != rows)
    numbers = {
        "rows in CSV files": csv_rows,
        "rows in bronze": bronze_rows,
        "files read": len(again),
        "files gone or changed since": len(loaded) - len(again),
    }
    if wrong:
        return Finding(False, f"Row counts differ for {', '.join(wrong[:5])} ({len(wrong)} files).", numbers)
    return Finding(True, f"{csv_rows:,} rows in {len(again)} files, {bronze_rows:,} in bronze.", numbers)


def count_fates(session: DuckDBSession, bronze: str, silver: str, quarantine: str) -> dict[str, int]:
    """Count what became of each bronze flight; tables are named as DuckDB knows them.

    DuckDB counts what Spark computed: the same rows, read by an engine that had no part in writing them.
    """
    query = (Path(__file__).parent / "flights_reconciled.sql").read_text()
    return session.records(query.format(bronze=bronze, silver=silver, quarantine=quarantine))[0]


def flights_reconciled(counts: Mapping[str, int]) -> Finding:
    """Check whether each bronze flight is in silver, in quarantine, or a duplicate of one in silver.

    Args:
        counts: From `count_fates`. `bronze`, `silver`, `quarantine`: rows; `duplicates`: bronze rows that are in neither
            but have the key of a row in silver; `unaccounted`: those that are nowhere; `invented`: rows of silver or
            quarantine that no bronze row stands behind.
    """
    total = counts["silver"] + counts["quarantine"] + counts["duplicates"]
    passed = counts["bronze"] == total and not counts["unaccounted"] and not counts["invented"]
    said = (
        f"bronze {counts['bronze']:,} = silver {counts['silver']:,} + quarantine {counts['quarantine']:,} + duplicates "
        f"{counts['duplicates']:,}"
    )
    if not passed:
        said = f"Not reconciled: {said} does not hold, or {counts['unaccounted']:,} rows are nowhere and "
        said += f"{counts['invented']:,} came from nowhere."
    return Finding(passed, said, dict(counts))


def _in_bronze(ledger: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """The ledger entries whose rows are in bronze: of each version of a file as many as were not withdrawn again."""
    withdrawn = Counter((entry.path, entry.fingerprint) for entry in ledger if entry.status is Status.WITHDRAWN)
    kept = list[LedgerRecord]()
    for entry in ledger:
        if entry.status is Status.LOADED and not withdrawn[entry.path, entry.fingerprint]:
            kept.append(entry)
        elif entry.status is Status.LOADED:
            withdrawn[entry.path, entry.fingerprint] -= 1
    return kept


def _ledger_records(session: DuckDBSession, source: Source) -> list[LedgerRecord]:
    rows = session.rows(
        f"SELECT path, fingerprint, sha256, status, rows, coalesce(reason, '') FROM {LEDGER} WHERE table_name = ?",
        [source.table_name],
    )
    return [LedgerRecord(path, mark, sha, Status(status), int(n), reason) for path, mark, sha, status, n, reason in rows]


def _rows_by_file(session: DuckDBSession, source: Source) -> dict[str, int]:
    rows = session.rows(f"SELECT _source_file, count(*) FROM {ALIAS}.{source.table_name} GROUP BY ALL")
    return {str(path): int(count) for path, count in rows}


def _read_again(
    session: DuckDBSession, landing: LandingZone, source: Source, entry: LedgerRecord, folder: Path
) -> int | None:
    fetched = landing.fetch(entry.path, folder)
    try:
        if fetched.sha256 != entry.sha256:
            return None
        load = Load(datetime.now(UTC), "again")
        parquet = fetched.local.with_suffix(".parquet")
        return parse(
            session.con, source, session.columns(source.table), entry.path, fetched.local, parquet, load
        ).written.rows
    except BadFile:
        return None
    finally:
        fetched.local.unlink()


def _overdue(file: LandedFile) -> bool:
    return file.modified_at is not None and datetime.now(UTC) - file.modified_at > WAIT_LIMIT
