"""Records of Kafka: from offset to offset, and never silently past records that the topic no longer has.

If the checkpoint is lost, the stream resumes after the offsets in the table. If records expired before they were read, it
fails, or reports the gap.
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
    refusal_text,
)
from resources.declarations import TableDeclaration
from resources.errors import OffsetsExpired, StreamError, StreamFailed
from resources.kafka.kafka_client import Kafka, OffsetRange, Offsets
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions, StreamRun, failure, offsets
from resources.sql.spark_sql import literal
from resources.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

# The offsets of one partition before which others are missing. {first} - 1 and {end} stand for what is before and after.
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
    """Topics of Kafka, as they are when a run starts."""

    def __init__(self, kafka: Kafka, config: SourceOptions) -> None:
        self._kafka = kafka
        self._config = config
        self._topics = config.topics
        self._held: Offsets = {}

    def status(self, reported: Mapping[str, Any]) -> SourceStatus:
        behind = self._kafka.offset_range(self._topics).behind(offsets(reported.get(OFFSETS)))
        topics = ", ".join(self._topics)
        return (
            SourceStatus(True, f"{counted(behind, 'record')} behind in {topics}")
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
        # With failOnDataLoss, Spark itself compares a checkpoint with the topics.
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
            # By default Kafka's client waits a minute for an answer, and Spark tries three times.
            "kafka.default.api.timeout.ms": "20000",
            "kafka.request.timeout.ms": "15000",
        }
        if options.every is not None and config.min_records > 1:
            # Only a continuous stream waits for records.
            reader_options |= {
                "minOffsetsPerTrigger": str(config.min_records),
                "maxTriggerDelay": f"{config.allowed_latency:g}s",
            }
        return reader_options

    def progressed(self, position: Any) -> None:
        if self._config.consumer_group:
            _show_progress(self._kafka, self._config.consumer_group, offsets(position))

    def explained(self, error_text: str) -> StreamError:
        return failure(self._kafka.redacted(error_text))

    def failed(self, target: StreamTarget, error: StreamError) -> None:
        if isinstance(error, OffsetsExpired):
            held = held_offsets(target.spark, target.table)
            _refuse_gaps(_missing(held, self._kafka.offset_range(self._topics)), error)

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        position = offsets(run.position)
        if options.every is None and (left := self._offset_range.behind(position)) and not options.stop.is_set():
            raise StreamFailed(f"The stream ended {left} records too early: another one replaced it. Start it again.")
        after = self._kafka.offset_range(self._topics)
        gaps: tuple[Gap, ...] = ()
        if self._config.on_data_loss == "continue" and run.batches:
            began = offsets(run.batches[0].start) if target.begun else self._held
            gaps = _gaps(target.spark, target.table, run, began, after)
        shown = {"consumer group": self._config.consumer_group} if self._config.consumer_group else {}
        return SourceProgress(position, after.behind(position), gaps, {"topics": ", ".join(self._topics)} | shown)


def held_offsets(spark: Spark, table: TableDeclaration) -> Offsets:
    """Return, for each partition of Kafka, the offset after the last one in the table."""
    return _of_each_partition(spark, table, "max(offset) + 1")


def starting(config: SourceOptions, offset_range: OffsetRange, held: Offsets) -> Offsets:
    """Return where a stream without a checkpoint starts.

    It starts after the offsets in the table. A partition without any is read from its first record if the table has records
    of the topic, because an earlier stream may have died before it reached that partition; else as configured.
    """
    named = {topic: {int(p): at for p, at in by.items()} for topic, by in config.starting_offsets.items()}
    edge = offset_range.earliest if config.starting == "earliest" else offset_range.latest

    def at(topic: str, partition: int) -> int:
        if topic not in held:
            return named.get(topic, {}).get(partition, edge[topic][partition])
        next_ = held[topic].get(partition, 0)
        return max(next_, offset_range.earliest[topic][partition])

    return {topic: {partition: at(topic, partition) for partition in by} for topic, by in offset_range.latest.items()}


def _show_progress(kafka: Kafka, group: str, position: Offsets) -> None:
    """Commit the position to a consumer group, for Kafka's tools. An error is only logged: the records are in the table."""
    try:
        kafka.show_progress(group, position)
    except StreamError as error:
        logger.warning("the offsets are not shown in the consumer group %s: %s", group, error)


def refusal(table: str, first: Offsets, held: Offsets, offset_range: OffsetRange) -> str:
    """Return what a full refresh would lose: the earliest offsets in the topics compared with those in the table."""
    partitions, lost = list[str](), 0
    for topic, by in held.items():
        for partition, next_ in sorted(by.items()):
            earliest = offset_range.earliest.get(topic, {}).get(partition)
            topic_begins = f"the topic begins at {earliest}" if earliest is not None else "the topic has no such partition"
            begins = first[topic][partition]
            lost += max(0, min(next_, next_ if earliest is None else earliest) - begins)
            partitions.append(f"{topic}/{partition}: the table holds {begins} to {next_ - 1}, {topic_begins}")
    lost_text = f"{lost:,} offsets that it holds are no longer in Kafka. {'; '.join(partitions)}"
    return refusal_text(table, lost_text, "Kafka")


def _of_each_partition(spark: Spark, table: TableDeclaration, offset: str) -> Offsets:
    query = f"SELECT topic, partition, {offset} AS at FROM {{raw}} WHERE {IN_KAFKA} GROUP BY topic, partition"
    found: Offsets = {}
    for row in spark.rows(spark.sql(query, raw=spark.table(table))):
        found.setdefault(row["topic"], {})[row["partition"]] = row["at"]
    return found


def _missing(held: Offsets, offset_range: OffsetRange) -> list[Gap]:
    """Offsets after those in the table that the topics no longer have."""
    gaps = list[Gap]()
    for topic, by in held.items():
        for partition, next_ in by.items():
            earliest = offset_range.earliest.get(topic, {}).get(partition, next_)
            latest = offset_range.latest.get(topic, {}).get(partition, next_)
            if latest < next_:
                raise OffsetsExpired(
                    f"The table holds {topic}/{partition} up to offset {next_ - 1}, and the topic ends before {latest}: it "
                    "was deleted and created again. Give the new topic another name, or refresh the table fully."
                )
            if earliest > next_:
                gaps.append(Gap(topic, partition, next_, earliest - 1))
    return gaps


def _refuse_gaps(gaps: Sequence[Gap], cause: Exception | None = None) -> None:
    if gaps:
        shown = ", ".join(f"{gap.topic}/{gap.partition}: {gap.first} to {gap.last}" for gap in gaps)
        raise OffsetsExpired(
            f"Records expired from the topic before they were read: {shown}. Nothing was committed past them. Have them "
            'sent to another topic, or accept the gap: on_data_loss="continue" continues after it, and the metadata of the '
            "materialization reports it."
        ) from cause


def _gaps(
    spark: Spark, table: TableDeclaration, run: StreamRun, began: Offsets, offset_range: OffsetRange
) -> tuple[Gap, ...]:
    """Offsets that a run skipped. That happens only where the topic now begins after the run did."""
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
