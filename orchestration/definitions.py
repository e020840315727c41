"""The code location of the tables: their assets, checks, jobs, schedules and sensors."""

import dagster as dg

from assets.bronze.landed_tables import bronze_assets, landed_files, landing_assets
from assets.bronze.tracker_events_raw import kafka_events, tracker_events_raw
from assets.gold.gold_flights import gold_assets
from assets.gold.gold_tracker import tracker_gold_assets
from assets.silver.silver_flights import silver_assets
from assets.silver.tracker_events import stream_batches, tracker_events
from assets.table_checks import all_checks
from components.table_policies import with_layer_policies
from orchestration.automation_sensor import automation_sensor
from orchestration.jobs import (
    events_job,
    files_job,
    full_checks_job,
    hourly,
    ingest_job,
    medallion_job,
    nightly,
    weekly,
)
from orchestration.project_resources import EXECUTOR, RESOURCES
from orchestration.project_tables import declared_tables
from orchestration.sensors.kafka_lag_sensor import tracker_events_sensor
from orchestration.sensors.landed_files_sensor import landed_files_sensor

tables = dg.map_asset_specs(
    with_layer_policies,
    [*bronze_assets, tracker_events_raw, *silver_assets, tracker_events, *gold_assets, *tracker_gold_assets],
)

declared_tables().check_inputs([*(key for table in tables for key in table.keys), landed_files.key, stream_batches.key])

defs = dg.Definitions.merge(
    declared_tables().definitions,
    dg.Definitions(
        assets=[*landing_assets, kafka_events, *tables, landed_files, stream_batches],
        asset_checks=all_checks,
        jobs=[events_job, files_job, full_checks_job, ingest_job, medallion_job],
        schedules=[hourly, nightly, weekly],
        sensors=[landed_files_sensor, tracker_events_sensor, automation_sensor],
        resources=RESOURCES,
        executor=EXECUTOR,
    ),
)
