"""The continuous mode: the streams into a table of records and on from it, side by side, until they are stopped.

It works in rounds. At the end of each round, the results of the streams are reported to Dagster as materializations and
check results, as those of a run are. The UI therefore shows them, automation carries on to gold, and no sensor requests what
is already loaded. A round that fails with a transient error, such as a server's restart, is repeated after a pause: each
stream continues from its checkpoint.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dagster as dg

from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.record_table import RecordTable, record_table_result
from ratify_lakehouse.components.stream.stream_materialization import StreamTableConfig, materialize_stream
from ratify_lakehouse.components.table_asset import as_event, asset_key
from ratify_lakehouse.definitions.continuous_state import ContinuousOptions
from ratify_lakehouse.definitions.stream_metrics import StreamMetrics
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions
from ratify_lakehouse.engines.spark.table_stream import bytes_outstanding
from ratify_lakehouse.errors import RatifyError, TerminalError
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka

logger = logging.getLogger(__name__)

AssetResult = dg.MaterializeResult[Any] | dg.AssetCheckResult

_MAX_PAUSE_S = 60.0


def repeat(work: Callable[[], None], stop: threading.Event, metrics: StreamMetrics, spark: Spark) -> None:
    """Work again and again until `stop` is set; after a transient error, such as a server's restart, following a pause.

    Raises:
        TerminalError: the work did.
    """
    pause = 1.0
    while not stop.is_set():
        try:
            work()
            pause = 1.0
        except RatifyError as error:
            metrics.failures.labels(type(error).__name__).inc()
            if isinstance(error, TerminalError):
                raise
            logger.warning("%s: %s It is tried again in %.0f s.", type(error).__name__, error, pause)
            # A server that restarted does not know our session any more.
            spark.close()
            stop.wait(pause)
            pause = min(_MAX_PAUSE_S, pause * 2)


@dataclass
class ContinuousMode:
    """The streams into a table and on from it, until `stop` is set; `ready` is called when all have started."""

    kafka: Kafka
    spark: Spark
    instance: dg.DagsterInstance
    records: RecordTable
    streams: Sequence[EventStream]
    options: ContinuousOptions
    stop: threading.Event
    metrics: StreamMetrics
    ready: Callable[[], None]

    def run(self) -> None:
        """Run round after round.

        Raises:
            TerminalError: BrokerDenied, OffsetsExpired, ExpectationFailed and others.
        """
        repeat(self._round, self.stop, self.metrics, self.spark)

    def _round(self) -> None:
        """Run all streams for a round, and report their results.

        The round's time begins when all streams have started, however long that takes. A stream that fails ends the round
        for the others too; the next round that succeeds reports what they did before.
        """
        # Before there are threads: they share the session.
        _ = self.spark.session
        over = threading.Event()
        work = [self._read, *(partial(self._validate, stream) for stream in self.streams)]
        started = [threading.Event() for _ in work]
        with ThreadPoolExecutor(len(work), "stream") as threads:
            streams = [
                threads.submit(self._until, over, stream, start, after=started[0] if number else None)
                for number, (stream, start) in enumerate(zip(work, started, strict=True))
            ]
            ends = float("inf")
            while not (over.is_set() or self.stop.wait(0.2)) and time.monotonic() < ends:
                if ends == float("inf") and all(start.is_set() for start in started):
                    ends = time.monotonic() + self.options.round_seconds
                    self.ready()
            over.set()
        for stream in streams:
            self._report(stream.result())
        self.metrics.rounds.inc()

    def _until(
        self,
        over: threading.Event,
        stream: Callable[[StreamOptions], list[AssetResult]],
        started: threading.Event,
        *,
        after: threading.Event | None,
    ) -> list[AssetResult]:
        try:
            # The stream into the table of records creates it, before others read it.
            while after and not after.wait(0.1):
                if over.is_set():
                    return []
            return stream(StreamOptions(self.options.every, over, started.set))
        finally:
            over.set()

    def _read(self, options: StreamOptions) -> list[AssetResult]:
        table = self.records.declaration
        options = replace(options, on_batch=self.metrics.batch_recorder(table))
        done = ingest(self.kafka, self.spark, table, self.records.options, options)
        if not (done.run.batches or done.created):
            return []
        return [record_table_result(table, self.spark, done, self.instance)]

    def _validate(self, stream: EventStream, options: StreamOptions) -> list[AssetResult]:
        rows = 0
        record = self.metrics.batch_recorder(stream.table)

        def counted(batch: Batch) -> None:
            nonlocal rows
            rows += batch.rows
            record(batch)

        options = replace(options, on_batch=counted, on_progress=partial(self._record_outstanding, stream))
        results = list(materialize_stream(stream, StreamTableConfig(), self.spark, options, self.instance))
        return results if rows else []

    def _record_outstanding(self, stream: EventStream, position: Any) -> None:
        try:
            records = self.spark.full_name(stream.records)
            self.metrics.record_outstanding(stream.table, bytes_outstanding(self.spark, records, position))
        except RatifyError as error:
            # The stream goes on without the figure.
            logger.warning("how much %s has not read yet is unknown: %s", stream.table.table_name, error)

    def _report(self, results: list[AssetResult]) -> None:
        for event in asset_events(results):
            self.instance.report_runless_asset_event(event)
        tables = {asset_key(stream.table): stream.table for stream in self.streams}
        for check in results:
            if isinstance(check, dg.AssetCheckResult) and check.asset_key in tables:
                self.metrics.record_check(tables[check.asset_key], check)


def asset_events(results: Iterable[AssetResult]) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield results as events that are reported outside of a run."""
    for result in results:
        key = result.asset_key
        if key is None:
            continue
        if isinstance(result, dg.AssetCheckResult):
            yield dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=result.check_name or "",
                passed=result.passed,
                metadata=result.metadata or {},
                severity=result.severity,
                description=result.description,
            )
        else:
            yield as_event(result)
