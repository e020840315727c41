"""Records of Kafka: from offset to offset, and never in silence past what is not in the topic any more.

Where the checkpoint is lost, the stream goes on after the offsets that the table holds; where records are gone that were not
read, it fails, or the gap is told.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingest.records.record_source import (
    IN_KAFKA,
    OFFSETS,
    RECORD,
    Gap,
    RecordSource,
    SourceOptions,
    SourceProgress,
    SourceStatus,
    StreamTarget,
    refused,
)
from resources.declarations import TableDeclaration
from resources.errors import OffsetsExpired, StreamError, StreamFailed
from resources.kafka.kafka_client import Kafka, OffsetRange, Offsets
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions, StreamRun, failure, offsets
from resources.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

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


class KafkaSource(RecordSource):
    """The topics of a Kafka, as they are when a run begins."""

    def __init__(self, kafka: Kafka, config: SourceOptions) -> None:
        self._kafka = kafka
        self._config = config
        self._topics = config.named_topics
        self._held: Offsets = {}

    def status(self, told: Mapping[str, Any]) -> SourceStatus:
        behind = self._kafka.offset_range(self._topics).behind(offsets(told.get(OFFSETS)))
        topics = ", ".join(self._topics)
        return (
            SourceStatus(True, f"{behind} records behind in {topics}")
            if behind
            else SourceStatus(False, f"Nothing new in {topics}.")
        )

    def look(self) -> None:
        self._offset_range = self._kafka.offset_range(self._topics)

    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        first = _of_each_partition(spark, table, "min(offset)")
        return refusal(spark.full_name(table), first, held_offsets(spark, table), self._offset_range)

    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        fails = self._config.on_data_loss == "fail"
        # Spark itself holds a checkpoint against the topics, if it is told to fail.
        self._held = {} if target.begun and fails else held_offsets(target.spark, target.table)
        gaps = _missing(self._held, self._offset_range)
        if fails:
            _refuse_gaps(gaps)
        reader_options = self._reader_options(options)
        if not target.begun:
            reader_options["startingOffsets"] = json.dumps(starting(self._config, self._offset_range, self._held))
        columns = [
            "timestampType AS timestamp_type" if column.name == "timestamp_type" else column.name for column in RECORD
        ]

        def read() -> "DataFrame":
            return target.spark.session.readStream.format("kafka").options(**reader_options).load().selectExpr(*columns)

        return read

    def _reader_options(self, options: StreamOptions) -> dict[str, str]:
        config = self._config
        reader_options = {
            **self._kafka.source_options(),
            "subscribe": ",".join(self._topics),
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(config.max_records),
            "failOnDataLoss": str(config.on_data_loss == "fail").lower(),
            # Kafka's client says that nobody answers after a minute, and Spark asks it three times.
            "kafka.default.api.timeout.ms": "20000",
            "kafka.request.timeout.ms": "15000",
        }
        if options.every is not None and config.min_records > 1:
            # For a stream that ends by itself there is nothing to wait for.
            reader_options |= {
                "minOffsetsPerTrigger": str(config.min_records),
                "maxTriggerDelay": f"{config.allowed_latency:g}s",
            }
        return reader_options

    def progressed(self, position: Any) -> None:
        if self._config.consumer_group:
            _show(self._kafka, self._config.consumer_group, offsets(position))

    def explained(self, said: str) -> StreamError:
        return failure(self._kafka.redacted(said))

    def failed(self, target: StreamTarget, error: StreamError) -> None:
        if isinstance(error, OffsetsExpired):
            held = held_offsets(target.spark, target.table)
            _refuse_gaps(_missing(held, self._kafka.offset_range(self._topics)), error)

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        position = offsets(run.position)
        if options.every is None and (left := self._offset_range.behind(position)) and not options.stop.is_set():
            raise StreamFailed(
                f"The stream ended {left} records before its end: another one took its place. Start it again."
            )
        after = self._kafka.offset_range(self._topics)
        gaps: tuple[Gap, ...] = ()
        if self._config.on_data_loss == "continue" and run.batches:
            began = offsets(run.batches[0].start) if target.begun else self._held
            gaps = _gaps(target.spark, target.table, run, began, after)
        shown = {"consumer group": self._config.consumer_group} if self._config.consumer_group else {}
        return SourceProgress(position, after.behind(position), gaps, {"topics": ", ".join(self._topics)} | shown)


def held_offsets(spark: Spark, table: TableDeclaration) -> Offsets:
    """Return for each partition of Kafka the offset after the last one that the table holds."""
    return _of_each_partition(spark, table, "max(offset) + 1")


def starting(config: SourceOptions, offset_range: OffsetRange, held: Offsets) -> Offsets:
    """Return where a stream without a checkpoint begins.

    That is after what the table holds. A partition of which it holds nothing is read from its first record if it holds
    something of the topic, for that stream may have died before it came to it; else as configured.
    """
    named = {topic: {int(p): at for p, at in by.items()} for topic, by in config.starting_offsets.items()}
    edge = offset_range.earliest if config.starting == "earliest" else offset_range.latest

    def at(topic: str, partition: int) -> int:
        if topic not in held:
            return named.get(topic, {}).get(partition, edge[topic][partition])
        next_ = held[topic].get(partition, 0)
        return max(next_, offset_range.earliest[topic][partition])

    return {topic: {partition: at(topic, partition) for partition in by} for topic, by in offset_range.latest.items()}


def _show(kafka: Kafka, group: str, position: Offsets) -> None:
    """Show Kafka's tools how far the stream is, which is no reason to fail: the records are in the table."""
    try:
        kafka.show_progress(group, position)
    except StreamError as error:
        logger.warning("the offsets are not shown in the consumer group %s: %s", group, error)


