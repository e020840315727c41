"""The ledger (`ops.landed_files`): what it says of files that were seen before, and its totals."""

from collections.abc import Sequence
from dataclasses import dataclass

from assets.bronze.ingest import Status
from assets.bronze.sources import LANDED_FILES, Source
from resources.duckdb import ALIAS, DuckDBSession
from resources.landing import LandedFile

_LEDGER = f"{ALIAS}.{LANDED_FILES.layer}.{LANDED_FILES.name}"


@dataclass(frozen=True)
class Entry:
    """What became of one version of a file."""

    status: Status
    rows: int
    reason: str


@dataclass(frozen=True)
class Total:
    """The entries of one status."""

    files: int
    rows: int
    size: int


def known(session: DuckDBSession, source: Source, files: Sequence[LandedFile]) -> dict[LandedFile, Entry]:
    """Return the entries of those files that the ledger has in just their present version, for this source's table."""
    rows = session.rows(
        f"SELECT path, fingerprint, status, rows, coalesce(reason, '') FROM {_LEDGER} "
        "WHERE table_name = ? AND path IN (SELECT unnest(?::VARCHAR[])) ORDER BY recorded_at",
        [source.table_name, [file.path for file in files]],
    )
    entries = {
        (path, fingerprint): Entry(Status(status), count, reason) for path, fingerprint, status, count, reason in rows
    }
    return {file: entry for file in files if (entry := entries.get((file.path, file.fingerprint)))}


def totals(session: DuckDBSession) -> dict[Status, Total]:
    """Return the number of entries, their rows and their bytes, by status, over all tables."""
    rows = session.rows(f"SELECT status, count(*), sum(rows)::BIGINT, sum(bytes)::BIGINT FROM {_LEDGER} GROUP BY status")
    there = {Status(status): Total(files, count, size) for status, files, count, size in rows}
    return {status: there.get(status, Total(0, 0, 0)) for status in Status}
