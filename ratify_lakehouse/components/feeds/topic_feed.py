"""The changes of a table in a Kafka topic: one message for each changed row, exactly once for readers of committed records.

Each pass publishes the changes of the versions since the last one. The position, which is the version up to which the topic
has the changes of the table, is a record of the compacted topic `<topic>.offsets`, sent in the same transaction as the
changes, as Kafka Connect's source connectors with exactly-once support do it (KIP-618). It is the only state: a pass that is
killed leaves a transaction that Kafka aborts, or completes if its commit had begun, before the next pass reads the position.
The transactional id names the table and the topic, so that of two passes at once the later one goes on, and the other one is
refused.

A transaction has whole versions: many small ones, or one alone, which is read part by part if it is large.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from ratify_lakehouse.components.feeds.paired_changes import (
    JSON_OPTIONS,
    given_version,
    next_version,
    opened_log,
    paired_changes,
    readable,
)
from ratify_lakehouse.components.feeds.topic_position import (
    FeedPosition,
    FoundTopic,
    check_position,
    position_key,
    read_position,
)
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import BrokerRejected, PositionUnsafe
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.kafka.kafka_transactions import TransactionalProducer, has_committed, transactional_producer
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES = Path(__file__).with_name("topic_feed.sql")
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True)
class PublishedTopic:
    """A topic with the changes of a table.

    Attributes:
        table: The table, as schema.table.
        keys: Columns that identify its rows.
        topic: The topic.
        partitions: Of the topic, if it is created.
        from_version: The version to begin with, or to go on from without those before.
        most_messages: A transaction with more of them has one version alone, and this process holds no more at once.
        most_bytes: The same for the bytes of keys and values.
    """

    table: str
    keys: tuple[str, ...]
    topic: str
    partitions: int = 1
    from_version: int = 0
    most_messages: int = 50_000
    most_bytes: int = 32 * 2**20

    @property
    def offsets_topic(self) -> str:
        """The topic with the position."""
        return f"{self.topic}.offsets"


@dataclass(frozen=True)
class Published:
    """What a pass has published.

    Attributes:
        first: The first version that it read; one after the position if there was nothing new.
        position: The position after it; None if there is none yet.
        messages: How many changed rows.
        transactions: In how many transactions.
    """

    first: int
    position: FeedPosition | None
    messages: int = 0
    transactions: int = 0


@dataclass(frozen=True)
class _Chunk:
    """The versions of one transaction, up to `last`, and in how many parts they are read."""

    first: int
    last: int
    messages: int
    parts: int


def publish_changes(
    kafka: Kafka, spark: Spark, published: PublishedTopic, reported: FeedPosition | None = None
) -> Published:
    """Publish what has changed in a table since the position of its topic.

    A message has the keys as JSON, and as its value an object with Debezium's fields: `before` and `after` (a row, or null),
    `op` (c, u or d) and `source` (connector, db, schema, table, table_id, version, commit_timestamp, ts_ms).

    Args:
        kafka: The brokers.
        spark: The session.
        published: The topic and its table.
        reported: The position that the last materialization reported.

    Raises:
        ChangesNotRecorded: the feed lacks versions that the topic does not have yet, or they cannot be read.
        QueryMismatch: the table has, or had, no such key.
        PositionUnsafe: the topic of the position is not compacted, or the position is not the topic's last one.
        StreamBusy: another pass has begun meanwhile, or a transaction took too long.
        BrokerRejected: a topic cannot be created, or a message is too large.
        CommitConflict: the table was changed while its changes were read.
        BrokerUnavailable, BrokerDenied, NotConfigured, LogUnreadable, TableMissing.
    """
    full_name = f"{spark.catalog.connection.name}.{published.table}"
    _ensure_topics(kafka, published)
    with transactional_producer(kafka, f"ratify:{full_name}:{published.topic}") as producer:
        # Not before: now no other pass can move it.
        position = read_position(kafka, full_name, published.offsets_topic)
        topic_id = kafka.topic_id(published.topic)
        log = opened_log(spark, full_name)
        found = FoundTopic(published.topic, topic_id, lambda: has_committed(kafka, published.topic), position, reported)
        given = given_version(position or reported, published.from_version)
        check_position(found, log.table_id, given)
        first = next_version(log, f"Topic {published.topic}", found.last(log.table_id), given)
        if first <= log.version:
            with readable(spark, log, first, f"topic {published.topic}"):
                rows = spark.computed(_messages(spark, published, log, first))
            chunks = _chunks(spark, published, rows, first, log.version)
        elif position and position.version >= log.version and position.topic_id in ("", topic_id):
            return Published(first, position)
        else:
            # The user has said that the topic begins later, or goes on from here.
            rows, chunks = None, [_Chunk(first, log.version, 0, 0)]
        for chunk in chunks:
            with producer.transaction():
                if rows is not None:
                    _send(spark, producer, published, rows, chunk)
                position = FeedPosition(log.table_id, chunk.last, topic_id, published.from_version)
                producer.send(published.offsets_topic, position_key(full_name), position.to_json(), 0)
    messages = sum(chunk.messages for chunk in chunks)
    return Published(first, position, messages, len(chunks))


def _ensure_topics(kafka: Kafka, published: PublishedTopic) -> None:
    created = False
    for topic, partitions, config in ((published.topic, published.partitions, {}), (published.offsets_topic, 1, _COMPACTED)):
        try:
            created = kafka.ensure_topic(topic, partitions, config)
        except BrokerRejected as error:
            raise BrokerRejected(f"The topic {topic} cannot be created. {error}") from error
    # Not every broker knows a new topic at once.
    policy = "compact" if created else kafka.topic_config(published.offsets_topic)["cleanup.policy"]
    if policy != "compact":
        raise PositionUnsafe(
            f"The topic {published.offsets_topic}, which has the position of {published.topic}, has the cleanup policy "
            f"{policy}: if the position is deleted, all changes are published again. Set its cleanup.policy to compact."
        )


def _messages(spark: Spark, published: PublishedTopic, log: TableLog, first: int) -> "DataFrame":
    """The messages of the versions from `first` on: `version`, `number`, `key` and `value`."""
    catalog, schema, table = log.full_name.rsplit(".", 2)
    text = Template(_MESSAGES.read_text()).substitute(
        catalog=literal(catalog),
        schema=literal(schema),
        table=literal(table),
        table_id=literal(log.table_id),
        options=JSON_OPTIONS,
    )
    return spark.query(text, paired=paired_changes(spark, log, published.keys, first, f"topic {published.topic}"))


def _chunks(spark: Spark, published: PublishedTopic, rows: "DataFrame", first: int, last: int) -> list[_Chunk]:
    """The transactions in which a range of versions is published; versions without changes are in one of the others."""
    sizes = spark.rows(
        spark.query(
            "SELECT version, count(*) AS messages, sum(octet_length(key) + octet_length(value)) AS bytes FROM {rows} "
            "GROUP BY version ORDER BY version",
            rows=rows,
        )
    )
    return list(_divided(published, [(row["version"], row["messages"], row["bytes"]) for row in sizes], first, last))


def _divided(published: PublishedTopic, sizes: list[tuple[int, int, int]], first: int, last: int) -> Iterator[_Chunk]:
    """Divide versions, each with its number of messages and bytes, into chunks."""
    messages, size = 0, 0
    for version, more, bytes_more in sizes:
        if messages and (messages + more > published.most_messages or size + bytes_more > published.most_bytes):
            yield _Chunk(first, version - 1, messages, _parts(published, messages, size))
            first, messages, size = version, 0, 0
        messages, size = messages + more, size + bytes_more
    yield _Chunk(first, last, messages, _parts(published, messages, size))


def _parts(published: PublishedTopic, messages: int, size: int) -> int:
    return max(-(-messages // published.most_messages), -(-size // published.most_bytes), 1)


def _send(
    spark: Spark, producer: TransactionalProducer, published: PublishedTopic, rows: "DataFrame", chunk: _Chunk
) -> None:
    """Send the messages of a chunk; those of one key in the order of the versions."""
    if not chunk.messages:
        return
    of_chunk = f"version BETWEEN {chunk.first} AND {chunk.last}"
    for part in range(chunk.parts):
        # All messages of a key are in one part.
        of_part = f"pmod(xxhash64(key), {chunk.parts}) = {part}"
        select = f"SELECT key, value FROM {{rows}} WHERE {of_chunk} AND {of_part} ORDER BY version, key, number"
        for row in spark.rows(spark.query(select, rows=rows)):
            producer.send(published.topic, row["key"].encode(), row["value"].encode())
