"""The one DuckDB of a test process, for what needs none of its own: to open one takes 10 ms of CPU, a cursor nothing."""

from functools import cache

import duckdb


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection to it, whose temporary tables and time zone no other has; other tables and settings are of all."""
    return _database().cursor()
