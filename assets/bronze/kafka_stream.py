"""Records of Kafka in a bronze table as they came: each exactly once, whatever dies meanwhile.

A micro-batch is one commit, which carries the query's id and the batch's number: repeated, it changes nothing. Where the
checkpoint is lost, the stream goes on after the offsets that the table holds. What is not in the topic any more is never
passed over in silence: the stream fails, or the gap is told.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from resources import checkpoints
from resources.errors import OffsetsExpired, ResetRefused, StreamError, StreamFailed
from resources.history import Commit
from resources.kafka import Extent, Kafka, Offsets
from resources.settings import Settings
from resources.spark import Spark
from resources.streams import Course, StreamRun, failure, follow, offsets
from resources.tables import Column, TableDeclaration, literal

logger = logging.getLogger(__name__)

RECORD = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint", "unique within topic and partition"),
    Column("timestamp", "timestamp", "when the record was made, or the broker got it"),
    Column("timestamp_type", "int", "0: made by the producer, 1: by the broker"),
    Column("headers", "array<struct<key:string,value:binary>>"),
)
"""The columns of a table of records."""

# The offsets of one partition after which others are missing, {first} - 1 and {end} standing for what is before and after.
_JUMPS = """
SELECT before, offset
FROM (
  SELECT offset, lag(offset, 1, {first} - 1L) OVER (ORDER BY offset) AS before
  FROM (
    SELECT offset FROM {{raw}}
    WHERE topic = {topic} AND partition = {partition} AND offset >= {first} AND offset < {end}
    UNION ALL SELECT {end}L
  )
)
WHERE offset > before + 1
ORDER BY offset
"""


class StreamConfig(dg.Config):
    """How records are taken from Kafka."""

    topics: list[str] = Field(default=[], description="Topics to read; empty: KAFKA_TOPICS")
    starting: Literal["earliest", "latest"] = Field(default="earliest", description="Where a new stream begins")
    starting_offsets: dict[str, dict[str, int]] = Field(
        default={}, description="Where it begins in these partitions: {topic: {partition: offset}}"
    )
    max_records: int = Field(default=500_000, ge=1, description="Records in one batch, and so in one commit, at most")
    min_file_bytes: int = Field(default=64 * 2**20, ge=1, description="Files of one batch are put together up to this size")
    min_records: int = Field(default=1, ge=1, description="A continuous stream waits for so many records")
    allowed_latency: float = Field(default=60, gt=0, description="But no longer than so many seconds")
    consumer_group: str = Field(default="ratify", description="Where Kafka's tools see how far it is; empty: nowhere")
    on_data_loss: Literal["fail", "continue"] = Field(
        default="fail", description="When records are gone from the topic before they were read; a gap is always told"
    )
    full_refresh: bool = Field(default=False, description="Empty the table and read what the topics still have")
    force: bool = Field(default=False, description="Do so although rows are lost that the topics no longer have")

    @property
    def named_topics(self) -> list[str]:
        """The topics, by configuration or settings."""
        return self.topics or [topic.strip() for topic in Settings().kafka_topics.split(",") if topic.strip()]


@dataclass(frozen=True)
class Gap:
    """Offsets, `first` to `last`, that were gone from a partition before they were read."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class Ingested:
    """What a run of the stream did.

    Attributes:
        position: The next offset of each partition.
        behind: Records that have come to the topics and were not read.
        removed: Rows that a full refresh took out before.
    """

    run: StreamRun
    position: Offsets
    behind: int
    gaps: tuple[Gap, ...]
    created: bool
    removed: int
    refreshed: Commit | None


def ingest(
    kafka: Kafka,
    spark: Spark,
    table: TableDeclaration,
    config: StreamConfig,
    course: Course | None = None,
) -> Ingested:
    """Stream records from Kafka into bronze: all that are there, or as `course` says.

    Raises:
        BrokerUnavailable, BrokerDenied, TopicMissing: nothing was read.
        OffsetsExpired: records are gone that were not read, and `on_data_loss` is "fail".
        ResetRefused: a full refresh that is not forced.
        StreamBusy: another process of this home runs it.
        StreamFailed: the stream ended before it was done; started again, it goes on.
    """
    with checkpoints.alone(table):
        return _ingest(kafka, spark, table, config, course or Course())


