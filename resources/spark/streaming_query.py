"""Structured Streaming: a query run to its end or until it is told to stop, and its progress as typed values.

A query that is started again with its checkpoint goes on where it was, whatever ended it: each micro-batch is one commit
that carries the query's id and the batch's number, which Delta never takes twice.
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

from resources.errors import (
    BrokerDenied,
    BrokerUnavailable,
    OffsetsExpired,
    RatifyError,
    StreamError,
    StreamFailed,
    TopicMissing,
)
from resources.kafka.kafka_client import Offsets
from resources.spark.spark_engine import Spark
from resources.spark.spark_errors import NO_WORKER

logger = logging.getLogger(__name__)

RECORDS = "ratify_records"
"""An observation of this name says how many records the rows of a source are, where those are not one each."""

_POLL_S = 1
# Less than `ratify stream stop` waits.
_LAST_BATCH_S = 40
_STARTS = 5
# What stands in the error of a query that failed, by what it means; the first that is found counts.
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
    """What one micro-batch did, as Spark tells it.

    Attributes:
        rows: Records that it read.
        seconds: How long it took.
        input_rate, processed_rate: Spark's inputRowsPerSecond and processedRowsPerSecond, of records; the first is 0 for the
            first batch after a start.
        start, end: Where its source stood before and after it, as the source writes it; `start` is None for a new stream.
        offsets_behind: Records of Kafka that were there and not read yet, as of its start.
        state_rows: Rows that the query keeps between batches.
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
        position: Where its source stands now, as the source writes it; None if Spark did not say.
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
        """Its numbers by the names that Spark has for them, as metadata that Dagster plots.

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
    """How a stream is run: by default through all that is there, and then it ends.

    Attributes:
        every: Seconds from one micro-batch to the next; then it goes on until `stop` is set.
        stop: Ends it, when the batch is done that is being made; one that is cut off is made again by the next start.
        on_start: Called when it has begun.
        on_batch: Told of each batch that had rows, as it ends.
        on_progress: Told where the source stands, as it writes it, when batches have ended that had rows.
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
    """Start a query and follow it until it has ended, or is to be stopped; it is stopped in any case.

    Args:
        spark: Whose session the query is of.
        start: Starts the query, as `writer.toTable` and `writer.start` do.
        options: How it is run; the query itself has its trigger already.
        explain: Returns the error for what Spark says of a query that failed; without it, `failure` does.

    Raises:
        OffsetsExpired, TopicMissing, BrokerUnavailable, BrokerDenied: Kafka, as Spark met it.
        StreamFailed: the query failed otherwise; or what `explain` returns.
        SparkUnavailable, CommitConflict, CatalogDenied, CatalogUnavailable: as of `Spark`.
    """
    told, explain = _Told(options), explain or failure
    query = _started(spark, start, explain)
    options.on_start()
    try:
        ended = False
        while not ended and not options.stop.is_set():
            ended = _guarded(spark, lambda: bool(query.awaitTermination(_POLL_S)), explain)
            _guarded(spark, lambda: told.look(query), explain)
        deadline = time.monotonic() + _LAST_BATCH_S
        while (
            not ended and time.monotonic() < deadline and _guarded(spark, lambda: query.status["isTriggerActive"], explain)
        ):
            ended = _guarded(spark, lambda: bool(query.awaitTermination(_POLL_S)), explain)
        _guarded(spark, lambda: told.look(query), explain)
    finally:
        # Where the server is gone, so is the query.
        with contextlib.suppress(Exception):
            query.stop()
    return StreamRun(str(query.id), tuple(told.batches[number] for number in sorted(told.batches)), told.position)


def offsets(position: Any) -> Offsets:
    """Return a position in Kafka, as Spark writes it, as offsets."""
    said = cast("Mapping[str, Mapping[str, int]]", json.loads(position) if isinstance(position, str) else position or {})
    return {topic: {int(partition): at for partition, at in by.items()} for topic, by in said.items()}


def _started(spark: Spark, start: Callable[[], Any], explain: Callable[[str], StreamError]) -> Any:
    # The Python process of foreachBatch has ten seconds to answer Spark, a limit that cannot be set: on a machine that is
    # busy it may take longer.
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


def failure(said: str) -> StreamError:
    """Return the error for what Spark said of a query that failed."""
    for signs, kind, meaning in _CAUSES:
        if found := next((sign for sign in signs if sign in said), None):
            line = next(line for line in said.splitlines() if found in line)
            return kind(f"{meaning}: {line.strip()[:500]}")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return StreamFailed(f"The stream failed: {' '.join(lines)[:800]}. Mend the cause and start it again: it goes on.")


class _Told:
    """What a query has told of itself so far."""

    def __init__(self, options: StreamOptions) -> None:
        self.batches = dict[int, Batch]()
        self.position: Any = None
        self._options = options
        self._last = ""

    def look(self, query: Any) -> None:
        """Take in what is new; Spark keeps its last hundred batches."""
        last = query.lastProgress
        if last is None or last.timestamp == self._last:
            return
        self._last = last.timestamp
        before = len(self.batches)
        for batch in (batch_of(json.loads(progress.json)) for progress in query.recentProgress):
            self.position = batch.end
            # Idle, it tells the number of the batch that it would make.
            if batch.rows and batch.number not in self.batches:
                self.batches[batch.number] = batch
                self._options.on_batch(batch)
        if len(self.batches) > before:
            self._options.on_progress(self.position)


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Return what Spark's progress says (StreamingQueryProgress.json)."""
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
