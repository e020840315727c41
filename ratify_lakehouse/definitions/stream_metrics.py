"""The metrics of the continuous mode, for Prometheus."""

import logging
from collections.abc import Callable

import dagster as dg
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.streaming_query import Batch

logger = logging.getLogger(__name__)

LOCALHOST = "127.0.0.1"


class StreamMetrics:
    """What the streams did, labelled by the table that each writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rows = self._counter("rows", "Rows that the stream has read")
        self._batches = self._counter("batches", "Micro-batches that had rows, or checkpoints")
        self._input_rate = self._gauge("input_rows_per_second", "Spark's inputRowsPerSecond of the last batch")
        self._processed_rate = self._gauge("processed_rows_per_second", "Spark's processedRowsPerSecond of the last batch")
        self._seconds = self._gauge("batch_seconds", "Duration of the last batch")
        self._offsets = self._gauge(
            "offsets_behind", "Records in Kafka that were not read yet at the last batch or checkpoint"
        )
        self._bytes = self._gauge(
            "bytes_outstanding", "Bytes of the source table that were not read yet after the last batch"
        )
        self._state = self._gauge("state_rows", "Rows that the stream keeps between batches")
        self.failures = Counter(
            "ratify_stream_failures", "Rounds that ended with an error", ["error"], registry=self.registry
        )
        self.rounds = Counter("ratify_stream_rounds", "Rounds that were reported to Dagster", registry=self.registry)
        self.failed = Gauge(
            "ratify_expectation_failed_rows",
            "Rows of the last round that fail an expectation",
            ["table", "expectation"],
            registry=self.registry,
        )

    def serve(self, port: int = 0) -> str:
        """Serve the metrics on 127.0.0.1 and return their URL. `port` 0: any free port."""
        server, _ = start_http_server(port, addr=LOCALHOST, registry=self.registry)
        return f"http://{LOCALHOST}:{server.server_port}/metrics"

    def batch_recorder(self, table: TableDeclaration) -> Callable[[Batch], None]:
        """Return a function that records each batch of the stream into a table."""
        name = table.table_name

        def record(batch: Batch) -> None:
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

        return record

    def record_job(self, table: TableDeclaration, records: int, checkpoints: int, behind: int) -> None:
        """Record what a job of Flink has done since the last call, and how many records it has not read."""
        name = table.table_name
        self._rows.labels(name).inc(max(0, records))
        self._batches.labels(name).inc(max(0, checkpoints))
        self._offsets.labels(name).set(behind)

    def record_outstanding(self, table: TableDeclaration, size: int) -> None:
        """Record how many bytes the stream into a table has not read yet."""
        self._bytes.labels(table.table_name).set(size)

    def record_check(self, table: TableDeclaration, check: dg.AssetCheckResult) -> None:
        """Record how many rows of a round fail an expectation."""
        value = (check.metadata or {}).get("failed")
        if check.check_name and isinstance(value, dg.IntMetadataValue | int):
            failed = value if isinstance(value, int) else value.value or 0
            self.failed.labels(table.table_name, check.check_name).set(failed)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"ratify_stream_{name}", text, ["table"], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"ratify_stream_{name}", text, ["table"], registry=self.registry)