def _ingest(
    kafka: Kafka,
    spark: Spark,
    table: TableDeclaration,
    config: StreamConfig,
    course: Course,
) -> Ingested:
    topics = config.named_topics
    extent = kafka.extent(topics)
    created = spark.ensure_table(table)
    checkpoint = checkpoints.folder(spark, table)
    removed, refreshed = _refresh(spark, table, config, extent) if config.full_refresh else (0, None)
    begun = checkpoints.has_begun(checkpoint)
    # Spark itself holds a checkpoint against the topics, if it is told to fail.
    held = {} if begun and config.on_data_loss == "fail" else held_offsets(spark, table)
    gaps = _missing(held, extent)
    if config.on_data_loss == "fail":
        _refuse_gaps(gaps)
    start = None if begun else starting(config, extent, held)
    query = _query(kafka, spark, table, config, start, checkpoint, course)
    if config.consumer_group:
        course = replace(course, on_progress=lambda position: _show(kafka, config.consumer_group, offsets(position)))
    try:
        run = follow(spark, query, course, explain=lambda said: failure(kafka.redacted(said)))
    except OffsetsExpired as error:
        _refuse_gaps(_missing(held_offsets(spark, table), kafka.extent(topics)), error)
        raise
    position = offsets(run.position)
    if course.every is None and (left := extent.behind(position)) and not course.stop.is_set():
        raise StreamFailed(f"The stream ended {left} records before its end: another one took its place. Start it again.")
    after = kafka.extent(topics)
    began = offsets(run.batches[0].start) if begun and run.batches else held
    passed = _gaps(spark, table, run, began, after) if config.on_data_loss == "continue" and run.batches else ()
    return Ingested(run, position, after.behind(position), passed, created, removed, refreshed)


def held_offsets(spark: Spark, table: TableDeclaration) -> Offsets:
    """Return for each partition the offset after the last one that the table holds."""
    next_ = "SELECT topic, partition, max(offset) + 1 AS next FROM {raw} GROUP BY topic, partition"
    held: Offsets = {}
    for row in spark.rows(spark.sql(next_, raw=spark.table(table))):
        held.setdefault(row["topic"], {})[row["partition"]] = row["next"]
    return held


def starting(config: StreamConfig, extent: Extent, held: Offsets) -> Offsets:
    """Return where a stream without a checkpoint begins.

    That is after what the table holds. A partition of which it holds nothing is read from its first record if it holds
    something of the topic, for that stream may have died before it came to it; else as configured.
    """
    named = {topic: {int(p): at for p, at in by.items()} for topic, by in config.starting_offsets.items()}
    edge = extent.earliest if config.starting == "earliest" else extent.latest

    def at(topic: str, partition: int) -> int:
        if topic not in held:
            return named.get(topic, {}).get(partition, edge[topic][partition])
        next_ = held[topic].get(partition, 0)
        return max(next_, extent.earliest[topic][partition])

    return {topic: {partition: at(topic, partition) for partition in by} for topic, by in extent.latest.items()}


def _show(kafka: Kafka, group: str, position: Offsets) -> None:
    """Show Kafka's tools how far the stream is, which is no reason to fail: the records are in the table."""
    try:
        kafka.show_progress(group, position)
    except StreamError as error:
        logger.warning("the offsets are not shown in the consumer group %s: %s", group, error)


def _query(
    kafka: Kafka,
    spark: Spark,
    table: TableDeclaration,
    config: StreamConfig,
    start: Offsets | None,
    checkpoint: str,
    course: Course,
) -> Callable[[], Any]:
    options = {
        **kafka.source_options(),
        "subscribe": ",".join(config.named_topics),
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(config.max_records),
        "failOnDataLoss": str(config.on_data_loss == "fail").lower(),
        # Kafka's client says that nobody answers after a minute, and Spark asks it three times.
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "15000",
    }
    if start is not None:
        options["startingOffsets"] = json.dumps(start)
    if course.every is not None and config.min_records > 1:
        # For a stream that ends by itself there is nothing to wait for.
        options |= {"minOffsetsPerTrigger": str(config.min_records), "maxTriggerDelay": f"{config.allowed_latency:g}s"}

    def query() -> Any:
        # Else each task, one a partition, would write a small file.
        spark.session.conf.set("spark.databricks.delta.optimizeWrite.binSize", f"{config.min_file_bytes}b")
        records = spark.session.readStream.format("kafka").options(**options).load()
        columns = (
            "timestampType AS timestamp_type" if c == "timestamp_type" else c for c in [column.name for column in RECORD]
        )
        writer = records.selectExpr(*columns).writeStream.format("delta").queryName(table.name)
        writer = writer.option("optimizeWrite", "true").option("checkpointLocation", checkpoint).trigger(**course.trigger)
        return writer.toTable(spark.full_name(table))

    return query


