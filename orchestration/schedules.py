"""The schedules: when the jobs run, in the time zone RATIFY_TIME_ZONE, by default UTC. All are on from the start."""

from functools import partial

import dagster as dg

from orchestration.jobs import files_job, full_checks_job, medallion_job
from ratify_lakehouse.definitions.table_cleaning import clean_job
from ratify_lakehouse.definitions.table_maintenance import maintenance_job
from ratify_lakehouse.settings import Settings

_schedule = partial(
    dg.ScheduleDefinition,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    execution_timezone=Settings().ratify_time_zone,
)

SCHEDULES = (
    _schedule(
        name="nightly",
        job=medallion_job,
        cron_schedule="0 2 * * *",
        description="In the night; loads files that no sensor found.",
    ),
    _schedule(
        name="daily_maintenance",
        job=maintenance_job,
        cron_schedule="0 5 * * *",
        description="After the nightly run: tables get small files and deleted rows every day.",
    ),
    _schedule(
        name="hourly",
        job=files_job,
        cron_schedule="30 * * * *",
        description="Finds tables that others made unreadable, and those that get no data, between materializations.",
    ),
    _schedule(
        name="weekly",
        job=full_checks_job,
        cron_schedule="0 4 * * SUN",
        description="Nothing is compared only once.",
    ),
    _schedule(
        name="cleaning",
        job=clean_job,
        cron_schedule="0 4 * * SAT",
        description="Killed writers leave files that no version of a table needs.",
    ),
)
