"""What DuckDB reads of a feed, of logs and files as other engines write them."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from resources.duckdb.duckdb_engine import DuckDBSession
from resources.duckdb.feed_reading import read_changes
from resources.errors import ChangesNotRecorded, UnsafeTable
from tests.resources.written_log import WrittenTable, metadata


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    return WrittenTable(tmp_path)


class LocalSession:
    """A session of DuckDB without a catalog."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.con.execute("SET TimeZone = 'UTC'")


@pytest.fixture
def session() -> Generator[Any]:
    made = LocalSession()
    yield made
    made.con.close()


def changes(session: DuckDBSession, table: WrittenTable, *versions: int) -> list[tuple[Any, ...]]:
    """The columns of the table, what was done, and in which version."""
    found = read_changes(session, table.log(), *versions)
    return sorted(found.select("* EXCLUDE (_commit_timestamp)").fetchall(), key=lambda row: (row[-1], str(row)))


def test_a_timestamp_without_a_zone(session: DuckDBSession, table: WrittenTable) -> None:
    table.commit(metadata(columns={"t": "timestamp_ntz", "every": {"type": "array", "elementType": "timestamp_ntz"}}))
    table.commit({"add": table.data("SELECT TIMESTAMP '2026-01-01 10:00' AS t, [t] AS every", "1.parquet")})
    ((at, every, *_),) = changes(session, table)
    assert (str(at), every) == ("2026-01-01 10:00:00", [at])
