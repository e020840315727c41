"""The code location of the tables: their assets, checks, jobs, schedules and sensors."""

import dagster as dg

from orchestration.automation_sensor import automation_sensor
from orchestration.code_links import with_modules, with_repository_links
from orchestration.jobs import (
    caring,
    cleaning,
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
from orchestration.project_tables import declared_tables, folder
from orchestration.reprocess_job import reprocess_checks_job, reprocess_checks_sensor, reprocess_job
from orchestration.sensors.kafka_lag_sensor import flink_lag_sensor, kafka_lag_sensor
from orchestration.sensors.landed_files_sensor import landed_files_sensor
from orchestration.sensors.whole_table_sensor import whole_assets, whole_table_sensor
from orchestration.table_care import care_job
from orchestration.table_cleaning import clean_job

declared_tables().check_inputs()
_reprocess = reprocess_job()

defs = with_repository_links(
    dg.Definitions.merge(
        with_modules(declared_tables().definitions),
        dg.Definitions(
            jobs=[
                *(care_job, clean_job, events_job, files_job, full_checks_job, ingest_job, medallion_job),
                *([_reprocess, reprocess_checks_job] if _reprocess else []),
            ],
            schedules=[caring, cleaning, hourly, nightly, weekly],
            sensors=[
                landed_files_sensor,
                *map(kafka_lag_sensor, declared_tables().record_tables),
                *map(flink_lag_sensor, declared_tables().flink_tables),
                automation_sensor,
                *map(whole_table_sensor, whole_assets()),
                *([reprocess_checks_sensor(_reprocess)] if _reprocess else []),
            ],
            resources=RESOURCES,
            executor=EXECUTOR,
        ),
    ),
    folder(),
)
