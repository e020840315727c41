"""The engines of the session's stack, and the tracker's tables on it; homes of their own for the demos."""

from collections.abc import Generator
from pathlib import Path

import pytest

from resources.kafka.kafka_client import Kafka
from tests.orchestration.conftest import elsewhere, new_home
from tests.resources.lakehouse import Lakehouse, engines, lake
from tests.sample.tracker_declared import STREAM, TRACKER_EVENTS_RAW
from tests.sample.tracker_lake import ALL, Feed


@pytest.fixture(scope="module")
def tables(engines: Lakehouse) -> Generator[None]:
    """The tables of the tracker, for this module only: other tests have records of their own."""

    def drop() -> None:
        for table in ALL:
            engines.run(f"DROP TABLE IF EXISTS {engines.full(table)}")

    drop()
    for table in (TRACKER_EVENTS_RAW, *STREAM.tables):
        engines.spark.ensure_table(table)
    yield
    drop()


@pytest.fixture
def tracker(lake: Lakehouse, tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Empty tables of the tracker, and no checkpoint."""
    monkeypatch.setenv("RATIFY_CHECKPOINTS", str(tmp_path / "checkpoints"))
    for table in (*STREAM.tables, TRACKER_EVENTS_RAW):
        lake.run(f"DELETE FROM {lake.full(table)}")
    return lake


@pytest.fixture
def feed(tracker: Lakehouse, kafka: Kafka, fresh_topic: str) -> Feed:
    return Feed(tracker, kafka, fresh_topic)


__all__ = ["elsewhere", "engines", "feed", "lake", "new_home", "tables", "tracker"]
