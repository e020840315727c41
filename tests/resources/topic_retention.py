"""Records that expire, as by a topic's retention."""

from functools import partial

from confluent_kafka import TopicPartition

from resources.kafka.kafka_client import Kafka, Offsets


def delete_records(kafka: Kafka, before: Offsets) -> None:
    """Delete the records before the given offsets."""
    until = [TopicPartition(topic, at, offset) for topic, by in before.items() for at, offset in by.items()]
    with kafka._admin() as (admin, ask):
        ask(partial(admin.delete_records, until, request_timeout=kafka.timeout_seconds))
