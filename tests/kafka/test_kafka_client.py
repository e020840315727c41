"""Kafka as a resource: against a real broker that asks for a password."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from ratify_lakehouse.errors import BrokerDenied, BrokerUnavailable, NotConfigured, StreamError, TopicMissing
from ratify_lakehouse.kafka.kafka_client import Kafka, OffsetRange
from ratify_lakehouse.settings import Settings
from tests.conftest import TestBroker
from tests.kafka.topic_retention import delete_records

# What is left of a client that was refused is collected while its thread gives up what it was asked.
REFUSED = """
import gc, time
from ratify_lakehouse.errors import BrokerDenied
from ratify_lakehouse.kafka.kafka_client import Kafka
gc.disable()
try:
    Kafka(timeout_seconds=2).offset_range(["t"])
except BrokerDenied:
    print("refused")
gc.set_threshold(1, 1, 1)
gc.enable()
time.sleep(4)
"""
HUB = "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=abc="


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOTSTRAP", "SECURITY_PROTOCOL", "SASL_MECHANISM", "USERNAME", "PASSWORD", "CA"):
        monkeypatch.delenv(f"KAFKA_{name}", raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))


def test_without_settings_it_is_the_broker_of_the_running_stack(nowhere: None, tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="ratify up --kafka"):
        _ = Kafka().connection
    (tmp_path / "stack.json").write_text('{"spark": null, "kafka": {"bootstrap": "127.0.0.1:1234", "pid": 1}}')
    assert Kafka().source_options() == {
        "kafka.bootstrap.servers": "127.0.0.1:1234",
        "kafka.security.protocol": "PLAINTEXT",
    }
    (tmp_path / "password").write_text("s3cret\n")
    with_password = {"bootstrap": "127.0.0.1:1234", "pid": 1, "password_file": str(tmp_path / "password")}
    (tmp_path / "stack.json").write_text(json.dumps({"spark": None, "kafka": with_password}))
    assert 'username="ratify" password="s3cret";' in Kafka().source_options()["kafka.sasl.jaas.config"]
    with pytest.raises(NotConfigured, match="SPARK_REMOTE"):
        Settings().spark_url()


def test_event_hubs_is_a_matter_of_settings(nowhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "x.servicebus.windows.net:9093")
    monkeypatch.setenv("KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(NotConfigured, match="KAFKA_USERNAME and KAFKA_PASSWORD"):
        _ = Kafka().connection
    monkeypatch.setenv("KAFKA_USERNAME", "$ConnectionString")
    monkeypatch.setenv("KAFKA_PASSWORD", HUB)
    monkeypatch.setenv("KAFKA_CA", str(tmp_path / "ca.pem"))
    assert Kafka().source_options() == {
        "kafka.bootstrap.servers": "x.servicebus.windows.net:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="$ConnectionString" password="{HUB}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
    }
    assert "abc=" not in repr(Kafka().connection)
    assert Kafka().redacted(f"refused: {HUB}!") == "refused: ***!"


def test_how_far_a_reader_is_behind_counts_what_is_still_there() -> None:
    offset_range = OffsetRange(earliest={"t": {0: 5, 1: 0, 2: 7}}, latest={"t": {0: 10, 1: 4, 2: 7}})
    assert offset_range.behind({}) == 9
    assert offset_range.behind({"t": {0: 3, 1: 4}}) == 5
    assert offset_range.behind({"t": {0: 10, 1: 4, 2: 7}}) == 0


def test_a_broker_that_is_down_is_reported_soon_and_by_name(nowhere: None) -> None:
    began = time.monotonic()
    kafka = Kafka(bootstrap="127.0.0.1:1", timeout_seconds=1)
    for ask in (lambda: kafka.offset_range(["t"]), lambda: kafka.show_progress("g", {"t": {0: 1}})):
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1 did not answer.*ratify status"):
            ask()
    assert time.monotonic() - began < 10


@pytest.mark.stack
def test_topics_offsets_and_groups(kafka: Kafka, fresh_topic: str) -> None:
    with pytest.raises(TopicMissing, match=f"no topic {fresh_topic}"):
        kafka.offset_range([fresh_topic])
    assert kafka.ensure_topic(fresh_topic, 3) is True
    assert kafka.ensure_topic(fresh_topic, 3) is False
    with kafka.producer() as producer:
        for number in range(300):
            producer.produce(fresh_topic, value=b"x", partition=number % 3)
    delete_records(kafka, {fresh_topic: {1: 40}})
    offset_range = kafka.offset_range([fresh_topic])
    assert offset_range == OffsetRange({fresh_topic: {0: 0, 1: 40, 2: 0}}, {fresh_topic: {0: 100, 1: 100, 2: 100}})
    with pytest.raises(StreamError, match="out of range"):
        delete_records(kafka, {fresh_topic: {1: 101}})
    assert kafka.progress("shown", [fresh_topic]) == {fresh_topic: {}}
    kafka.show_progress("shown", {fresh_topic: {0: 7, 2: 100}})
    assert kafka.progress("shown", [fresh_topic]) == {fresh_topic: {0: 7, 2: 100}}


@pytest.mark.stack
@pytest.mark.parametrize("topics", [6, pytest.param(40, marks=pytest.mark.long)])
def test_a_topic_can_be_asked_for_as_soon_as_it_is_made(kafka: Kafka, fresh_topic: str, topics: int) -> None:
    """Before its partitions have leaders the broker says that it is not the leader."""
    for number in range(topics):
        topic = f"{fresh_topic}-{number}"
        kafka.ensure_topic(topic, 8)
        assert kafka.offset_range([topic]).behind({}) == 0


@pytest.mark.stack
def test_a_record_that_is_too_large_is_an_error_of_the_producer(kafka: Kafka, fresh_topic: str) -> None:
    kafka.ensure_topic(fresh_topic, config={"max.message.bytes": "1000"})
    with pytest.raises(StreamError, match="size"), kafka.producer() as producer:
        producer.produce(fresh_topic, value=os.urandom(2000))
    assert kafka.offset_range([fresh_topic]).latest == {fresh_topic: {0: 0}}


@pytest.mark.stack
def test_a_wrong_password_is_refused_at_once_and_never_shown(
    kafka: Kafka,
    broker: TestBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", broker.password.replace("k+/", "not-the-s3cret+/"))
    began = time.monotonic()
    with pytest.raises(BrokerDenied, match="Check KAFKA_USERNAME, KAFKA_PASSWORD") as refused:
        kafka.offset_range(["t"])
    assert time.monotonic() - began < 8
    with pytest.raises(BrokerDenied):
        kafka.progress("g", ["t"])
    shown = capfd.readouterr()
    assert "not-the-s3cret" not in f"{refused.value}{caplog.text}{shown.out}{shown.err}"


@pytest.mark.stack
def test_a_client_that_was_refused_does_not_end_the_process(
    kafka: Kafka, broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", broker.password.replace("k+/", "not-the-s3cret+/"))
    asked = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "refused\n", "")


@pytest.mark.stack
def test_the_broker_writes_its_password_into_no_log(kafka: Kafka, broker: TestBroker) -> None:
    kafka.ensure_topic("anything")
    assert broker.state.password_file is not None
    logs = list((broker.state.password_file.parent / "logs").iterdir())
    assert logs
    assert [log for log in logs if broker.password.partition("k+/")[2][:32] in log.read_text(errors="replace")] == []


@pytest.mark.stack
@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT])
def test_offsets_are_asked_for_again_when_a_broker_has_just_come_back(
    kafka: Kafka, fresh_topic: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Its first answer may be of before; which it gives, if any, is up to chance: so that answer is made here."""
    kafka.ensure_topic(fresh_topic)
    real, asked = AdminClient.list_offsets, list[int]()

    def list_offsets(client: AdminClient, wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        asked.append(len(wanted))
        if len(asked) > 1:
            return real(client, wanted, **options)
        refused = Future[Any]()
        refused.set_exception(KafkaException(KafkaError(code)))
        return dict.fromkeys(wanted, refused)

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    assert kafka.offset_range([fresh_topic]).latest == {fresh_topic: {0: 0}}
    assert asked == [1, 1, 1]
