"""The sensors that request a run when a table is behind Kafka, or behind the folder of its files."""

import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from ratify_lakehouse.components.flink.flink_asset import skip_reason
from ratify_lakehouse.components.flink.flink_table import FlinkTable
from ratify_lakehouse.components.stream.record_table import RecordTable, last_reported
from ratify_lakehouse.components.table_asset import asset_key, step_name
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.continuous_state import continuous_state
from ratify_lakehouse.definitions.source_jobs import events_job
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import (
    CatalogUnavailable,
    FlinkStateLost,
    LandingUnavailable,
    LogUnreadable,
    NotConfigured,
    QueryChanged,
    StorageUnavailable,
    StreamError,
    TableMissing,
    UnsafeTable,
)
from ratify_lakehouse.ingest.records.record_stream import source_of
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.wording import counted

STREAM_TAG = "ratify/stream"

_NOT_KNOWN = (
    CatalogUnavailable,
    FlinkStateLost,
    LandingUnavailable,
    LogUnreadable,
    NotConfigured,
    QueryChanged,
    StorageUnavailable,
    StreamError,
    UnsafeTable,
)
"""Why nobody can say now whether records wait."""

RETRY_SECONDS = 300.0
"""A failed run is not requested again before that, because it would most likely fail again."""


def kafka_lag_sensor(table: RecordTable) -> dg.SensorDefinition:
    """Return the sensor of a table of records: it requests one run at a time, as long as the table is behind its source."""

    @_lag_sensor(table.declaration)
    def sensor(context: dg.SensorEvaluationContext, kafka: Kafka) -> dg.RunRequest | dg.SkipReason:
        def status() -> tuple[bool, str]:
            found = source_of(table.options, kafka).status(last_reported(table.declaration, context.instance))
            return found.has_new, found.text

        return _requested(context, table.declaration, status)

    return sensor


def flink_lag_sensor(table: FlinkTable) -> dg.SensorDefinition:
    """Return the sensor of a table that Flink writes: it requests one run at a time, as long as its topics have more."""

    @_lag_sensor(table.declaration)
    def sensor(context: dg.SensorEvaluationContext, kafka: Kafka, spark: Spark) -> dg.RunRequest | dg.SkipReason:
        def status() -> tuple[bool, str]:
            if reason := skip_reason(kafka):
                return False, reason
            try:
                waiting = table.waiting(kafka, spark)
            except TableMissing:
                waiting = table.offsets(kafka).behind({})
            return waiting > 0, f"{counted(waiting, 'record')} of {', '.join(table.topic_names)} wait"

        return _requested(context, table.declaration, status)

    return sensor


def _lag_sensor(declaration: TableDeclaration) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
    """The decorator of a table's sensor."""
    return dg.sensor(
        name=f"{step_name(declaration)}_lag",
        job=events_job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Requests a run when the source of {declaration.table_name} has new records (Kafka: by its offsets).",
    )


def _requested(
    context: dg.SensorEvaluationContext, declaration: TableDeclaration, status: Callable[[], tuple[bool, str]]
) -> dg.RunRequest | dg.SkipReason:
    """Request a run of a table, where `status` gives that records wait, and what is known of them."""
    name = declaration.table_name
    if continuous_state(name):
        return dg.SkipReason("The stream is running (`ratify stream status`).")
    if reason := _busy(context.instance, name):
        return dg.SkipReason(reason)
    try:
        has_new, text = status()
    except _NOT_KNOWN as error:
        return dg.SkipReason(str(error))
    if not has_new:
        return dg.SkipReason(text)
    context.log.info(text)
    return dg.RunRequest(asset_selection=[asset_key(declaration)], tags={STREAM_TAG: name})


def _busy(instance: dg.DagsterInstance, name: str) -> str | None:
    """Return why no run may be requested now; two runs of one stream would stop each other."""
    records = instance.get_run_records(dg.RunsFilter(tags={STREAM_TAG: name}), limit=1)
    if not records:
        return None
    run, ended = records[0].dagster_run, records[0].end_time
    if not run.is_finished:
        return f"Run {run.run_id[:8]} is reading."
    left = (ended or 0) + RETRY_SECONDS - time.time()
    if run.status is dg.DagsterRunStatus.FAILURE and left > 0:
        return f"Run {run.run_id[:8]} failed; the next one is requested in {left:.0f} s."
    return None
