"""`ratify stream`: the continuous mode as a person starts, watches, kills and stops it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import pytest

from assets.bronze.events import TRACKER_EVENTS_RAW, reported_offsets
from assets.silver.events import STREAM_BATCHES, TRACKER_EVENTS
from assets.silver.tracker_stream import TABLES
from assets.tables import asset_key
from orchestration.cli import session
from orchestration.cli.tracker import Simulation, send
from orchestration.lag import tracker_events_sensor
from resources.errors import TableMissing
from resources.kafka import Kafka
from tests.conftest import TestBroker
from tests.orchestration.test_cli import RATIFY, environment
from tests.resources.lakehouse import Lakehouse, engines, lake

__all__ = ["engines", "lake"]

PATIENCE_S = 240


class Stream:
    """The command, for one topic."""

    def __init__(self, home: Path, broker: TestBroker, topic: str, checkpoints: Path) -> None:
        self.home = home
        more = {**broker.environment, "KAFKA_TOPICS": topic, "RATIFY_CHECKPOINTS": str(checkpoints)}
        self._environment = environment(home, **more)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RATIFY, "stream", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def start(self) -> dict[str, Any]:
        started = self("start", "--every", "1", "--round-seconds", "5")
        assert started.returncode == 0, started.stderr
        return json.loads((self.home / "streams" / "live.json").read_text())

    @property
    def log(self) -> str:
        return (self.home / "logs" / "stream.log").read_text()


@pytest.fixture
def stream(lake: Lakehouse, home: Path, broker: TestBroker, fresh_topic: str, tmp_path: Path) -> Generator[Stream]:
    tables = (*TABLES, TRACKER_EVENTS_RAW)
    for table in tables:
        lake.run(f"DROP TABLE IF EXISTS {lake.full(table)}")
    stream = Stream(home, broker, fresh_topic, tmp_path / "checkpoints")
    yield stream
    stream("stop")
    for table in tables:
        lake.run(f"DROP TABLE IF EXISTS {lake.full(table)}")


def wait_for(what: Callable[[], bool], stream: Stream) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, stream.log[-3000:]
        time.sleep(0.5)


def accounted(lake: Lakehouse) -> tuple[int, int]:
    """Records in the book, and rows in silver."""
    try:
        for table in (STREAM_BATCHES, TRACKER_EVENTS):
            lake.version(table)
    except TableMissing:
        return 0, 0
    (row,) = lake.run(
        f"SELECT (SELECT coalesce(sum(records), 0) FROM {lake.full(STREAM_BATCHES)}) AS records, "
        f"(SELECT count(*) FROM {lake.full(TRACKER_EVENTS)}) AS silver"
    )
    return int(row["records"]), int(row["silver"])


@pytest.mark.stack
def test_it_is_started_watched_killed_and_stopped(
    stream: Stream, lake: Lakehouse, kafka: Kafka, broker: TestBroker, fresh_topic: str
) -> None:
    first = send(kafka, Simulation(3000, bad=0.05, seed=1), fresh_topic)
    assert stream("status").returncode == 3
    running = stream.start()
    wait_for(lambda: accounted(lake) == (3000, first.accepted), stream)

    shown = stream("status", "--json")
    rows = {row["stream into"]: row["rows read"] for row in json.loads(shown.stdout)}
    assert rows == {"bronze.tracker_events_raw": 3000, "silver.tracker_events": 3000}
    metrics = httpx.get(running["metrics"]).text
    assert 'ratify_stream_offsets_behind{table="bronze.tracker_events_raw"} 0.0' in metrics
    assert running["metrics"].startswith("http://127.0.0.1:")
    again = stream("start")
    assert f"run already, as process {running['process']}" in again.stdout
    with dg.DagsterInstance.ephemeral() as instance:
        tick = tracker_events_sensor(dg.build_sensor_context(instance=instance, resources={"kafka": kafka}))
        assert isinstance(tick, dg.SkipReason)
        assert "The stream runs" in (tick.skip_message or "")

    # What it did is told to Dagster at the end of a round, with the expectations as checks.
    with session.dagster_instance() as instance:
        wait_for(lambda: sum(reported_offsets(instance).get(fresh_topic, {}).values()) == 3000, stream)
        key = dg.AssetCheckKey(asset_key(TRACKER_EVENTS), "value_is_readable")
        wait_for(lambda: key in instance.event_log_storage.get_latest_asset_check_execution_by_key([key]), stream)

    os.kill(running["process"], signal.SIGKILL)
    wait_for(lambda: stream("status").returncode == 3, stream)
    second = send(kafka, Simulation(2000, bad=0.05, seed=2), fresh_topic)
    running = stream.start()
    wait_for(lambda: accounted(lake) == (5000, first.accepted + second.accepted), stream)
    stopped = stream("stop")
    assert (stopped.returncode, stopped.stdout.strip()) == (0, "stopped"), stopped.stderr
    assert stream("status").returncode == 3
    assert "no streams were running" in stream("stop").stdout
    for said in (stream.log, metrics, shown.stdout, again.stdout):
        assert broker.password not in said


@pytest.mark.stack
def test_what_does_not_pass_by_itself_ends_it_with_the_reason(stream: Stream, fresh_topic: str) -> None:
    ended = stream("run", "--every", "1")
    assert ended.returncode == 1
    assert "TopicMissing: Kafka at" in ended.stderr
    assert fresh_topic in ended.stderr
    assert "Traceback" not in ended.stderr