def _refresh(spark: Spark, table: TableDeclaration, config: StreamConfig, extent: Extent) -> tuple[int, Commit | None]:
    """Empty the table and forget how far the stream was; return how many rows it had, and the commit.

    Raises:
        ResetRefused: `force` is not set.
    """
    rows = spark.count(table)
    if rows and not config.force:
        raise ResetRefused(refusal(spark.full_name(table), _first_held(spark, table), held_offsets(spark, table), extent))
    # In this order: with the checkpoint gone and the rows there, a stream goes on after them.
    checkpoints.forget(spark, table)
    return rows, spark.emptied(spark.full_name(table)) if rows else None


def refusal(table: str, first: Offsets, held: Offsets, extent: Extent) -> str:
    """Say what a full refresh would lose: the earliest offsets still in the topics against those in the table."""
    said, lost = list[str](), 0
    for topic, by in held.items():
        for partition, next_ in sorted(by.items()):
            earliest = extent.earliest.get(topic, {}).get(partition)
            there = f"the topic begins at {earliest}" if earliest is not None else "the topic has no such partition"
            begins = first[topic][partition]
            lost += max(0, min(next_, next_ if earliest is None else earliest) - begins)
            said.append(f"{topic}/{partition}: the table holds {begins} to {next_ - 1}, {there}")
    return (
        f"{table} is not read anew: {lost:,} offsets that it holds are no longer in Kafka. {'; '.join(said)}. What is built "
        "from it (silver, gold) can be rebuilt from it at any time. If you mean it, set force as well: rows that Kafka no "
        "longer has are then lost."
    )


def _first_held(spark: Spark, table: TableDeclaration) -> Offsets:
    first: Offsets = {}
    query = "SELECT topic, partition, min(offset) AS first FROM {raw} GROUP BY topic, partition"
    for row in spark.rows(spark.sql(query, raw=spark.table(table))):
        first.setdefault(row["topic"], {})[row["partition"]] = row["first"]
    return first


def _missing(held: Offsets, extent: Extent) -> list[Gap]:
    """Offsets after those that the table holds that the topics no longer have, or never had."""
    gaps = list[Gap]()
    for topic, by in held.items():
        for partition, next_ in by.items():
            earliest = extent.earliest.get(topic, {}).get(partition, next_)
            latest = extent.latest.get(topic, {}).get(partition, next_)
            if latest < next_:
                raise OffsetsExpired(
                    f"The table holds {topic}/{partition} up to offset {next_ - 1}, and the topic ends before {latest}: it "
                    "was made anew. Give the new one another name, or refresh the table fully."
                )
            if earliest > next_:
                gaps.append(Gap(topic, partition, next_, earliest - 1))
    return gaps


def _refuse_gaps(gaps: Sequence[Gap], cause: Exception | None = None) -> None:
    if gaps:
        shown = ", ".join(f"{gap.topic}/{gap.partition}: {gap.first} to {gap.last}" for gap in gaps)
        raise OffsetsExpired(
            f"Records are gone from the topic that were not read yet: {shown}. Nothing was committed past them. Have them "
            'sent again to another topic, or accept the gap: on_data_loss="continue" goes on, and the gap is kept in the '
            "metadata of the materialization."
        ) from cause


def _gaps(spark: Spark, table: TableDeclaration, run: StreamRun, began: Offsets, extent: Extent) -> tuple[Gap, ...]:
    """Offsets that a run passed over, which can only be where the topic now begins after the run did."""
    end = offsets(run.position)
    return tuple(
        Gap(topic, partition, row["before"] + 1, row["offset"] - 1)
        for topic, by in began.items()
        for partition, first in by.items()
        if first < extent.earliest.get(topic, {}).get(partition, first)
        for row in spark.rows(
            spark.sql(
                _JUMPS.format(topic=literal(topic), partition=partition, first=first, end=end[topic][partition]),
                raw=spark.table(table),
            )
        )
    )
