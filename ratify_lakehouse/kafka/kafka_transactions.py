"""Transactions of Kafka: a reader of committed records (`isolation.level=read_committed`) sees all of one, or nothing.

KIP-98 has the protocol. A producer with a transactional id fences every earlier one with the same id, and Kafka completes or
aborts what that one left behind before `init_transactions` returns.
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ratify_lakehouse.errors import BrokerRejected, BrokerUnavailable
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka, OffsetRange
from ratify_lakehouse.kafka.kafka_errors import CHECK_BROKER, END_OF_PARTITION, PURGED, TOO_LARGE

if TYPE_CHECKING:
    from confluent_kafka import Producer

BY_KEY = -1
"""In place of a partition: by the hash of the key, as Java's clients compute it."""

_LONGEST_TRANSACTION_MS = 900_000
"""The most that Kafka permits unless `transaction.max.timeout.ms` says otherwise."""

_MAX_MESSAGE_BYTES = 64 * 2**20
"""The topic decides (`max.message.bytes`), not the client, whose default is 1 MB."""

_QUEUE_KB = 64 * 2**10
"""Records that wait in this process; librdkafka's default is 1 GB."""


class TransactionalProducer:
    """A producer whose records arrive in transactions. After an error it is of no more use.

    Attributes:
        settled: Whether every transaction was committed or aborted.
    """

    def __init__(self, kafka: Kafka, producer: "Producer", lost: list[tuple[Any, int]]) -> None:
        self._kafka, self._producer, self._lost = kafka, producer, lost
        self.settled = True

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit what the block sends; after an error in it, nothing of it is ever visible.

        Raises:
            StreamBusy: another producer has the transactional id now, or the transaction took too long.
            BrokerRejected: a record is too large for its topic.
            BrokerUnavailable: no broker answered. If that was at the end, the transaction may be committed; a new producer
                with the same id finds it either committed or aborted.
        """
        from confluent_kafka import KafkaException

        with self._kafka.translating([]):
            self._producer.begin_transaction()
            try:
                yield
                self._commit()
            except BaseException as error:
                try:
                    self._producer.abort_transaction(self._kafka.timeout_seconds)
                except KafkaException:
                    # Kafka does it, at the latest when a producer with the same id begins.
                    self.settled = False
                if isinstance(error, KafkaException):
                    self._raise_lost()
                raise

    def send(self, topic: str, key: bytes, value: bytes, partition: int = BY_KEY) -> None:
        """Send a record in the open transaction, to a partition or `BY_KEY`."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(topic, value, key, partition)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].name() in TOO_LARGE:
                    self._lost.append((error.args[0], len(value)))
                raise
            else:
                self._producer.poll(0)
                return

    def _commit(self) -> None:
        retrying = Retrying(
            retry=retry_if_exception(_is_retriable),
            stop=stop_after_delay(self._kafka.timeout_seconds * 3),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        retrying(self._producer.commit_transaction, self._kafka.timeout_seconds * 3)

    def _raise_lost(self) -> None:
        """Raise the error of the first record that did not arrive, which is the cause of those that follow."""
        lost = [(error, size) for error, size in self._lost if error.name() not in PURGED]
        if not lost:
            return
        error, size = lost[0]
        cause = self._kafka.translated(error)
        if error.name() not in TOO_LARGE:
            raise cause
        raise BrokerRejected(
            f"A record of {size:,} bytes is too large: {cause}. Raise max.message.bytes of its topic; nothing of the "
            "transaction is visible."
        )


def _is_retriable(error: BaseException) -> bool:
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and error.args[0].retriable()


@contextmanager
def transactional_producer(kafka: Kafka, transactional_id: str) -> Generator[TransactionalProducer]:
    """A producer with a transactional id; those before it with that id can commit nothing more.

    Raises:
        BrokerUnavailable, BrokerDenied, NotConfigured.
    """
    from confluent_kafka import Producer

    client_errors, lost = list[Any](), list[tuple[Any, int]]()

    def arrived(error: Any, record: Any) -> None:
        if error:
            lost.append((error, len(record)))

    with kafka.translating(client_errors):
        settings: dict[str, Any] = {
            **kafka.client_settings(client_errors),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _LONGEST_TRANSACTION_MS,
            "message.max.bytes": _MAX_MESSAGE_BYTES,
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "on_delivery": arrived,
        }
        producer = Producer(settings)
        producer.init_transactions(kafka.timeout_seconds * 3)
        transactional = TransactionalProducer(kafka, producer, lost)
        try:
            yield transactional
        finally:
            # `close` aborts an open transaction, and waits for ever for a broker that is down.
            if transactional.settled:
                producer.close()


def last_committed(kafka: Kafka, topic: str, key: bytes) -> bytes | None:
    """Return the value of the last committed record with a key, from a topic of one partition; None if there is none.

    Raises:
        TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
    """
    found = None
    for record in _committed(kafka, topic, [0]):
        if record.key() == key:
            found = record.value()
    return found


def has_committed(kafka: Kafka, topic: str) -> bool:
    """Return whether a topic has a record that is no part of a transaction that was aborted.

    Raises:
        TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
    """
    held = kafka.offset_range([topic])
    filled = [at for at, end in held.latest[topic].items() if end > held.earliest[topic][at]]
    return bool(filled) and next(_committed(kafka, topic, filled), None) is not None


def up_to_last_record(kafka: Kafka, topics: Sequence[str], isolation: Isolation) -> OffsetRange:
    """Return which offsets the topics hold, up to the last record that a reader of that isolation gets.

    Behind it are marks of transactions, or records of aborted ones. A reader whose position is the offset after its last
    record, as Flink's, never passes these.

    Raises:
        TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
    """
    held = kafka.offset_range(topics, isolation)
    return OffsetRange(held.earliest, {topic: _ends(kafka, topic, held, isolation) for topic in topics})


def _ends(kafka: Kafka, topic: str, held: OffsetRange, isolation: Isolation) -> dict[int, int]:
    """The offset after the last record of each partition, looked for from the end in growing steps."""
    earliest, latest = held.earliest[topic], held.latest[topic]
    ends, step = dict(earliest), 1
    while unknown := {at: end for at, end in latest.items() if ends[at] == earliest[at] < end}:
        starts = {at: max(earliest[at], end - step) for at, end in unknown.items()}
        for record in _records(kafka, topic, starts, isolation, latest):
            ends[record.partition()] = record.offset() + 1
        # A partition that was searched whole has no record.
        latest = {at: end for at, end in latest.items() if at not in starts or starts[at] > earliest[at]}
        step *= 8
    return ends


def _committed(kafka: Kafka, topic: str, partitions: Sequence[int]) -> Iterator[Any]:
    """Yield the committed records of partitions."""
    from confluent_kafka import OFFSET_BEGINNING

    return _records(kafka, topic, dict.fromkeys(partitions, OFFSET_BEGINNING), "read_committed", {})


def _records(
    kafka: Kafka, topic: str, starts: Mapping[int, int], isolation: Isolation, until: Mapping[int, int]
) -> Iterator[Any]:
    """Yield the records of partitions from their offsets on, to the end, or to what `until` has."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    failed, unread = list[Any](), set(starts)
    settings: dict[str, Any] = {
        **kafka.client_settings(failed),
        "group.id": "ratify",
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
    }
    with kafka.translating(failed, topic):
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(topic, partition, at) for partition, at in starts.items()])
            waits_until = time.monotonic() + kafka.timeout_seconds * 3
            while unread and time.monotonic() < waits_until:
                record: Any = consumer.poll(0.5)
                if record is None:
                    continue
                partition: int = record.partition()
                if error := record.error():
                    if error.name() != END_OF_PARTITION:
                        raise KafkaException(error)
                    unread.discard(partition)
                    continue
                waits_until = time.monotonic() + kafka.timeout_seconds * 3
                last = until.get(partition, record.offset() + 2) - 1
                if record.offset() <= last:
                    yield record
                if record.offset() >= last:
                    unread.discard(partition)
                    # Others may write to it for as long as the rest is read.
                    consumer.pause([TopicPartition(topic, partition)])
        finally:
            consumer.close()
    if unread:
        raise BrokerUnavailable(f"Kafka at {kafka.connection.bootstrap} did not answer. {CHECK_BROKER}")
