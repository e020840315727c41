"""The engines of the run's stack, a DuckDB, and a sensor."""

from pathlib import Path

import duckdb
import pytest

from tests.ingest.discovery_sensor import Sensor
from tests.resources.lakehouse import engines, lake

__all__ = ["engines", "lake"]


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    # A timestamp without a zone is UTC wherever the machine stands.
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    return con


@pytest.fixture
def sensor(tmp_path: Path) -> Sensor:
    return Sensor(tmp_path)
