"""Queries of a sync in DuckDB."""

from itertools import count
from typing import Any

from ratify_lakehouse.components.syncs.row_queries import Rows, placed
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession


class DuckDBRowQueries:
    """See `RowQueries`: rows are the text of a query in DuckDB's SQL. What is computed is there until the session ends."""

    def __init__(self, session: DuckDBSession, catalog_name: str) -> None:
        self._session, self._catalog_name, self._numbers = session, catalog_name, count()

    def full_name(self, declaration: TableDeclaration) -> str:
        """See `RowQueries`."""
        return declaration.full_name(self._catalog_name)

    def query(self, text: str, **relations: Rows) -> Rows:
        """See `RowQueries`."""
        return placed(text, relations)

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """See `RowQueries`."""
        return self._session.records(frame)

    def computed(self, frame: Rows) -> Rows:
        """See `RowQueries`."""
        name = f"ratify_sync_rows_{next(self._numbers)}"
        self._session.rows(f"CREATE TEMP TABLE {name} AS {frame}")
        return f"SELECT * FROM {name}"
