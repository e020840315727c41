"""How long DuckDB takes to read a table whole, which tells what its files cost a reader."""

import time

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached


def scan_seconds(session: DuckDBSession, table_name: str) -> float:
    """Return the seconds that it takes to read all rows and columns of a table, and its log before them.

    Args:
        session: Of which the catalog is attached again, so that nothing of the table is known.
        table_name: As schema.table.

    Raises:
        As `DuckDBSession.rows`.
    """
    began = time.monotonic()
    session.attach()
    session.rows(f"SELECT count(COLUMNS(*)) FROM {attached(table_name)}")
    return time.monotonic() - began
