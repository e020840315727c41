"""Transactions of Kafka that are aborted, or stay open."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from confluent_kafka import Producer

from ratify_lakehouse.kafka.kafka_client import Kafka, Offsets
from ratify_lakehouse.kafka.kafka_transactions import _records

SECONDS = 30


@contextmanager
def transactions(kafka: Kafka, name: str, value: bytes | None = b"v") -> Generator["Transactions"]:
    """A producer of transactions whose records have a value, or none; one that is open at the end is aborted."""
    producer = Producer(
        {**kafka.client_settings([]), "transactional.id": name, "transaction.timeout.ms": 900_000, "linger.ms": 0}
    )
    producer.init_transactions(SECONDS)
    made = Transactions(producer, value)
    yield made
    if made.is_open:
        made.end(commit=False)


class Transactions:
    """One after the other."""

    def __init__(self, producer: Producer, value: bytes | None) -> None:
        self._producer, self._value = producer, value
        self.is_open = False

    def send(self, records: Iterable[tuple[str, int, str]]) -> None:
        """Have records (topic, partition, key) arrive in the open transaction, or in a new one."""
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        for topic, partition, key in records:
            # Compaction removes one without a value soon, also if it is the last of its key.
            self._producer.produce(topic, self._value, key, partition)
        assert self._producer.flush(SECONDS) == 0

    def end(self, *, commit: bool) -> None:
        """Commit or abort it."""
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(SECONDS)
        self.is_open = False

    def commit(self, records: Iterable[tuple[str, int, str]]) -> None:
        self.send(records)
        self.end(commit=True)

    def abort(self, records: Iterable[tuple[str, int, str]]) -> None:
        self.send(records)
        self.end(commit=False)


def readable(kafka: Kafka, topic: str, earliest: Offsets) -> dict[int, set[int]]:
    """The offsets of the committed records of a topic."""
    found = {partition: set[int]() for partition in earliest[topic]}
    for record in _records(kafka, topic, earliest[topic], "read_committed", {}):
        found[record.partition()].add(record.offset())
    return found
