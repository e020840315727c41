"""The continuous mode: the streams from Kafka to silver, one beside the other, until they are told to stop.

It works in rounds. At the end of each, what the streams did is told to Dagster as materializations and check results, the
same as of a run, so that the UI shows them, automation carries on to gold, and no sensor asks for what is done already. A
round that fails of what passes (a server that restarts) is begun again after a pause: each stream goes on where it was.
"""

import datetime as dt
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pydantic import BaseModel

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.silver.tracker_events import TrackerConfig, validated
from assets.silver.tracker_tables import TRACKER_EVENTS
from components.stream.record_table import record_table_result
from components.table_asset import asset_key
from ingest.records.record_source import SourceOptions
from ingest.records.record_stream import ingest
from resources.declarations import TableDeclaration
from resources.durable_files import hold, holder
from resources.errors import (
    BrokerDenied,
    CatalogDenied,
    ExpectationFailed,
    NotConfigured,
    OffsetsExpired,
    RatifyError,
    ResetRefused,
    StreamBusy,
    TopicMissing,
    UnsafeTable,
)
from resources.kafka.kafka_client import Kafka
from resources.settings import Settings
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import Batch, StreamOptions
from resources.spark.table_stream import bytes_outstanding

logger = logging.getLogger(__name__)

LOCALHOST = "127.0.0.1"
Told = dg.MaterializeResult[Any] | dg.AssetCheckResult

# What does not pass by itself.
_FINAL = (
    BrokerDenied,
    CatalogDenied,
    ExpectationFailed,
    NotConfigured,
    OffsetsExpired,
    ResetRefused,
    TopicMissing,
    UnsafeTable,
)
_MAX_PAUSE_S = 60.0


