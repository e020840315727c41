"""Records that expire, as by a topic's retention, or never do, and topics that are deleted."""

import time
from contextlib import suppress
from functools import partial

from confluent_kafka import TopicPartition

from ratify_lakehouse.errors import TopicMissing
from ratify_lakehouse.kafka.kafka_client import Kafka, Offsets

MAINTAINED = {"retention.ms": "-1"}
"""Of a topic for records that are older than a week: the broker goes by the time of a record, and soon deletes them."""


def delete_records(kafka: Kafka, before: Offsets) -> None:
    """Delete the records before the given offsets."""
    until = [TopicPartition(topic, at, offset) for topic, by in before.items() for at, offset in by.items()]
    with kafka._admin() as (admin, ask):
        ask(partial(admin.delete_records, until, request_timeout=kafka.timeout_seconds))


def delete_topic(kafka: Kafka, topic: str) -> None:
    """Delete a topic, if there is one, and wait until it is gone."""
    with suppress(TopicMissing), kafka._admin() as (admin, ask):
        ask(partial(admin.delete_topics, [topic], request_timeout=kafka.timeout_seconds))
    deadline = time.monotonic() + 60
    with suppress(TopicMissing):
        while time.monotonic() < deadline:
            kafka.offset_range([topic])
            time.sleep(0.2)
        raise AssertionError(f"{topic} is still there")
