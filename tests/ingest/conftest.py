"""The engines of the run's stack, a DuckDB, and a sensor."""

from collections.abc import Generator
from pathlib import Path

import duckdb
import pytest

from tests.engines.lakehouse import engines, lake
from tests.ingest.discovery_sensor import Sensor
from tests.process_duckdb import cursor

__all__ = ["engines", "lake"]


# A timestamp without a zone is UTC wherever the machine stands.
_ELSEWHERE = "SET TimeZone = 'Asia/Tokyo'"


@pytest.fixture
def con() -> Generator[duckdb.DuckDBPyConnection]:
    with cursor() as con:
        con.execute(_ELSEWHERE)
        yield con


@pytest.fixture
def own_con() -> Generator[duckdb.DuckDBPyConnection]:
    """The only connection to a database: for a test that sets what a whole database has, as its memory."""
    with duckdb.connect() as con:
        con.execute(_ELSEWHERE)
        yield con


@pytest.fixture
def sensor(tmp_path: Path) -> Sensor:
    return Sensor(tmp_path)
