"""The jobs and their schedules."""

from functools import partial

import dagster as dg

from components.checks.check_state import FULL
from components.strategies.partition_checks import UP_TO_DATE
from components.table_asset import asset_key
from orchestration.project_tables import declared_tables, sources
from orchestration.table_care import care_job
from orchestration.table_cleaning import clean_job

ingest_job = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.assets(*(asset_key(source.table) for source in sources())),
    description="Load all waiting files into bronze.",
)

_from_kafka = dg.AssetSelection.assets(*declared_tables().from_kafka)

events_job = dg.define_asset_job(
    "events", selection=_from_kafka, description="Read new events from Kafka and update the tables that depend on them."
)

medallion_job = dg.define_asset_job(
    "medallion",
    # Without Kafka's tables, because Kafka is optional. Without those with partitions, which follow by their sensors: a job
    # has partitions of one kind, and the UI would ask for one of them.
    selection=dg.AssetSelection.all() - _from_kafka - dg.AssetSelection.assets(*declared_tables().partitioned),
    description="Update every table without partitions that does not depend on Kafka, bronze to gold.",
)

_schedule = partial(
    dg.ScheduleDefinition, execution_timezone="America/New_York", default_status=dg.DefaultScheduleStatus.RUNNING
)

nightly = _schedule(
    name="nightly",
    job=medallion_job,
    cron_schedule="0 2 * * *",
    description="After the last departures of the day; loads files that no sensor found.",
)

_checks = declared_tables().checks
_HOURLY = {"files_present", "data_is_fresh", UP_TO_DATE}

files_job = dg.define_asset_job(
    "files",
    selection=dg.AssetSelection.checks(*(key for key in _checks if key.name in _HOURLY)),
    description="Check that every data file of every table exists in storage, and that daily tables have new data.",
)

full_checks_job = dg.define_asset_job(
    "full_checks",
    selection=dg.AssetSelection.checks(*_checks) - dg.AssetSelection.checks_for_assets(*declared_tables().from_kafka),
    tags={FULL: "full"},
    description="Check every table that does not depend on Kafka in full: other runs compare what is new since they passed.",
)

weekly = _schedule(
    name="weekly",
    job=full_checks_job,
    cron_schedule="0 4 * * SUN",
    description="Nothing is compared only once.",
)

cleaning = _schedule(
    name="cleaning",
    job=clean_job,
    cron_schedule="0 4 * * SAT",
    description="Killed writers leave files that no version of a table needs.",
)

caring = _schedule(
    name="caring",
    job=care_job,
    cron_schedule="0 5 * * *",
    description="After the nightly run: tables get small files and deleted rows every day.",
)

hourly = _schedule(
    name="hourly",
    job=files_job,
    cron_schedule="30 * * * *",
    description="Finds tables that other programs made unreadable, and those that get no data, between materializations.",
)
