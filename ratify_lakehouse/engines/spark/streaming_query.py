"""Structured Streaming: a query run to its end or until it is stopped, and its progress as typed values.

A query that is started again continues from its checkpoint, whatever ended it: each micro-batch is one commit with the
query's id and the batch's number, which Delta never commits twice.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tenacity import Retrying, retry_if_exception, stop_after_attempt

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_errors import NO_WORKER
from ratify_lakehouse.errors import (
    BrokerDenied,
    BrokerUnavailable,
    OffsetsExpired,
    RatifyError,
    StreamError,
    StreamFailed,
    TopicMissing,
)
from ratify_lakehouse.kafka.kafka_client import Offsets

logger = logging.getLogger(__name__)

RECORDS = "ratify_records"
"""Name of an observation that counts the records in the rows of a source, if a row is not one record."""

_POLL_S = 1
# Less than `ratify stream stop` waits.
_LAST_BATCH_S = 40
_STARTS = 5
# Parts of the error text of a failed query, and what they mean; the first match counts.
_CAUSES: tuple[tuple[tuple[str, ...], type[StreamError], str], ...] = (
    (
        ("KAFKA_DATA_LOSS", "OffsetOutOfRangeException", "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        OffsetsExpired,
        "Records that it has not read are no longer in the topic",
    ),
    (
        ("SaslAuthenticationException", "SslAuthenticationException", "AuthorizationException"),
        BrokerDenied,
        "Kafka refused Spark: check KAFKA_USERNAME, KAFKA_PASSWORD and what this user may do",
    ),
    (("UnknownTopicOrPartitionException",), TopicMissing, "Kafka has no such topic"),
    (
        ("find data source: kafka", "find the data source: kafka"),
        StreamFailed,
        "Spark has no connector for Kafka: start it with `ratify up --kafka`, or with KAFKA_BOOTSTRAP set",
    ),
    (
        ("kafka.common.errors.TimeoutException", "kafka.common.errors.DisconnectException", "No resolvable bootstrap urls"),
        BrokerUnavailable,
        "Kafka does not answer Spark: check that it runs (`ratify status`), and start the stream again",
    ),
)


@dataclass(frozen=True)
class Batch:
    """What one micro-batch did, from Spark's progress.

    Attributes:
        rows: Records that it read.
        seconds: How long it took.
        input_rate, processed_rate: Spark's inputRowsPerSecond and processedRowsPerSecond, of records; the first is 0 for the
            first batch after a start.
        start, end: Position of its source before and after it, as the source writes it; `start` is None for a new stream.
        offsets_behind: Records in Kafka that were not read yet, as of its start.
        state_rows: Rows in the query's state store.
    """

    number: int
    rows: int
    seconds: float
    input_rate: float
    processed_rate: float
    start: Any
    end: Any
    offsets_behind: int | None
    state_rows: int


@dataclass(frozen=True)
class StreamRun:
    """What a query did from its start to its end.

    Attributes:
        batches: Those that read something.
        position: Current position of its source, as the source writes it; None if Spark did not report it.
    """

    query_id: str
    batches: tuple[Batch, ...]
    position: Any = None

    @property
    def rows(self) -> int:
        """Records that it read."""
        return sum(batch.rows for batch in self.batches)

    @property
    def seconds(self) -> float:
        """How long its batches took."""
        return sum(batch.seconds for batch in self.batches)

    @property
    def numbers(self) -> dict[str, int | float]:
        """Its numbers by Spark's names, as metadata that Dagster plots.

        inputRowsPerSecond is the highest of its batches, processedRowsPerSecond that over all of them.
        """
        return {
            "batches": len(self.batches),
            "inputRowsPerSecond": max((batch.input_rate for batch in self.batches), default=0.0),
            "processedRowsPerSecond": round(self.rows / self.seconds, 1) if self.seconds else 0.0,
            "state rows": max((batch.state_rows for batch in self.batches), default=0),
        }


@dataclass(frozen=True)
class StreamOptions:
    """How a stream is run: by default it reads all available data and ends.

    Attributes:
        every: Seconds from one micro-batch to the next, in continuous mode; None: the stream ends with the available data.
        stop: Ends the stream after the current batch; a batch that is cut off is repeated by the next start.
        on_start: Called when the stream has begun.
        on_batch: Called with each batch that had rows, when it ends.
        on_progress: Called with the source's position, as the source writes it, after batches that had rows.
    """

    every: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    on_start: Callable[[], None] = lambda: None
    on_batch: Callable[[Batch], None] = lambda _: None
    on_progress: Callable[[Any], None] = lambda _: None

    @property
    def trigger(self) -> Mapping[str, Any]:
        """What `DataStreamWriter.trigger` is given."""
        return {"availableNow": True} if self.every is None else {"processingTime": f"{self.every:g} seconds"}


def follow(
    spark: Spark, start: Callable[[], Any], options: StreamOptions, explain: Callable[[str], StreamError] | None = None
) -> StreamRun:
    """Start a query and follow it until it ends or `stop` is set; the query is stopped in any case.

    Args:
        spark: Whose session the query is of.
        start: Starts the query, as `writer.toTable` and `writer.start` do.
        options: How it is run; the query itself has its trigger already.
        explain: Returns the error for Spark's error text of a failed query; by default `failure`.

    Raises:
        OffsetsExpired, TopicMissing, BrokerUnavailable, BrokerDenied: Kafka, as Spark met it.
        StreamFailed: the query failed otherwise; or what `explain` returns.
        SparkUnavailable, CommitConflict, CatalogDenied, CatalogUnavailable: as of `Spark`.
    """
    progress, explain = _ProgressListener(options), explain or failure
    query = _started(spark, start, explain)
    options.on_start()
    try:
        ended = False
        while not ended and not options.stop.is_set():
            ended = _guarded(spark, lambda: bool(query.awaitTermination(_POLL_S)), explain)
            _guarded(spark, lambda: progress.look(query), explain)
        deadline = time.monotonic() + _LAST_BATCH_S
        while (
            not ended and time.monotonic() < deadline and _guarded(spark, lambda: query.status["isTriggerActive"], explain)
        ):
            ended = _guarded(spark, lambda: bool(query.awaitTermination(_POLL_S)), explain)
        _guarded(spark, lambda: progress.look(query), explain)
    finally:
        # If the server has stopped, the query has, too.
        with contextlib.suppress(Exception):
            query.stop()
    return StreamRun(
        str(query.id), tuple(progress.batches[number] for number in sorted(progress.batches)), progress.position
    )


def offsets(position: Any) -> Offsets:
    """Return a position in Kafka, as Spark writes it, as offsets."""
    by_topic = cast("Mapping[str, Mapping[str, int]]", json.loads(position) if isinstance(position, str) else position or {})
    return {topic: {int(partition): at for partition, at in by.items()} for topic, by in by_topic.items()}


def _started(spark: Spark, start: Callable[[], Any], explain: Callable[[str], StreamError]) -> Any:
    # The Python process of foreachBatch has ten seconds to answer Spark, a limit that cannot be configured: on a busy
    # machine it may take longer.
    retrying = Retrying(
        retry=retry_if_exception(lambda error: NO_WORKER in str(error)),
        stop=stop_after_attempt(_STARTS),
        before_sleep=lambda _: logger.warning("Python did not answer Spark in ten seconds: the stream is started again."),
        reraise=True,
    )
    return _guarded(spark, lambda: retrying(start), explain)


def _guarded(spark: Spark, work: Callable[[], Any], explain: Callable[[str], StreamError]) -> Any:
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        return work()
    except (PySparkException, RpcError, ValueError) as error:
        translated = spark.translated(error)
        if isinstance(translated, RatifyError):
            raise translated from None
        if not isinstance(error, (PySparkException, RpcError)):
            raise
        # Not chained: the foreign error repeats what it was given.
        raise explain(str(error)) from None


def failure(text: str) -> StreamError:
    """Return the error for Spark's error text of a failed query."""
    for signs, kind, meaning in _CAUSES:
        if found := next((sign for sign in signs if sign in text), None):
            line = next(line for line in text.splitlines() if found in line)
            return kind(f"{meaning}: {line.strip()[:500]}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return StreamFailed(f"The stream failed: {' '.join(lines)[:800]}. Fix the cause and start it again: it resumes.")


class _ProgressListener:
    """Collects the progress of a query."""

    def __init__(self, options: StreamOptions) -> None:
        self.batches = dict[int, Batch]()
        self.position: Any = None
        self._options = options
        self._last = ""

    def look(self, query: Any) -> None:
        """Read new progress; Spark stores that of the last hundred batches."""
        last = query.lastProgress
        if last is None or last.timestamp == self._last:
            return
        self._last = last.timestamp
        before = len(self.batches)
        for batch in (batch_of(json.loads(progress.json)) for progress in query.recentProgress):
            self.position = batch.end
            # An idle query reports the number of its next batch.
            if batch.rows and batch.number not in self.batches:
                self.batches[batch.number] = batch
                self._options.on_batch(batch)
        if len(self.batches) > before:
            self._options.on_progress(self.position)


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Return the batch that Spark's progress describes (StreamingQueryProgress.json)."""
    sources = cast("list[dict[str, Any]]", progress["sources"])
    source = sources[0] if sources else {}
    metrics = cast("dict[str, str]", source.get("metrics") or {})
    rows = sum(int(each["numInputRows"]) for each in sources)
    observed = cast("dict[str, dict[str, Any]]", progress.get("observedMetrics") or {}).get(RECORDS)
    # Over Connect it is {"values": [n], "schema": …}, else {"n": n}.
    records = int(observed.get("values", [*observed.values()])[0]) if observed else rows
    each = records / rows if rows else 1.0
    return Batch(
        number=int(progress["batchId"]),
        rows=records,
        seconds=float(progress.get("batchDuration") or 0) / 1000,
        input_rate=_rate(sources, "inputRowsPerSecond", each),
        processed_rate=_rate(sources, "processedRowsPerSecond", each),
        start=_parsed(source.get("startOffset")),
        end=_parsed(source.get("endOffset")),
        offsets_behind=_behind(source) if "maxOffsetsBehindLatest" in metrics else None,
        state_rows=sum(int(operator["numRowsTotal"]) for operator in progress.get("stateOperators") or ()),
    )


def _rate(sources: list[dict[str, Any]], name: str, each: float) -> float:
    return round(sum(float(source.get(name) or 0) for source in sources) * each, 1)


def _parsed(position: Any) -> Any:
    try:
        return json.loads(position) if isinstance(position, str) else position
    except json.JSONDecodeError:
        return position


def _behind(source: Mapping[str, Any]) -> int:
    end, latest = offsets(source.get("endOffset")), offsets(source.get("latestOffset"))
    return sum(at - end.get(topic, {}).get(partition, 0) for topic, by in latest.items() for partition, at in by.items())
