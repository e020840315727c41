"""The jobs and their schedules."""

from functools import partial

import dagster as dg

from assets.table_checks import all_checks
from components.checks.check_state import FULL
from components.ledgers import ledger_checks
from components.table_asset import asset_key
from orchestration.project_tables import declared_tables, sources

ingest_job = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.assets(*(asset_key(source.table) for source in sources())),
    description="Load all waiting files into bronze.",
)

# What others write to Kafka is an external asset with the kind "kafka": what depends on it is found by that, not by name.
_from_kafka = dg.AssetSelection.kind("kafka", include_sources=True).downstream().materializable()

events_job = dg.define_asset_job(
    "events", selection=_from_kafka, description="Read new events from Kafka and update the tables that depend on them."
)

medallion_job = dg.define_asset_job(
    "medallion",
    # Without Kafka's tables, because Kafka is optional.
    selection=dg.AssetSelection.all() - _from_kafka,
    description="Update every table that does not depend on Kafka, bronze to gold.",
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

ledgers = ledger_checks()
_checks = [*declared_tables().checks, *(key for check in [*all_checks, *ledgers] for key in check.check_keys)]
_HOURLY = {"files_present", "data_is_fresh"}

files_job = dg.define_asset_job(
    "files",
    selection=dg.AssetSelection.checks(*(key for key in _checks if key.name in _HOURLY)),
    description="Check that every data file of every table exists in storage, and that daily tables have new data.",
)

full_checks_job = dg.define_asset_job(
    "full_checks",
    selection=dg.AssetSelection.checks(*_checks) - _from_kafka,
    tags={FULL: "full"},
    description="Check every table that does not depend on Kafka in full: other runs compare what is new since they passed.",
)

weekly = _schedule(
    name="weekly",
    job=full_checks_job,
    cron_schedule="0 4 * * SUN",
    description="Nothing is compared only once.",
)

hourly = _schedule(
    name="hourly",
    job=files_job,
    cron_schedule="30 * * * *",
    description="Finds tables that other programs made unreadable, and those that get no data, between materializations.",
)
