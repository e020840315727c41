"""Codes of Kafka, and which of our errors each becomes."""

import pytest
from confluent_kafka import KafkaError

from ratify_lakehouse.errors import (
    BrokerDenied,
    BrokerRejected,
    BrokerUnavailable,
    StreamBusy,
    StreamError,
    TopicMissing,
    TransientError,
)
from ratify_lakehouse.kafka.kafka_errors import (
    DENIED,
    END_OF_PARTITION,
    EXISTS,
    FENCED,
    MISSING,
    PURGED,
    TOO_LARGE,
    UNAVAILABLE,
    UNSETTLED,
    translated,
)

_CODES = DENIED | MISSING | UNAVAILABLE | FENCED | PURGED | TOO_LARGE | {EXISTS, END_OF_PARTITION}


def named(name: str) -> KafkaError:
    return KafkaError(getattr(KafkaError, name))


@pytest.mark.parametrize("name", sorted(_CODES))
def test_every_code_is_one_that_kafka_has(name: str) -> None:
    assert named(name).name() == name


def test_a_code_that_is_asked_again_is_transient_if_it_stays() -> None:
    assert UNSETTLED < UNAVAILABLE
    assert UNAVAILABLE.isdisjoint(DENIED | MISSING)
    for name in UNSETTLED:
        error = translated(named(name), "broker:9092", "not the leader")
        assert type(error) is BrokerUnavailable, name
        assert isinstance(error, TransientError)
        assert "broker:9092 did not answer: not the leader. Check" in str(error)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", BrokerDenied),
        ("UNKNOWN_TOPIC_OR_PART", TopicMissing),
        ("_TRANSPORT", BrokerUnavailable),
        ("_FENCED", StreamBusy),
        ("_FATAL", StreamBusy),
        ("MSG_SIZE_TOO_LARGE", BrokerRejected),
        ("OFFSET_OUT_OF_RANGE", BrokerRejected),
    ],
)
def test_codes_by_what_they_mean(name: str, kind: type[StreamError]) -> None:
    assert type(translated(named(name), "broker:9092", "text", "events")) is kind
