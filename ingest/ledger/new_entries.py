"""The entries of the ledger for one table, all of them or only those that were appended since a version of the ledger."""

from collections.abc import Callable
from typing import Any

from ingest.file_source import Source
from ingest.ledger.file_ledger import Status
from ingest.ledger.ledger_queries import LEDGER, LedgerRecord
from resources.duckdb.duckdb_engine import DuckDBSession

_RECORDS = "SELECT status, rows, coalesce(reason, ''), path, fingerprint, sha256 FROM {rows} WHERE table_name = ?"
_REFUSED = (
    "SELECT path, arg_max((status, rows, coalesce(reason, ''), path, fingerprint, sha256), recorded_at) FROM {rows} "
    "WHERE table_name = ? AND path IN (SELECT path FROM {rows} WHERE status = 'quarantined') GROUP BY path"
)


def appended_records(read: Callable[[str, list[object]], list[tuple[Any, ...]]], source: Source) -> list[LedgerRecord]:
    """Return the entries for a source's table among the rows that `read` gives.

    Args:
        read: Runs a query, in which `{rows}` stands for rows of the ledger, with its parameters.
        source: The source.
    """
    rows = read(_RECORDS, [source.table_name])
    return [_record(row) for row in rows]


def refused_records(session: DuckDBSession, source: Source) -> list[LedgerRecord]:
    """Return, of each file whose last entry is a refusal, that entry."""
    rows = session.rows(_REFUSED.format(rows=LEDGER), [source.table_name])
    return [record for _, entry in rows if (record := _record(entry)).status is Status.QUARANTINED]


def _record(row: tuple[Any, ...]) -> LedgerRecord:
    status, rows, *more = row
    return LedgerRecord(Status(status), int(rows), *more)
