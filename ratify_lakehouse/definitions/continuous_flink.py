"""The continuous mode of a table that Flink writes: its job runs on, and is reported to Dagster round by round."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from ratify_lakehouse.components.flink.flink_asset import is_of_job, reported
from ratify_lakehouse.components.flink.flink_table import FlinkTable, StartedJob
from ratify_lakehouse.components.table_asset import result
from ratify_lakehouse.components.table_before import TableBefore
from ratify_lakehouse.definitions.continuous_mode import asset_events, repeat
from ratify_lakehouse.definitions.continuous_state import ContinuousOptions
from ratify_lakehouse.definitions.stream_metrics import StreamMetrics
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_rest import JobNumbers
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.kafka.kafka_client import Kafka, Offsets

_WATCH_S = 2.0


@dataclass
class ContinuousFlink:
    """The job of a table, until `stop` is set; `ready` is called when it has completed a checkpoint."""

    table: FlinkTable
    kafka: Kafka
    spark: Spark
    flink: Flink
    instance: dg.DagsterInstance
    options: ContinuousOptions
    stop: threading.Event
    metrics: StreamMetrics
    ready: Callable[[], None]

    def run(self) -> None:
        """Run the job, again after a transient error, such as that of a server that restarts.

        Raises:
            TerminalError: FlinkFailed, FlinkUnavailable, FlinkStateLost, QueryChanged, BrokerDenied and others.
        """
        repeat(self._run, self.stop, self.metrics, self.spark)

    def _run(self) -> None:
        created = self.spark.ensure_table(self.table.declaration)
        before = TableBefore.of(self.spark, self.table.declaration, created=created)
        with self.table.started(self.spark, self.kafka, self.flink, refresh=False) as job:
            numbers = JobNumbers(0, 0, 0)
            while not self.stop.is_set():
                numbers = self._watch(job, numbers)
                before = self._report(job, before, numbers)
            job.job.stop()
        self._report(job, before, numbers)

    def _watch(self, job: StartedJob, known: JobNumbers) -> JobNumbers:
        """Watch the job for a round, and return what it has done since it started; `known` is what it had done before."""
        ends, read = time.monotonic() + self.options.round_seconds, _records(job.position())
        while not self.stop.wait(_WATCH_S) and time.monotonic() < ends:
            numbers, position = job.job.numbers(), job.position()
            if numbers.checkpoints:
                self.ready()
            done, now = numbers.checkpoints - known.checkpoints, _records(position)
            behind = self.table.offsets(self.kafka).behind(position)
            self.metrics.record_job(self.table.declaration, now - read, done, behind)
            known, read = numbers, now
        return known

    def _report(self, job: StartedJob, before: TableBefore, numbers: JobNumbers) -> TableBefore:
        """Report what the job has committed since, and return the table as it is then."""
        change = before.change(self.spark, is_of_job, reported(job, numbers))
        if change.versions:
            made = result(self.table.declaration, change, self.instance)
            for event in asset_events([made]):
                self.instance.report_runless_asset_event(event)
        self.metrics.rounds.inc()
        return TableBefore.following(self.table.declaration, change)


def _records(position: Offsets) -> int:
    return sum(offset for partitions in position.values() for offset in partitions.values())
