"""Queries over some data files of a table."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.sql.duckdb_sql import literal


def rows_of_files(
    session: DuckDBSession, log: DeltaLog, files: Sequence[str], query: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a query in which `{rows}` stands for the rows of some data files of a table.

    Raises:
        StorageUnavailable, FileNotFoundError: a file cannot be read.
    """
    if not files:
        return []
    with ExitStack() as stack:
        local = [stack.enter_context(log.storage.downloaded(file)) for file in files]
        names = ", ".join(literal(str(path)) for path in local)
        # Not through the attached catalog: a catalog's table has no way to name its files.
        relation = f"read_parquet([{names}], union_by_name = true)"
        return session.con.execute(query.format(rows=relation), list(parameters)).fetchall()
