"""Bronze from Kafka: each record exactly once, through restarts, lost checkpoints, expired topics and forced refreshes."""

import datetime as dt
import shutil
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.check_definitions import offsets_check, table_checks
from ratify_lakehouse.components.stream.record_table import RecordTable, last_reported, record_table
from ratify_lakehouse.components.table_asset import COMMITS, asset_key, step_name
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions, offsets
from ratify_lakehouse.errors import BrokerDenied, BrokerUnavailable, OffsetsExpired, ResetRefused, TopicMissing
from ratify_lakehouse.ingest.records.record_source import OFFSETS, Gap, SourceOptions
from ratify_lakehouse.ingest.records.record_stream import Ingested, ingest
from ratify_lakehouse.kafka.kafka_client import Kafka, Offsets
from ratify_lakehouse.settings import Settings
from tests.components.event_tables import declared_events
from tests.engines.lakehouse import Lakehouse
from tests.ingest.record_rows import put_records
from tests.ingest.topic_streamer import raw_table
from tests.kafka.topic_retention import delete_records


class Bronze:
    """A topic, the table that it is read into, and what both must have in common."""

    def __init__(self, lake: Lakehouse, kafka: Kafka, topic: str, partitions: int = 3) -> None:
        self.lake, self.kafka, self.topic = lake, kafka, topic
        self.table = raw_table(f"raw_{uuid4().hex[:8]}")
        lake.create(self.table)
        kafka.ensure_topic(topic, partitions)

    def send(self, count: int, size: int = 20) -> None:
        with self.kafka.producer(**{"message.max.bytes": 2**24}) as producer:
            for number in range(count):
                producer.produce(
                    self.topic, key=f"u{number % 5}", value=bytes(size), partition=number % 3, headers={"n": b"1"}
                )

    def ingest(self, **config: Any) -> Ingested:
        return ingest(self.kafka, self.lake.spark, self.table, SourceOptions(topics=[self.topic], **config))

    def forget_checkpoint(self) -> None:
        shutil.rmtree(Path(Settings().checkpoints) / f"bronze.{self.table.name}")

    def held(self) -> dict[int, tuple[int, int, int]]:
        """For each partition the rows, the first and the last offset; every row is there once."""
        held = dict[int, list[int]]()
        for row in self.lake.look(f'SELECT partition, "offset" AS at FROM uc.{self.table.table_name}'):
            held.setdefault(row["partition"], []).append(row["at"])
        assert all(len(each) == len(set(each)) for each in held.values())
        return {partition: (len(each), min(each), max(each)) for partition, each in sorted(held.items())}


@pytest.fixture
def bronze(lake: Lakehouse, kafka: Kafka, fresh_topic: str) -> Bronze:
    return Bronze(lake, kafka, fresh_topic)


def offsets_of(*numbers: int) -> Offsets:
    return {"t": dict(enumerate(numbers))}


