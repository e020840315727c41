"""The engines of the session's stack, and the tracker's tables on it; homes of their own for the demos."""

from collections.abc import Generator
from pathlib import Path

import pytest

from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.cli.conftest import elsewhere, new_home
from tests.components.test_yaml_tables import Project
from tests.engines.lakehouse import Lakehouse, engines, lake
from tests.sample.heart_rates import HeartRates
from tests.sample.tracker_lake import ALL, Feed, forget_entries


@pytest.fixture
def tracker(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Lakehouse]:
    """Empty tables of the tracker, and no checkpoint; no entry of its streams in the ledger, which has those of others."""
    monkeypatch.setenv("RATIFY_CHECKPOINTS", str(tmp_path / "checkpoints"))
    lake.drop(*ALL)
    for table in ALL:
        lake.create(table)
    lake.spark.ensure_table(STREAM_BATCHES)
    forget_entries(lake)
    yield lake
    lake.drop(*ALL)


@pytest.fixture
def feed(tracker: Lakehouse, kafka: Kafka, fresh_topic: str) -> Feed:
    return Feed(tracker, kafka, fresh_topic)


@pytest.fixture
def rates(lake: Lakehouse, project: Project, kafka: Kafka, fresh_topic: str) -> HeartRates:
    return HeartRates(lake, project, kafka, fresh_topic)


__all__ = ["elsewhere", "engines", "feed", "lake", "new_home", "tracker"]
