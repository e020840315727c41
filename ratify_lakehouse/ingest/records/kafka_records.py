"""Records of Kafka: from offset to offset, and never silently past records that the topic no longer has.

If the checkpoint is lost, the stream resumes after the offsets in the table. If records expired before they were read, it
fails, or reports the gap.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions, StreamRun, failure, offsets
from ratify_lakehouse.errors import OffsetsExpired, StreamError, StreamFailed
from ratify_lakehouse.ingest.records.expiry_watch import ExpiryWatch, OvertakenOffsets
from ratify_lakehouse.ingest.records.record_source import (
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
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka, OffsetRange, Offsets
from ratify_lakehouse.sql.spark_sql import literal
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

# As the source calls them.
_COLUMNS = ["timestampType AS timestamp_type" if column.name == "timestamp_type" else column.name for column in RECORD]
# The offsets of one partition, from {first} to {end}, before which others are missing; these two stand for what is around.
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
        self._watch = ExpiryWatch()

    def _range(self) -> OffsetRange:
        return self._kafka.offset_range(self._topics, self._config.isolation)

    def status(self, reported: Mapping[str, Any]) -> SourceStatus:
        behind = self._range().behind(offsets(reported.get(OFFSETS)))
        topics = ", ".join(self._topics)
        return (
            SourceStatus(True, f"{counted(behind, 'record')} behind in {topics}")
            if behind
            else SourceStatus(False, f"Nothing new in {topics}.")
        )

    def look(self) -> None:
        self._offset_range = self._range()

    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        first = _of_each_partition(spark, table, "min(offset)")
        return refusal(spark.full_name(table), first, held_offsets(spark, table), self._offset_range)

    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        fails = self._config.on_data_loss == "fail"
        # With failOnDataLoss, Spark itself compares a checkpoint with the topics.
        self._held = {} if target.begun and fails else held_offsets(target.spark, target.table)
        if target.begun and fails and self._is_open():
            # It would go back to the begin of the transaction, and read what it has read.
            self._ended(held_offsets(target.spark, target.table), self._offset_range)
        gaps = self._expired(self._held, self._offset_range)
        if fails:
            _refuse_gaps(gaps)
        reader_options = self._reader_options(options)
        if not target.begun:
            reader_options["startingOffsets"] = json.dumps(starting(self._config, self._offset_range, self._held))

        def read() -> "DataFrame":
            return target.spark.session.readStream.format("kafka").options(**reader_options).load().selectExpr(*_COLUMNS)

        return read

    def _reader_options(self, options: StreamOptions) -> dict[str, str]:
        config = self._config
        reader_options = {
            **_connection(self._kafka, config.isolation),
            "subscribe": ",".join(self._topics),
            "maxOffsetsPerTrigger": str(config.max_records),
            "failOnDataLoss": str(config.on_data_loss == "fail").lower(),
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
        if self._config.on_data_loss == "continue":
            try:
                self._watch.step(offsets(position), self._range().earliest)
            except StreamError as error:
                # The next step has the offsets of this one, too.
                logger.warning("where the topics begin is unknown after this batch: %s", error)

    def explained(self, error_text: str) -> StreamError:
        return failure(self._kafka.redacted(error_text))

    def _is_open(self) -> bool:
        """Whether there are records that a reader of committed ones is not given yet."""
        if self._config.isolation == "read_uncommitted":
            return False
        return self._kafka.offset_range(self._topics).behind(self._offset_range.latest) > 0

    def _expired(self, held: Offsets, offset_range: OffsetRange) -> list[Gap]:
        """Offsets after those in the table that the topics no longer have."""
        return _missing(held, self._ended(held, offset_range))

    def _ended(self, held: Offsets, offset_range: OffsetRange) -> OffsetRange:
        """Return the offsets of the topics, with those of open transactions where the table has more than a reader is given.

        Raises:
            StreamFailed: the table has records of an open transaction, which a stream of uncommitted ones has read.
        """
        if self._config.isolation == "read_uncommitted" or not (ahead := _beyond(held, offset_range)):
            return offset_range
        whole = self._kafka.offset_range(self._topics)
        if not _beyond(held, whole):
            raise StreamFailed(
                f"The table has records of transactions that are still open: {', '.join(ahead)}. They were read with "
                "`isolation: read_uncommitted`. Start the stream again when these transactions have ended."
            )
        return whole

    def failed(self, target: StreamTarget, error: StreamError) -> None:
        if isinstance(error, OffsetsExpired):
            held = held_offsets(target.spark, target.table)
            _refuse_gaps(self._expired(held, self._range()), error)

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        position = offsets(run.position)
        if options.every is None and (left := self._offset_range.behind(position)) and not options.stop.is_set():
            raise StreamFailed(f"The stream ended {left} records too early: another one replaced it. Start it again.")
        after = self._range()
        gaps: tuple[Gap, ...] = ()
        if self._config.on_data_loss == "continue" and run.batches:
            began = offsets(run.batches[0].start) if target.begun else self._held
            gaps = _gaps(target.spark, target.table, self._watch.found(began, position, after.earliest))
        shown = {"consumer group": self._config.consumer_group} if self._config.consumer_group else {}
        return SourceProgress(position, after.behind(position), gaps, {"topics": ", ".join(self._topics)} | shown)


def records_between(kafka: Kafka, spark: Spark, first: Offsets, end: Offsets, isolation: Isolation) -> "DataFrame":
    """Return the records of partitions that Kafka gives from one offset to another, as the columns `RECORD`.

    Args:
        kafka: The brokers.
        spark: Reads.
        first: The first offset of each partition, which exists.
        end: The offset after the last one, for the same partitions.
        isolation: Which records of transactions it gives.
    """
    reader_options = {
        **_connection(kafka, isolation),
        "assign": json.dumps({topic: sorted(by) for topic, by in first.items()}),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(end),
        "failOnDataLoss": "false",
    }
    return spark.session.read.format("kafka").options(**reader_options).load().selectExpr(*_COLUMNS)


def _connection(kafka: Kafka, isolation: Isolation) -> dict[str, str]:
    return {
        **kafka.source_options(),
        "kafka.isolation.level": isolation,
        "includeHeaders": "true",
        # By default Kafka's client waits a minute for an answer, and Spark tries three times.
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "15000",
    }


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


def _beyond(held: Offsets, offset_range: OffsetRange) -> list[str]:
    """The partitions of which the table has more than the topics give."""
    latest = offset_range.latest
    return [
        f"{topic}/{partition}"
        for topic, by in held.items()
        for partition, next_ in by.items()
        if latest.get(topic, {}).get(partition, next_) < next_
    ]


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


def _gaps(spark: Spark, table: TableDeclaration, suspect: Sequence[OvertakenOffsets]) -> tuple[Gap, ...]:
    """The offsets of these that the table lacks."""
    return tuple(
        Gap(each.topic, each.partition, row["before"] + 1, row["offset"] - 1)
        for each in suspect
        for row in spark.rows(
            spark.sql(
                _JUMPS.format(topic=literal(each.topic), partition=each.partition, first=each.first, end=each.end),
                raw=spark.table(table),
            )
        )
    )