@pytest.mark.stack
@pytest.mark.parametrize("restarted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_record_once_in_batches_of_bounded_size(bronze: Bronze, restarted: bool) -> None:
    """With a lost checkpoint; `restarted` with a sound one before, which the expired topics below also go on from."""
    bronze.send(900)
    first = bronze.ingest(max_records=600, consumer_group="watchers")
    assert [batch.rows for batch in first.run.batches] == [600, 300]
    assert bronze.held() == dict.fromkeys(range(3), (300, 0, 299))
    assert (first.behind, first.position) == (0, {bronze.topic: {0: 300, 1: 300, 2: 300}})
    assert bronze.kafka.progress("watchers", [bronze.topic]) == first.position
    each = 300
    if restarted:
        again = bronze.ingest()
        assert (again.run.rows, again.position, again.created) == (0, first.position, False)
        bronze.send(30)
        assert bronze.ingest().run.rows == 30
        each += 10
        assert bronze.held() == dict.fromkeys(range(3), (each, 0, each - 1))
    # A lost checkpoint costs nothing and doubles nothing.
    bronze.forget_checkpoint()
    bronze.send(60)
    last = bronze.ingest()
    assert (last.run.rows, last.created) == (60, False)
    assert bronze.held() == dict.fromkeys(range(3), (each + 20, 0, each + 19))
    commits = list(bronze.lake.spark.recent_commits(bronze.lake.full(bronze.table), 3))
    assert [commit.operation for commit in commits] == ["STREAMING UPDATE"] * 3
    # Three partitions, and one file: they are put together up to the configured size.
    assert {commit.metrics["numAddedFiles"] for commit in commits} == {1}
    (row,) = bronze.lake.look(f'SELECT * FROM uc.{bronze.table.table_name} WHERE partition = 1 AND "offset" = 0')
    assert (row["key"], row["value"], row["topic"], row["timestamp_type"]) == (b"u1", bytes(20), bronze.topic, 0)
    assert row["headers"] == [{"key": "n", "value": b"1"}]


@pytest.mark.stack
@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_expired_topic_is_an_error_or_a_gap_that_is_reported(
    bronze: Bronze, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """`lost`: the same once more, without a checkpoint."""
    bronze.send(300)
    bronze.ingest()
    # A missing topic, and a broker that is down, leave the table alone.
    version = bronze.lake.version(bronze.table)
    with pytest.raises(TopicMissing, match="nope"):
        ingest(bronze.kafka, bronze.lake.spark, bronze.table, SourceOptions(topics=["nope"]))
    with monkeypatch.context() as patched:
        patched.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
        with pytest.raises(BrokerUnavailable):
            ingest(Kafka(timeout_seconds=1), bronze.lake.spark, bronze.table, SourceOptions(topics=[bronze.topic]))
    assert bronze.lake.version(bronze.table) == version
    assert bronze.held() == dict.fromkeys(range(3), (100, 0, 99))
    bronze.send(300)
    delete_records(bronze.kafka, {bronze.topic: {0: 150, 1: 100}})
    with pytest.raises(OffsetsExpired, match=f"{bronze.topic}/0: 100 to 149.*on_data_loss"):
        bronze.ingest()
    assert bronze.held() == dict.fromkeys(range(3), (100, 0, 99))
    done = bronze.ingest(on_data_loss="continue")
    assert done.gaps == (Gap(bronze.topic, 0, 100, 149),)
    assert bronze.held() == {0: (150, 0, 199), 1: (200, 0, 199), 2: (200, 0, 199)}
    if not lost:
        return
    bronze.forget_checkpoint()
    bronze.send(30)
    delete_records(bronze.kafka, {bronze.topic: {2: 210}})
    with pytest.raises(OffsetsExpired, match=f"{bronze.topic}/2: 200 to 209"):
        bronze.ingest()
    assert bronze.ingest(on_data_loss="continue").gaps == (Gap(bronze.topic, 2, 200, 209),)
    assert bronze.held() == {0: (160, 0, 209), 1: (210, 0, 209), 2: (200, 0, 199)}


@pytest.mark.stack
def test_a_full_refresh_is_refused_unless_forced(bronze: Bronze) -> None:
    bronze.send(300)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    held = [(b"u", b"v", bronze.topic, partition, offset, at, 0, None) for partition in range(3) for offset in range(100)]
    put_records(bronze.lake, bronze.table, held)
    # Of the first partition 50 offsets are gone, of the third all.
    delete_records(bronze.kafka, {bronze.topic: {0: 50, 2: 100}})
    with pytest.raises(
        ResetRefused, match=f"150 offsets.*{bronze.topic}/0: the table holds 0 to 99, the topic begins at 50"
    ):
        bronze.ingest(full_refresh=True)
    assert bronze.held() == dict.fromkeys(range(3), (100, 0, 99))
    done = bronze.ingest(full_refresh=True, force=True)
    assert (done.removed, done.run.rows) == (300, 150)
    assert bronze.held() == {0: (50, 50, 99), 1: (100, 0, 99)}


@pytest.mark.stack
@pytest.mark.long
def test_several_topics_and_records_of_ten_megabytes(bronze: Bronze, kafka: Kafka) -> None:
    other = f"{bronze.topic}-b"
    kafka.ensure_topic(other)
    bronze.send(1, size=10 * 2**20)
    with kafka.producer() as producer:
        producer.produce(other, value=None, key=b"tombstone")
    done = ingest(kafka, bronze.lake.spark, bronze.table, SourceOptions(topics=[bronze.topic, other], starting="earliest"))
    assert done.run.rows == 2
    rows = bronze.lake.run(f"SELECT topic, length(value) AS n FROM {bronze.lake.full(bronze.table)} ORDER BY topic")
    assert [(row["topic"], row["n"]) for row in rows] == [(bronze.topic, 10 * 2**20), (other, None)]


@pytest.mark.stack
@pytest.mark.long
def test_a_stream_that_starts_at_the_end_takes_what_comes_then(bronze: Bronze) -> None:
    bronze.send(30)
    first = bronze.ingest(starting="latest")
    assert (first.run.rows, first.position, first.behind) == (0, {bronze.topic: {0: 10, 1: 10, 2: 10}}, 0)
    bronze.send(3)
    assert bronze.ingest(starting="latest").run.rows == 3
    assert bronze.held() == dict.fromkeys(range(3), (1, 10, 10))


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    """A Dagster instance that has seen nothing."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def events(bronze: Bronze) -> Generator[RecordTable]:
    """A declared table of the topic's records, which does not exist before and after."""
    events = declared_events(f"raw_{uuid4().hex[:8]}", bronze.topic)
    yield events
    bronze.lake.drop(events.declaration)


@pytest.mark.stack
def test_the_asset_tells_what_it_read_and_its_checks_pass(
    bronze: Bronze, events: RecordTable, instance: dg.DagsterInstance
) -> None:
    table = events.declaration

    def materialized() -> tuple[dict[str, Any], dict[str, bool]]:
        config = {"ops": {step_name(table): {"config": {"max_records": 200}}}}
        checks = [table_checks(table), offsets_check(table)]
        resources = {"kafka": bronze.kafka, "spark": bronze.lake.spark, "duckdb": bronze.lake.duckdb}
        done = dg.materialize([record_table(events), *checks], instance=instance, resources=resources, run_config=config)
        (event,) = done.asset_materializations_for_node(step_name(table))
        passed = {check.check_name: check.passed for check in done.get_asset_check_evaluations()}
        return {name: value.value for name, value in event.metadata.items()}, passed

    # Version 0 is reported. What a run committed that died before it could report is reported by the next one.
    bronze.lake.create(table)
    known = {COMMITS: {"versions": [0]}, "rows added": 0, "Delta version": 0, "dagster/row_count": 0}
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key(table), metadata=known))
    bronze.send(30)
    ingest(bronze.kafka, bronze.lake.spark, table, events.options)
    bronze.send(300)
    reported, passed = materialized()
    assert len(passed) == 3
    assert set(passed.values()) == {True}
    assert (reported["dagster/row_count"], reported["rows added"], reported["records read"], reported["batches"]) == (
        330,
        330,
        300,
        2,
    )
    assert (reported["offsets behind"], reported[COMMITS]) == (0, {"versions": [1, 2, 3]})
    assert (reported["topics"], reported["consumer group"]) == (bronze.topic, "ratify")
    assert reported["processedRowsPerSecond"] > 0
    assert reported["bytes written"] > 0
    assert offsets(last_reported(table, instance).get(OFFSETS)) == {bronze.topic: {0: 110, 1: 110, 2: 110}}


