"""The jobs and their schedule."""

import dagster as dg

from assets.bronze.events import TRACKER_EVENTS_RAW
from assets.bronze.sources import SOURCES
from assets.checks.definitions import files_checks
from assets.cross_engine.steps import GROUP
from assets.gold.events import DEVICE_DAILY, HEART_RATE_MINUTE
from assets.silver.events import QUARANTINE, TRACKER_EVENTS
from assets.tables import asset_key

ingest_job = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.assets(*(asset_key(source.table) for source in SOURCES)),
    description="Load all files that are waiting into bronze.",
)

_TRACKER = dg.AssetSelection.assets(
    *(asset_key(table) for table in (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY))
)

tracker_job = dg.define_asset_job(
    "tracker",
    selection=_TRACKER,
    description="Bring the tracker's events up to date, silver to gold.",
)

medallion_job = dg.define_asset_job(
    "medallion",
    # Events come by a stream, which has a pace of its own.
    selection=dg.AssetSelection.groups("bronze", "silver", "gold") - _TRACKER,
    description="Bring every table of the flights up to date, bronze to gold.",
)

cross_engine_proof = dg.define_asset_job(
    "cross_engine_proof",
    selection=dg.AssetSelection.groups(GROUP),
    description="Prove on TPC-H that every engine reads what the others wrote, and that one history names them all.",
)

nightly = dg.ScheduleDefinition(
    name="nightly",
    job=medallion_job,
    cron_schedule="0 2 * * *",
    execution_timezone="America/New_York",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="After the last departures of the day: catches what no sensor saw.",
)

files_job = dg.define_asset_job(
    "files",
    selection=dg.AssetSelection.checks(*files_checks),
    description="Look whether every file that a table is made of exists in storage.",
)

hourly = dg.ScheduleDefinition(
    name="hourly",
    job=files_job,
    cron_schedule="30 * * * *",
    execution_timezone="America/New_York",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Finds tables that others have made unreadable, also between materializations.",
)
