"""Which checks each table has."""

import dagster as dg

from assets.bronze.landed_sources import FLIGHTS_RAW, SOURCES
from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.gold.gold_flights import AIRPORT_HOURLY, CARRIER_DAILY, CARRIER_DAILY_SNAPSHOT, ROUTE_DELAY
from assets.gold.gold_tracker import DEVICE_DAILY, HEART_RATE_MINUTE
from assets.silver.silver_airports import AIRPORTS, AIRPORTS_QUARANTINE
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_RECONCILIATION, FLIGHTS_WEATHER
from assets.silver.tracker_tables import QUARANTINE, TRACKER_EVENTS, TRACKER_RECONCILIATION
from components.checks.check_definitions import (
    files_check,
    freshness_check,
    history_checks,
    landed_file_check_definitions,
    offsets_check,
    reconciliation_check,
)
from components.checks.reconciliation import records_reconciled, rows_reconciled
from components.stream.stream_ledger import STREAM_BATCHES
from ingest.file_source import Rewrite
from ingest.ledger.file_ledger import LANDED_FILES

offsets_once = offsets_check(TRACKER_EVENTS_RAW)
flights_reconciled = reconciliation_check(
    FLIGHTS_RECONCILIATION,
    "rows_reconciled",
    rows_reconciled,
    "Each bronze row is in silver, in quarantine, or a duplicate of one in silver.",
)
events_reconciled = reconciliation_check(
    TRACKER_RECONCILIATION,
    "records_reconciled",
    records_reconciled,
    "Records read = silver + dropped + quarantined + duplicates + late, by the tables and the ledger.",
)

FROM_FILES = (
    *(source.table for source in SOURCES),
    AIRPORTS,
    AIRPORTS_QUARANTINE,
    FLIGHTS,
    FLIGHTS_QUARANTINE,
    FLIGHTS_WEATHER,
    CARRIER_DAILY,
    ROUTE_DELAY,
    AIRPORT_HOURLY,
    CARRIER_DAILY_SNAPSHOT,
)
"""Every table from landed files, bronze to gold."""

FROM_KAFKA = (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)
"""Every table from Kafka's records, bronze to gold."""

DECLARATIONS = (*FROM_FILES, *FROM_KAFKA)
"""Every table that an asset materializes."""

DAILY = (FLIGHTS_RAW.table, FLIGHTS)
"""Tables that get new data every day. Reference data changes when it changes, and gold is made of these."""

_REPLACEABLE = {source.table.name: "_source_file" for source in SOURCES if source.on_rewrite is Rewrite.REPLACE}

freshness_checks = [freshness_check(declaration) for declaration in DAILY]
files_checks = [files_check(declaration) for declaration in (*DECLARATIONS, LANDED_FILES, STREAM_BATCHES)]

all_checks: list[dg.AssetChecksDefinition] = [
    *files_checks,
    *freshness_checks,
    *(history_checks(declaration, _REPLACEABLE.get(declaration.name, "")) for declaration in DECLARATIONS),
    *(check for source in SOURCES for check in landed_file_check_definitions(source)),
    flights_reconciled,
    offsets_once,
    events_reconciled,
]