class StreamMetrics:
    """What Prometheus is told of the streams, each by the table that it writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rows = self._counter("rows", "Rows that the stream has read")
        self._batches = self._counter("batches", "Micro-batches that had rows")
        self._input_rate = self._gauge("input_rows_per_second", "Spark's inputRowsPerSecond of the last batch")
        self._processed_rate = self._gauge("processed_rows_per_second", "Spark's processedRowsPerSecond of the last batch")
        self._seconds = self._gauge("batch_seconds", "Duration of the last batch")
        self._offsets = self._gauge("offsets_behind", "Records in Kafka that were not read yet at the last batch")
        self._bytes = self._gauge(
            "bytes_outstanding", "Bytes of the source table that were not read yet after the last batch"
        )
        self._state = self._gauge("state_rows", "Rows that the stream keeps between batches")
        self.failures = Counter(
            "ratify_stream_failures", "Rounds that ended with an error", ["error"], registry=self.registry
        )
        self.rounds = Counter("ratify_stream_rounds", "Rounds that were told to Dagster", registry=self.registry)
        self.failed = Gauge(
            "ratify_expectation_failed_rows",
            "Rows of the last round that fail an expectation",
            ["table", "expectation"],
            registry=self.registry,
        )

    def saw(self, table: TableDeclaration) -> Callable[[Batch], None]:
        """Return what is to be told of each batch of the stream into a table."""
        name = f"{table.layer}.{table.name}"

        def saw(batch: Batch) -> None:
            self._rows.labels(name).inc(batch.rows)
            self._batches.labels(name).inc()
            self._input_rate.labels(name).set(batch.input_rate)
            self._processed_rate.labels(name).set(batch.processed_rate)
            self._seconds.labels(name).set(batch.seconds)
            self._state.labels(name).set(batch.state_rows)
            if batch.offsets_behind is not None:
                self._offsets.labels(name).set(batch.offsets_behind)
            logger.info(
                "%s: batch %d, %d rows, %.0f/s, %.1f s", name, batch.number, batch.rows, batch.processed_rate, batch.seconds
            )

        return saw

    def outstanding(self, table: TableDeclaration, size: int) -> None:
        """Take in how many bytes the stream into a table has before it."""
        self._bytes.labels(f"{table.layer}.{table.name}").set(size)

    def told(self, table: TableDeclaration, check: dg.AssetCheckResult) -> None:
        """Take in what an expectation found in a round."""
        value = (check.metadata or {}).get("failed")
        if check.check_name and isinstance(value, dg.IntMetadataValue | int):
            failed = value if isinstance(value, int) else value.value or 0
            self.failed.labels(f"{table.layer}.{table.name}", check.check_name).set(failed)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"ratify_stream_{name}", text, ["table"], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"ratify_stream_{name}", text, ["table"], registry=self.registry)


@dataclass
class ContinuousMode:
    """The streams, until `stop` is set.

    Attributes:
        every: Seconds from one micro-batch to the next.
        round_seconds: How long a round lasts.
    """

    kafka: Kafka
    spark: Spark
    instance: dg.DagsterInstance
    config: SourceOptions
    every: float
    round_seconds: float
    stop: threading.Event
    metrics: StreamMetrics

    def serve_metrics(self, port: int = 0) -> str:
        """Serve them to Prometheus on 127.0.0.1, and return their URL. `port` 0: any that is free."""
        server, _ = start_http_server(port, addr=LOCALHOST, registry=self.metrics.registry)
        return f"http://{LOCALHOST}:{server.server_port}/metrics"

    def run(self) -> None:
        """Run round after round.

        Raises:
            BrokerDenied, OffsetsExpired, ExpectationFailed and others that do not pass by themselves.
        """
        pause = 1.0
        while not self.stop.is_set():
            try:
                self._round()
                pause = 1.0
            except RatifyError as error:
                self.metrics.failures.labels(type(error).__name__).inc()
                if isinstance(error, _FINAL):
                    raise
                logger.warning("%s: %s Begun again in %.0f s.", type(error).__name__, error, pause)
                # A server that restarted does not know our session any more.
                self.spark.close()
                self.stop.wait(pause)
                pause = min(_MAX_PAUSE_S, pause * 2)

    def _round(self) -> None:
        """Run both streams for a round, and tell what they did.

        It is over some time after both have begun, however long that takes; one that fails ends it for the other, too. What
        they did before is told by the next round that ends well.
        """
        # Before there are two threads: they share the session, and PySpark cannot be imported by both at a time.
        _ = self.spark.session
        over = threading.Event()
        begun = [threading.Event(), threading.Event()]
        with ThreadPoolExecutor(2, "stream") as threads:
            streams = [
                threads.submit(self._until, over, stream, start)
                for stream, start in zip((self._bronze, self._silver), begun, strict=True)
            ]
            ends = float("inf")
            while not (over.is_set() or self.stop.wait(0.2)) and time.monotonic() < ends:
                if ends == float("inf") and all(start.is_set() for start in begun):
                    ends = time.monotonic() + self.round_seconds
            over.set()
        for stream in streams:
            self._tell(stream.result())
        self.metrics.rounds.inc()

    def _until(
        self, over: threading.Event, stream: Callable[[StreamOptions], list[Told]], begun: threading.Event
    ) -> list[Told]:
        try:
            return stream(StreamOptions(self.every, over, begun.set))
        finally:
            over.set()

    def _bronze(self, options: StreamOptions) -> list[Told]:
        options = replace(options, on_batch=self.metrics.saw(TRACKER_EVENTS_RAW))
        done = ingest(self.kafka, self.spark, TRACKER_EVENTS_RAW, self.config, options)
        if not (done.run.batches or done.created):
            return []
        return [record_table_result(TRACKER_EVENTS_RAW, self.spark, done, self.instance)]

    def _silver(self, options: StreamOptions) -> list[Told]:
        rows = 0
        saw = self.metrics.saw(TRACKER_EVENTS)

        def counted(batch: Batch) -> None:
            nonlocal rows
            rows += batch.rows
            saw(batch)

        options = replace(options, on_batch=counted, on_progress=self._behind)
        told = list(validated(TrackerConfig(), self.spark, options))
        return told if rows else []

    def _behind(self, position: Any) -> None:
        with suppress(RatifyError):
            raw = self.spark.full_name(TRACKER_EVENTS_RAW)
            self.metrics.outstanding(TRACKER_EVENTS, bytes_outstanding(self.spark, raw, position))

    def _tell(self, told: list[Told]) -> None:
        for event in _events(told):
            self.instance.report_runless_asset_event(event)
        for check in told:
            if isinstance(check, dg.AssetCheckResult) and check.asset_key == asset_key(TRACKER_EVENTS):
                self.metrics.told(TRACKER_EVENTS, check)


def _events(told: list[Told]) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    for one in told:
        key = one.asset_key or asset_key(TRACKER_EVENTS)
        if isinstance(one, dg.AssetCheckResult):
            yield dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=one.check_name or "",
                passed=one.passed,
                metadata=one.metadata or {},
                severity=one.severity,
                description=one.description,
            )
        else:
            version = {"dagster/data_version": one.data_version.value} if one.data_version else {}
            yield dg.AssetMaterialization(key, metadata=one.metadata or {}, tags=version)


class ContinuousState(BaseModel):
    """The process that runs the streams: where its metrics are served, and since when."""

    process: int
    since: dt.datetime
    metrics: str
    every: float


@contextmanager
def stated(metrics: str, every: float) -> Generator[None]:
    """Be the process that runs the streams of this home.

    Raises:
        StreamBusy: another process is.
    """
    with hold(_folder() / "live.lock") as held:
        if not held:
            raise StreamBusy(f"The streams of {Settings().home} run already: `ratify stream status`.")
        state = ContinuousState(process=os.getpid(), since=dt.datetime.now(dt.UTC), metrics=metrics, every=every)
        (_folder() / "live.json").write_text(state.model_dump_json())
        try:
            yield
        finally:
            (_folder() / "live.json").unlink(missing_ok=True)


def state() -> ContinuousState | None:
    """Return the process that runs the streams of this home; None where none does, or where it is just starting."""
    if holder(_folder() / "live.lock") is None:
        return None
    with suppress(FileNotFoundError, ValueError):
        return ContinuousState.model_validate_json((_folder() / "live.json").read_text())
    return None


def _folder() -> Path:
    return Settings().home / "streams"
