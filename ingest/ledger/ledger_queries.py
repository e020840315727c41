"""What the ledger of landed files says: which files are loaded, settled or waiting. No other module knows these rules.

A version of a file is loaded if it has more entries LOADED than WITHDRAWN: what a rewrite or a repair removed may be loaded
again. A version is settled if its last entry is not WITHDRAWN. Every other version is waiting.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingest.file_source import Source
from ingest.ledger.file_ledger import LANDED_FILES, LedgerEntry, Status
from resources.duckdb.duckdb_engine import ALIAS, DuckDB, DuckDBSession
from resources.landing.landing_zone import LandedFile, LandingZone

LEDGER = f"{ALIAS}.{LANDED_FILES.layer}.{LANDED_FILES.name}"
"""The table, as DuckDB names it."""


@dataclass(frozen=True)
class EntryState:
    """What became of one version of a file."""

    status: Status
    rows: int
    reason: str


@dataclass(frozen=True)
class LedgerRecord(EntryState):
    """A row of the ledger: one entry for one version of a file."""

    path: str
    fingerprint: str
    sha256: str


@dataclass(frozen=True)
class Total:
    """Entries of one status: how many, their rows and their bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0


def loaded_entries(
    session: DuckDBSession, table_name: str, paths: Iterable[str], contents: Iterable[str]
) -> list[LedgerEntry]:
    """Return the files whose rows are in a bronze table, among those with these paths or these SHA-256."""
    session.attach()
    rows = session.rows(
        "SELECT path, fingerprint, sha256, any_value(bytes), sum(if(status = 'loaded', rows, -rows))::BIGINT "
        f"FROM {LEDGER} WHERE table_name = ? AND status IN ('loaded', 'withdrawn') "
        "AND (path IN (SELECT unnest(?::VARCHAR[])) OR sha256 IN (SELECT unnest(?::VARCHAR[]))) "
        "GROUP BY ALL HAVING count_if(status = 'loaded') > count_if(status = 'withdrawn')",
        [table_name, list(paths), list(contents)],
    )
    return [LedgerEntry(*row) for row in rows]


def ledger_records(session: DuckDBSession, source: Source) -> list[LedgerRecord]:
    """Return all entries for the files of a source."""
    rows = session.rows(
        f"SELECT status, rows, coalesce(reason, ''), path, fingerprint, sha256 FROM {LEDGER} WHERE table_name = ?",
        [source.table_name],
    )
    return [LedgerRecord(Status(status), int(count), *more) for status, count, *more in rows]


def loaded_records(records: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """Return the LOADED entries whose rows are in bronze: for each version of a file as many as were not withdrawn."""
    withdrawn = Counter((record.path, record.fingerprint) for record in records if record.status is Status.WITHDRAWN)
    loaded = list[LedgerRecord]()
    for record in records:
        if record.status is Status.LOADED and not withdrawn[record.path, record.fingerprint]:
            loaded.append(record)
        elif record.status is Status.LOADED:
            withdrawn[record.path, record.fingerprint] -= 1
    return loaded


def without_entry(records: Sequence[LedgerRecord], files: Sequence[LandedFile]) -> list[LandedFile]:
    """Return the files for whose present version the ledger has no entry at all."""
    known = {(record.path, record.fingerprint) for record in records}
    return [file for file in files if (file.path, file.fingerprint) not in known]


def settled(session: DuckDBSession, source: Source, files: Sequence[LandedFile]) -> dict[LandedFile, EntryState]:
    """Return the last entry of each of those files whose present version is settled."""
    rows = session.rows(
        f"SELECT path, fingerprint, arg_max((status, rows, coalesce(reason, '')), recorded_at) FROM {LEDGER} "
        "WHERE table_name = ? AND path IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL",
        [source.table_name, [file.path for file in files]],
    )
    last = {(path, fingerprint): EntryState(Status(entry[0]), *entry[1:]) for path, fingerprint, entry in rows}
    found = ((file, last.get((file.path, file.fingerprint))) for file in files)
    return {file: entry for file, entry in found if entry and entry.status is not Status.WITHDRAWN}


def waiting(duckdb: DuckDB, landing: LandingZone, source: Source) -> list[LandedFile]:
    """Return the landed files of a source whose present version is not settled."""
    landed = landing.files(source.pattern)
    with duckdb.session() as session:
        known = set(
            session.rows(
                f"SELECT path, fingerprint FROM {LEDGER} WHERE table_name = ? GROUP BY ALL "
                "HAVING arg_max(status, recorded_at) <> 'withdrawn'",
                [source.table_name],
            )
        )
    return [file for file in landed if (file.path, file.fingerprint) not in known]


def last_states(session: DuckDBSession) -> dict[str, EntryState]:
    """Return the last entry of each file of the ledger, by its path."""
    rows = session.rows(
        f"SELECT path, arg_max((status, rows, coalesce(reason, '')), recorded_at) FROM {LEDGER} GROUP BY path"
    )
    return {path: EntryState(Status(entry[0]), *entry[1:]) for path, entry in rows}


def totals(session: DuckDBSession) -> dict[Status, Total]:
    """Return the sums over the whole ledger, for each status."""
    rows = session.rows(
        f"SELECT status, count(*), sum(rows)::BIGINT, coalesce(sum(bytes), 0)::BIGINT FROM {LEDGER} GROUP BY status"
    )
    return dict.fromkeys(Status, Total()) | {Status(status): Total(*numbers) for status, *numbers in rows}