def refusal(table: str, first: Offsets, held: Offsets, offset_range: OffsetRange) -> str:
    """Say what a full refresh would lose: the earliest offsets still in the topics against those in the table."""
    said, lost = list[str](), 0
    for topic, by in held.items():
        for partition, next_ in sorted(by.items()):
            earliest = offset_range.earliest.get(topic, {}).get(partition)
            there = f"the topic begins at {earliest}" if earliest is not None else "the topic has no such partition"
            begins = first[topic][partition]
            lost += max(0, min(next_, next_ if earliest is None else earliest) - begins)
            said.append(f"{topic}/{partition}: the table holds {begins} to {next_ - 1}, {there}")
    return refused(table, f"{lost:,} offsets that it holds are no longer in Kafka. {'; '.join(said)}", "Kafka")


def _of_each_partition(spark: Spark, table: TableDeclaration, offset: str) -> Offsets:
    query = f"SELECT topic, partition, {offset} AS at FROM {{raw}} WHERE {IN_KAFKA} GROUP BY topic, partition"
    found: Offsets = {}
    for row in spark.rows(spark.sql(query, raw=spark.table(table))):
        found.setdefault(row["topic"], {})[row["partition"]] = row["at"]
    return found


def _missing(held: Offsets, offset_range: OffsetRange) -> list[Gap]:
    """Offsets after those that the table holds that the topics no longer have, or never had."""
    gaps = list[Gap]()
    for topic, by in held.items():
        for partition, next_ in by.items():
            earliest = offset_range.earliest.get(topic, {}).get(partition, next_)
            latest = offset_range.latest.get(topic, {}).get(partition, next_)
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


def _gaps(
    spark: Spark, table: TableDeclaration, run: StreamRun, began: Offsets, offset_range: OffsetRange
) -> tuple[Gap, ...]:
    """Offsets that a run passed over, which can only be where the topic now begins after the run did."""
    end = offsets(run.position)
    return tuple(
        Gap(topic, partition, row["before"] + 1, row["offset"] - 1)
        for topic, by in began.items()
        for partition, first in by.items()
        if first < offset_range.earliest.get(topic, {}).get(partition, first)
        for row in spark.rows(
            spark.sql(
                _JUMPS.format(topic=literal(topic), partition=partition, first=first, end=end[topic][partition]),
                raw=spark.table(table),
            )
        )
    )
