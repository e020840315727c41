"""The sensor that requests a run when bronze is behind Kafka, or behind the folder of event files."""

import time

import dagster as dg

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from components.stream.record_table import last_reported
from components.table_asset import asset_key
from ingest.records.record_source import SourceOptions
from ingest.records.record_stream import source_of
from orchestration.continuous_state import continuous_state
from resources.errors import LandingUnavailable, NotConfigured, StreamError
from resources.kafka.kafka_client import Kafka

STREAM_TAG = "ratify/stream"

RETRY_SECONDS = 300.0
"""A failed run is not requested again before that, because it would most likely fail again."""


@dg.sensor(
    target=dg.AssetSelection.assets(asset_key(TRACKER_EVENTS_RAW)),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests a run when the source has new records (Kafka: by its offsets).",
)
def tracker_events_sensor(context: dg.SensorEvaluationContext, kafka: Kafka) -> dg.RunRequest | dg.SkipReason:
    """Request one run at a time, as long as bronze is behind its source."""
    if continuous_state():
        return dg.SkipReason("The stream runs (`ratify stream status`).")
    if reason := _busy(context.instance):
        return dg.SkipReason(reason)
    try:
        status = source_of(SourceOptions(), kafka).status(last_reported(TRACKER_EVENTS_RAW, context.instance))
    except (LandingUnavailable, NotConfigured, StreamError) as error:
        return dg.SkipReason(str(error))
    if not status.has_new:
        return dg.SkipReason(status.text)
    context.log.info(status.text)
    return dg.RunRequest(asset_selection=[asset_key(TRACKER_EVENTS_RAW)], tags={STREAM_TAG: TRACKER_EVENTS_RAW.name})


def _busy(instance: dg.DagsterInstance) -> str | None:
    """Return why no run may be requested now; two runs of one stream would stop each other."""
    records = instance.get_run_records(dg.RunsFilter(tags={STREAM_TAG: TRACKER_EVENTS_RAW.name}), limit=1)
    if not records:
        return None
    run, ended = records[0].dagster_run, records[0].end_time
    if not run.is_finished:
        return f"Run {run.run_id[:8]} is reading."
    left = (ended or 0) + RETRY_SECONDS - time.time()
    if run.status is dg.DagsterRunStatus.FAILURE and left > 0:
        return f"Run {run.run_id[:8]} failed; the next one is requested in {left:.0f} s."
    return None