# In `make test`, tests/cli/test_stream.py has streams that run on, their position and their end.
@pytest.mark.long
@pytest.mark.stack
def test_a_continuous_stream_takes_records_until_it_is_stopped(bronze: Bronze) -> None:
    stop, seen, shown = threading.Event(), list[Batch](), list[Offsets]()

    def on_batch(batch: Batch) -> None:
        seen.append(batch)
        if len(seen) == 1:
            bronze.send(30)
        elif len(seen) == 2:
            shown.append(bronze.kafka.progress("watchers", [bronze.topic]))
        # The second ones may come in more than one batch.
        if sum(batch.rows for batch in seen) == 60:
            stop.set()

    # It starts at the end, and takes what comes then.
    bronze.send(30)
    config = SourceOptions(topics=[bronze.topic], consumer_group="watchers", starting="latest")
    options = StreamOptions(0.2, stop, on_start=lambda: bronze.send(30), on_batch=on_batch)
    done = ingest(bronze.kafka, bronze.lake.spark, bronze.table, config, options)
    assert done.run.rows == 60
    assert bronze.held() == dict.fromkeys(range(3), (20, 10, 29))
    # Kafka's tools see how far it is while it goes on, after each batch.
    assert shown == [{bronze.topic: {0: 20, 1: 20, 2: 20}}]
    assert bronze.kafka.progress("watchers", [bronze.topic]) == done.position


@pytest.mark.stack
def test_what_kafka_refuses_is_said_without_the_password(
    bronze: Bronze,
    events: RecordTable,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "not-the-s3cret")
    with pytest.raises(BrokerDenied) as refused:
        bronze.ingest()
    # Nor does Dagster keep it, in a run, its log, or its metadata.
    resources = {"kafka": bronze.kafka, "spark": bronze.lake.spark}
    failed = dg.materialize([record_table(events)], instance=instance, resources=resources, raise_on_error=False)
    run = repr([instance.get_run_by_id(failed.run_id), *instance.all_logs(failed.run_id)])
    assert "BrokerDenied" in run
    # Also where only Spark comes to Kafka with it.
    options = Kafka().source_options()
    frame = bronze.lake.spark.session.readStream.format("kafka").options(**options, subscribe=bronze.topic).load()
    said = capfd.readouterr()
    frame.explain(True)
    plan = capfd.readouterr().out
    assert "kafka.sasl.jaas.config=" in plan
    logs = "".join(log.read_text(errors="replace") for log in (Settings().home / "logs").iterdir())
    assert "s3cret" not in f"{refused.value}{said.out}{said.err}{plan}{logs}{run}"
