"""The code location of the tables: their assets, checks, jobs, schedules and sensors."""

import dagster as dg

from assets.table_checks import all_checks
from components.ledgers import landed_files_spec
from orchestration.automation_sensor import automation_sensor
from orchestration.jobs import (
    events_job,
    files_job,
    full_checks_job,
    hourly,
    ingest_job,
    ledgers,
    medallion_job,
    nightly,
    weekly,
)
from orchestration.project_resources import EXECUTOR, RESOURCES
from orchestration.project_tables import declared_tables, sources
from orchestration.sensors.kafka_lag_sensor import tracker_events_sensor
from orchestration.sensors.landed_files_sensor import landed_files_sensor

landed_files = landed_files_spec(sources())
declared_tables().check_inputs([landed_files.key])

defs = dg.Definitions.merge(
    declared_tables().definitions,
    dg.Definitions(
        assets=[landed_files],
        asset_checks=[*all_checks, *ledgers],
        jobs=[events_job, files_job, full_checks_job, ingest_job, medallion_job],
        schedules=[hourly, nightly, weekly],
        sensors=[landed_files_sensor, tracker_events_sensor, automation_sensor],
        resources=RESOURCES,
        executor=EXECUTOR,
    ),
)
