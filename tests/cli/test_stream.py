"""`ratify stream`: the continuous mode as a person starts, watches, kills and stops it."""

import json
import os
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.cli.simulate_command import Simulation, send
from ratify_lakehouse.components.stream.record_table import last_reported
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.project_tables import event_stream, record_tables
from ratify_lakehouse.definitions.sensors.kafka_lag_sensor import kafka_lag_sensor
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS
from ratify_lakehouse.engines.spark.streaming_query import offsets
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.records.record_source import OFFSETS
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.conftest import TestBroker
from tests.engines.lakehouse import Lakehouse, engines, lake
from tests.kafka.topic_retention import delete_topic

__all__ = ["engines", "lake"]

pytestmark = [pytest.mark.stack, pytest.mark.locks("tables of the shipped events")]

PATIENCE_S = 600
(RECORDS,) = record_tables()
RAW, (TOPIC,) = RECORDS.declaration, RECORDS.source.topics
STREAM = event_stream()


class Stream:
    """The command, in a process of its own only where it stays."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["stream", *arguments])

    def start(self) -> dict[str, Any]:
        # Each new round costs about as much as a batch: in one of eight seconds silver has what bronze read in it.
        started = self("start", RAW.table_name, "--every", "1", "--round-seconds", "8")
        assert started.exit_code == 0, started.output
        return json.loads((self.home / "streams" / f"{RAW.table_name}.continuous.json").read_text())

    @property
    def running(self) -> bool:
        return self("status").exit_code != 3

    @property
    def log(self) -> str:
        return (self.home / "logs" / f"stream-{RAW.table_name}.log").read_text()


@pytest.fixture
def stream(lake: Lakehouse, home: Path, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stream]:
    """The command where no table and no topic is; in the ledger are entries of other streams, and old ones of this one."""
    tables = (*STREAM.written, RAW)
    lake.drop(*tables)
    lake.spark.ensure_table(STREAM_BATCHES)
    delete = f"DELETE FROM {lake.full(STREAM_BATCHES)} WHERE stream = '{STREAM.name}'"
    lake.spark.commit(lake.full(STREAM_BATCHES), lambda: lake.run(delete))
    delete_topic(kafka, TOPIC)
    monkeypatch.setenv("RATIFY_CHECKPOINTS", str(tmp_path / "checkpoints"))
    stream = Stream(home)
    yield stream
    stream("stop")
    lake.drop(*tables)


def wait_for(what: Callable[[], bool], stream: Stream) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, stream.log[-3000:]
        time.sleep(0.2)


def accounted(lake: Lakehouse) -> tuple[int, int]:
    """Records in the ledger, and rows in silver. DuckDB counts: Spark has enough to do."""
    try:
        lake.version(STREAM.table)
    except TableMissing:
        return 0, 0
    with lake.duckdb.session() as opened:
        ((records, silver),) = opened.rows(
            f"SELECT (SELECT coalesce(sum(records), 0) FROM {ALIAS}.ops.stream_batches WHERE stream = '{STREAM.name}'), "
            f"(SELECT count(*) FROM {ALIAS}.{STREAM.name})"
        )
    return int(records), int(silver)


def test_it_is_started_watched_and_stopped(stream: Stream, lake: Lakehouse, kafka: Kafka, broker: TestBroker) -> None:
    for table in (RAW, *STREAM.written):
        lake.create(table)
    sent = send(kafka, Simulation(300, bad=0.1, seed=1), TOPIC)
    assert not stream.running
    running = stream.start()
    wait_for(lambda: accounted(lake) == (300, sent.accepted), stream)

    again = stream("start", RAW.table_name)
    assert f"are already running, as process {running['process']}" in again.stdout
    with dg.DagsterInstance.ephemeral() as instance:
        tick = kafka_lag_sensor(RECORDS)(dg.build_sensor_context(instance=instance, resources={"kafka": kafka}))
        assert isinstance(tick, dg.SkipReason)
        assert "The stream is running" in (tick.skip_message or "")

    # What it did is reported to Dagster at the end of a round, with the expectations as checks.
    with dagster_instance() as instance:

        def reported() -> int:
            position = offsets(last_reported(RAW, instance).get(OFFSETS))
            return sum(position.get(TOPIC, {}).values())

        wait_for(lambda: reported() == 300, stream)
        key = dg.AssetCheckKey(asset_key(STREAM.table), "value_is_readable")
        wait_for(lambda: key in instance.event_log_storage.get_latest_asset_check_execution_by_key([key]), stream)
    shown = stream("status", "--json")
    rows = {row["stream into"]: row["rows read"] for row in json.loads(shown.stdout)}
    assert rows == {RAW.table_name: 300, STREAM.name: 300}
    assert running["metrics"].startswith("http://127.0.0.1:")
    metrics = httpx.get(running["metrics"]).text
    assert f'ratify_stream_offsets_behind{{table="{RAW.table_name}"}} 0.0' in metrics
    assert f'ratify_stream_bytes_outstanding{{table="{STREAM.name}"}} 0.0' in metrics
    unreadable = float(sent.kinds["malformed"])
    failed = f'ratify_expectation_failed_rows{{expectation="value_is_readable",table="{STREAM.name}"}} {unreadable}'
    assert unreadable > 0
    wait_for(lambda: failed in httpx.get(running["metrics"]).text, stream)
    stopped = stream("stop")
    assert (stopped.exit_code, stopped.stdout.strip()) == (0, "stopped"), stopped.stderr
    assert not stream.running
    assert "no streams were running" in stream("stop").stdout
    for said in (stream.log, metrics, shown.stdout, again.stdout):
        assert broker.password not in said


def test_what_does_not_pass_by_itself_ends_it_with_the_reason(stream: Stream) -> None:
    refused = stream("start", RAW.table_name)
    assert refused.exit_code == 1
    assert "The streams did not start" in refused.stderr
    assert "TopicMissing: Kafka at" in refused.stderr
    assert TOPIC in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not stream.running


@pytest.mark.long
def test_it_goes_on_after_new_columns_and_a_kill(stream: Stream, lake: Lakehouse, kafka: Kafka, broker: TestBroker) -> None:
    first = send(kafka, Simulation(3000, bad=0.05, seed=1), TOPIC)
    running = stream.start()
    wait_for(lambda: accounted(lake) == (3000, first.accepted), stream)
    # A column that others add to any of the tables stops nothing for long.
    for table in (*STREAM.tables, RAW):
        lake.run(f"ALTER TABLE {lake.full(table)} ADD COLUMNS (of_{uuid4().hex[:8]} STRING)")
    second = send(kafka, Simulation(1000, bad=0.05, seed=2), TOPIC)
    accepted = first.accepted + second.accepted
    wait_for(lambda: accounted(lake) == (4000, accepted), stream)

    os.kill(running["process"], signal.SIGKILL)
    wait_for(lambda: not stream.running, stream)
    third = send(kafka, Simulation(1000, bad=0.05, seed=3), TOPIC)
    stream.start()
    wait_for(lambda: accounted(lake) == (5000, accepted + third.accepted), stream)
    assert stream("stop").exit_code == 0
    assert broker.password not in stream.log
