"""Bronze is exact when the run or the broker is killed with -9; test_stream_chaos.py kills all there is, and often."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.cli.simulate_command import Simulation, send
from ratify_lakehouse.embedded.embedded_stack import running, status
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions
from ratify_lakehouse.errors import BrokerUnavailable, StreamError
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import Ingested, ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.conftest import TestBroker, say
from tests.engines.lakehouse import Lakehouse
from tests.ingest.topic_streamer import Streamer, assert_exact, raw_table

pytestmark = pytest.mark.stack


def wait_until(check: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


# In `make test`, a lost checkpoint doubles nothing: test_kafka_records.py.
@pytest.mark.long
def test_a_run_that_is_killed_is_taken_over_by_the_next(
    lake: Lakehouse, kafka: Kafka, broker: TestBroker, fresh_topic: str, tmp_path: Path
) -> None:
    table = raw_table(f"raw_{uuid4().hex[:8]}")
    send(kafka, Simulation(4000), fresh_topic)
    lake.create(table)
    streamer = Streamer(tmp_path, fresh_topic, table, 1000, **broker.environment)
    try:
        # Killed between two commits, its query goes on in Spark for a while, and is stopped by that of the next run.
        wait_until(lambda: lake.version(table) >= 1)
        streamer.kill()
        streamer.all_sent.touch()
        assert streamer.process.wait(180) == 0, streamer.output
    finally:
        streamer.process.kill()
    assert_exact(lake.spark, kafka, table, fresh_topic)


def answers(kafka: Kafka, topic: str) -> bool:
    try:
        return bool(kafka.offset_range([topic]))
    except StreamError:
        return False


@pytest.mark.long
def test_a_broker_that_dies_and_comes_back_does_not_end_the_stream(
    lake: Lakehouse, tmp_path: Path, jars_dir: Path, fresh_topic: str
) -> None:
    """A broker of its own: that of the run serves other tests at the same time."""
    with running(StackConfig(home=tmp_path, jars_dir=jars_dir, spark=False, kafka=True), say) as state:
        assert state.kafka is not None
        stream_through_a_kill(lake, tmp_path, Kafka(bootstrap=state.kafka.bootstrap), fresh_topic)


def stream_through_a_kill(lake: Lakehouse, home: Path, kafka: Kafka, topic: str) -> None:
    """Stream a topic while its broker is killed, and records come before and after."""
    table, stop, seen = raw_table(f"raw_{uuid4().hex[:8]}"), threading.Event(), list[Batch]()
    send(kafka, Simulation(1000), topic)

    def on_batch(batch: Batch) -> None:
        seen.append(batch)
        if sum(batch.rows for batch in seen) == 2000:
            stop.set()

    def ingested() -> Ingested:
        config, options = SourceOptions(topics=[topic]), StreamOptions(0.2, stop, on_batch=on_batch)
        return ingest(kafka, lake.spark, table, config, options)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(ingested)
        wait_until(lambda: bool(seen))
        state = status(home)
        assert state is not None
        assert state.kafka is not None
        os.kill(state.kafka.pid, signal.SIGKILL)
        wait_until(lambda: not answers(Kafka(bootstrap=kafka.bootstrap, timeout_seconds=1), topic))
        wait_until(lambda: answers(kafka, topic))
        send(kafka, Simulation(1000, seed=1), topic)
        assert done.result(180).run.rows == 2000
    assert_exact(lake.spark, kafka, table, topic)


@pytest.mark.long
def test_a_broker_that_stays_away_ends_the_stream_and_nothing_is_lost(
    lake: Lakehouse, tmp_path: Path, jars_dir: Path, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, config = raw_table(f"raw_{uuid4().hex[:8]}"), SourceOptions(topics=[fresh_topic])
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    broken = StackConfig(home=tmp_path, jars_dir=jars_dir, spark=False, kafka=True)
    with running(broken, say) as state:
        assert state.kafka is not None
        kafka = Kafka(bootstrap=state.kafka.bootstrap)
        send(kafka, Simulation(1000), fresh_topic)
        begun = threading.Event()
        options = StreamOptions(0.2, on_batch=lambda _: begun.set())
        thread = ThreadPoolExecutor(1)
        done = thread.submit(lambda: ingest(kafka, lake.spark, table, config, options))
        assert begun.wait(60)
    with thread:
        gone = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            done.result(240)
        assert time.monotonic() - gone < 200
        version = lake.version(table)
        with pytest.raises(BrokerUnavailable, match="ratify status"):
            ingest(kafka, lake.spark, table, config)
        assert lake.version(table) == version
    with running(broken, say) as state:
        assert state.kafka is not None
        kafka = Kafka(bootstrap=state.kafka.bootstrap)
        send(kafka, Simulation(1000, seed=1), fresh_topic)
        assert ingest(kafka, lake.spark, table, config).run.rows == 1000
        assert_exact(lake.spark, kafka, table, fresh_topic)
