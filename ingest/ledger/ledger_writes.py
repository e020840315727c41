"""Writes to the ledger of landed files: each entry exactly once, by its load id."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

from ingest.ledger import file_load_ids
from ingest.ledger.file_ledger import LANDED_FILES, FileOutcome, LedgerEntry, Status
from ingest.ledger.ledger_queries import loaded_entries
from resources.duckdb.duckdb_engine import DuckDBSession
from resources.errors import AlreadyLoaded
from resources.sql.duckdb_sql import rows_of


def record(session: DuckDBSession, table_name: str, outcomes: Sequence[FileOutcome], now: dt.datetime) -> None:
    """Write one ledger entry for each version of each file, exactly once.

    Raises:
        As DuckDBSession.append.
    """
    _append(session, table_name, {outcome.entry_load: outcome for outcome in outcomes}, now)


def withdraw(
    session: DuckDBSession, table_name: str, entries: Sequence[LedgerEntry], version: int | None, reason: str
) -> None:
    """Write ledger entries that version `version` of a bronze table removed the rows of files.

    Raises:
        As DuckDBSession.append.
    """
    outcomes = {
        file_load_ids.withdrawal_load(table_name, version, entry.path, entry.fingerprint): entry.withdrawn(version, reason)
        for entry in entries
    }
    _append(session, table_name, outcomes, dt.datetime.now(dt.UTC))


def withdraw_loads(session: DuckDBSession, table_name: str, loads: Iterable[str], version: int | None) -> list[LedgerEntry]:
    """Write ledger entries for the files whose loads a repair removed from a bronze table; return the entries withdrawn."""
    contents = file_load_ids.loaded_contents(loads)
    entries = loaded_entries(session, table_name, [], contents) if contents else []
    withdraw(session, table_name, entries, version, "a file of the table was lost; load it again")
    return entries


def _append(session: DuckDBSession, table_name: str, pending: Mapping[str, FileOutcome], now: dt.datetime) -> None:
    """Append the entries of outcomes by their load ids; those that the ledger has already are left out."""
    while pending:
        outcomes = pending.values()
        withdrawn = [outcome.entry_load for outcome in outcomes if outcome.status is Status.WITHDRAWN]
        rows = rows_of(LANDED_FILES.column_names, (_entry(table_name, outcome, now) for outcome in outcomes))
        try:
            session.append(LANDED_FILES, rows, list(pending), withdrawn=withdrawn)
        except AlreadyLoaded as error:
            pending = {load: outcome for load, outcome in pending.items() if load not in error.loads}
        else:
            return


def _entry(table_name: str, outcome: FileOutcome, now: dt.datetime) -> dict[str, object]:
    return {
        "path": outcome.path,
        "fingerprint": outcome.fingerprint,
        "sha256": outcome.sha256,
        "bytes": outcome.size,
        "table_name": table_name,
        "status": outcome.status.value,
        "rows": outcome.rows,
        "rescued": outcome.rescued,
        "reason": outcome.reason,
        "batch_id": outcome.batch_id,
        "version": outcome.version,
        "attempts": outcome.attempts,
        "seconds": outcome.seconds,
        "landed_at": outcome.landed_at and outcome.landed_at.isoformat(),
        "recorded_at": now.isoformat(),
    }
