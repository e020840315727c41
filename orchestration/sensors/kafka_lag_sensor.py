"""The sensors that request a run when a table of records is behind Kafka, or behind the folder of its files."""

import time

import dagster as dg

from components.stream.record_table import RecordTable, last_reported
from components.table_asset import asset_key, step_name
from ingest.records.record_stream import source_of
from orchestration.continuous_state import continuous_state
from resources.errors import LandingUnavailable, NotConfigured, StreamError
from resources.kafka.kafka_client import Kafka

STREAM_TAG = "ratify/stream"

RETRY_SECONDS = 300.0
"""A failed run is not requested again before that, because it would most likely fail again."""


def kafka_lag_sensor(table: RecordTable) -> dg.SensorDefinition:
    """Return the sensor of a table of records: it requests one run at a time, as long as the table is behind its source."""
    name, key = table.declaration.table_name, asset_key(table.declaration)

    @dg.sensor(
        name=f"{step_name(table.declaration)}_lag",
        target=dg.AssetSelection.assets(key),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Requests a run when the source of {name} has new records (Kafka: by its offsets).",
    )
    def sensor(context: dg.SensorEvaluationContext, kafka: Kafka) -> dg.RunRequest | dg.SkipReason:
        if continuous_state(name):
            return dg.SkipReason("The stream runs (`ratify stream status`).")
        if reason := _busy(context.instance, name):
            return dg.SkipReason(reason)
        try:
            status = source_of(table.options, kafka).status(last_reported(table.declaration, context.instance))
        except (LandingUnavailable, NotConfigured, StreamError) as error:
            return dg.SkipReason(str(error))
        if not status.has_new:
            return dg.SkipReason(status.text)
        context.log.info(status.text)
        return dg.RunRequest(asset_selection=[key], tags={STREAM_TAG: name})

    return sensor


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
