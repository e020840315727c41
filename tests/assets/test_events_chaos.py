"""Bronze is exact whatever is killed with -9, and however often: the run, Spark, the broker."""

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from orchestration.cli.tracker import Simulation, send
from resources.kafka import Kafka
from resources.spark import Spark
from resources.tables import TableDeclaration
from tests.assets.streamer import Streamer, raw_table
from tests.conftest import TestBroker
from tests.resources.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


def assert_exact(spark: Spark, kafka: Kafka, table: TableDeclaration, topic: str) -> None:
    """Each offset of the topic is in the table, and once."""
    query = "SELECT partition, count(*) AS n, count(DISTINCT offset) AS d, max(offset) + 1 AS next FROM {raw} GROUP BY ALL"
    held = {
        row["partition"]: (row["n"], row["d"], row["next"]) for row in spark.rows(spark.sql(query, raw=spark.table(table)))
    }
    assert held == {partition: (end, end, end) for partition, end in kafka.extent([topic]).latest[topic].items()}


def wait_until(check: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_run_that_is_killed_is_taken_over_by_the_next(
    lake: Lakehouse, kafka: Kafka, broker: TestBroker, fresh_topic: str, tmp_path: Path
) -> None:
    table = raw_table(f"raw_{uuid4().hex[:8]}")
    send(kafka, Simulation(30_000), fresh_topic)
    lake.spark.ensure_table(table)
    streamer = Streamer(tmp_path, fresh_topic, table, 5000, **broker.environment)
    try:
        # Killed between two commits, its query goes on in Spark for a while, and is stopped by that of the next run.
        wait_until(lambda: lake.version(table) >= 2)
        streamer.kill()
        streamer.all_sent.touch()
        assert streamer.process.wait(180) == 0, streamer.said
    finally:
        streamer.process.kill()
    assert_exact(lake.spark, kafka, table, fresh_topic)
