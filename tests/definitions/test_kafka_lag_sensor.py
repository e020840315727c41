"""When the sensor asks for a run, and what it says when it does not: against a real broker."""

from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.sensors.kafka_lag_sensor import STREAM_TAG, kafka_lag_sensor
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.ingest.records.file_records import FileSource
from ratify_lakehouse.ingest.records.record_source import OFFSETS, SourceOptions
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.event_tables import declared_events

TOPIC = "clicks"
TABLE = declared_events("clicks_raw", TOPIC).declaration


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def tick(instance: dg.DagsterInstance, kafka: Kafka, topic: str = TOPIC) -> dg.RunRequest | str:
    context = dg.build_sensor_context(instance=instance, resources={"kafka": kafka})
    result = kafka_lag_sensor(declared_events(TABLE.name, topic))(context)
    return result.skip_message or "" if isinstance(result, dg.SkipReason) else result  # type: ignore[return-value]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which the events are read."""
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    monkeypatch.setenv("EVENTS_SOURCE", "files")
    monkeypatch.setenv("EVENTS_FILES", str(folder := tmp_path / "in"))
    return folder


def report(instance: dg.DagsterInstance, topic: str, offset: int) -> None:
    position = dg.MetadataValue.json({topic: {0: offset}})
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key(TABLE), metadata={OFFSETS: position}))


def run(instance: dg.DagsterInstance, *, fails: bool) -> None:
    """A run of the stream that has just ended."""

    @dg.op
    def read() -> None:
        if fails:
            raise dg.Failure("the broker died")

    @dg.job(tags={STREAM_TAG: TABLE.table_name})
    def stream() -> None:
        read()

    stream.execute_in_process(instance=instance, raise_on_error=False)


def test_without_kafka_it_says_how_to_have_one(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    assert "ratify up --kafka" in str(tick(instance, Kafka()))


def test_a_broker_that_is_down_is_the_reason_that_the_tick_is_skipped(instance: dg.DagsterInstance) -> None:
    assert "127.0.0.1:1 did not answer" in str(tick(instance, Kafka(bootstrap="127.0.0.1:1", timeout_seconds=1)))


def test_files_that_were_not_there_at_the_last_run_are_a_reason_for_one(
    instance: dg.DagsterInstance, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Kafka(bootstrap="127.0.0.1:1", timeout_seconds=0.1)
    assert "does not exist: create it, or set EVENTS_FILES" in str(tick(instance, nowhere))
    (folder / "sub").mkdir(parents=True)
    # What is never read is no reason for a run.
    for name, content in {"empty": "", "a.tmp": "a", "_a": "a", ".a": "a", "sub/a.crc": "a"}.items():
        (folder / name).write_text(content)
    assert tick(instance, nowhere) == f"No files in {folder}."
    for name in ("sub/a", "b"):
        (folder / name).write_text("a")
        assert isinstance(tick(instance, nowhere), dg.RunRequest)
        source = FileSource(SourceOptions())
        source.look()
        reported = source.progress(None, None, StreamOptions()).more  # type: ignore[arg-type]
        instance.report_runless_asset_event(dg.AssetMaterialization(asset_key(TABLE), metadata=reported))
        assert tick(instance, nowhere) == f"Nothing new in {folder}."
    monkeypatch.setenv("EVENTS_SOURCE", "rate")
    assert "start a run by hand" in str(tick(instance, nowhere))
    monkeypatch.setenv("EVENTS_SOURCE", "kinesis")
    assert "let Firehose land" in str(tick(instance, nowhere))


@pytest.mark.stack
def test_it_asks_for_a_run_as_long_as_bronze_is_behind(
    instance: dg.DagsterInstance, kafka: Kafka, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"no topic {fresh_topic}" in str(tick(instance, kafka, fresh_topic))
    kafka.ensure_topic(fresh_topic)
    assert tick(instance, kafka, fresh_topic) == f"Nothing new in {fresh_topic}."
    with kafka.producer() as producer:
        producer.produce(fresh_topic, value=b"1")
        producer.produce(fresh_topic, value=b"2")
    for position in (None, 1):
        if position:
            report(instance, fresh_topic, position)
        asked = tick(instance, kafka, fresh_topic)
        assert isinstance(asked, dg.RunRequest)
        assert asked.asset_selection == [asset_key(TABLE)]
        assert asked.tags == {STREAM_TAG: TABLE.table_name}
    run(instance, fails=False)
    assert isinstance(tick(instance, kafka, fresh_topic), dg.RunRequest)
    run(instance, fails=True)
    assert "failed; the next one is requested in" in str(tick(instance, kafka, fresh_topic))
    report(instance, fresh_topic, 2)
    monkeypatch.setattr("ratify_lakehouse.definitions.sensors.kafka_lag_sensor.RETRY_SECONDS", 0.0)
    assert tick(instance, kafka, fresh_topic) == f"Nothing new in {fresh_topic}."
