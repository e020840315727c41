"""Which checks each table has."""

from collections.abc import Iterator

import dagster as dg

from assets.bronze.landed_sources import FLIGHTS_RAW, SOURCES
from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.gold.gold_flights import AIRPORT_HOURLY, CARRIER_DAILY, CARRIER_DAILY_SNAPSHOT, ROUTE_DELAY
from assets.gold.gold_tracker import DEVICE_DAILY, HEART_RATE_MINUTE
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_WEATHER
from assets.silver.tracker_tables import QUARANTINE, STREAM_BATCHES, TRACKER_EVENTS
from components.checks.check_definitions import check_result, check_spec, files_check, history_checks, landing_check
from components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from components.checks.reconciliation import count_fates, csv_rows_in_bronze, files_loaded_once, flights_reconciled
from components.checks.stream_reconciliation import count_records, records_reconciled
from components.table_asset import asset_key
from ingest.ledger.file_ledger import LANDED_FILES
from resources.duckdb.duckdb_engine import ALIAS, DuckDB
from resources.spark.spark_engine import Spark


@dg.multi_asset_check(
    name="tracker_events_raw_offsets",
    specs=[
        check_spec(
            "offsets_once",
            asset=asset_key(TRACKER_EVENTS_RAW),
            # Not blocking: a gap that was accepted stays, and what stands twice silver leaves out.
            description="Every offset of each partition is in the table, and once.",
        )
    ],
)
def offsets_once(spark: Spark) -> Iterator[dg.AssetCheckResult]:
    """Hold the rows of each partition against its first and last offset."""
    found = spark.rows(spark.sql(PARTITIONS, raw=spark.table(TRACKER_EVENTS_RAW)))
    finding = each_offset_once([Partition(**row) for row in found])
    only_missing = finding.numbers["doubled"] == 0
    yield dg.AssetCheckResult(
        asset_key=asset_key(TRACKER_EVENTS_RAW),
        check_name="offsets_once",
        passed=finding.passed,
        description=finding.description,
        metadata=dict(finding.numbers),
        severity=dg.AssetCheckSeverity.WARN if only_missing else dg.AssetCheckSeverity.ERROR,
    )


@dg.multi_asset_check(
    name="flights_reconciled",
    specs=[
        check_spec(
            "rows_reconciled",
            asset=asset_key(FLIGHTS),
            additional_deps=[asset_key(FLIGHTS_QUARANTINE), asset_key(FLIGHTS_RAW.table)],
            blocking=True,
            description="Each bronze row is in silver, in quarantine, or a duplicate of one in silver.",
        )
    ],
)
def rows_reconciled(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
    """Account for every bronze row of flights."""
    tables = (FLIGHTS_RAW.table, FLIGHTS, FLIGHTS_QUARANTINE)
    with duckdb.session() as session:
        counts = count_fates(session, *(f"{ALIAS}.{table.layer}.{table.name}" for table in tables))
    yield check_result(asset_key(FLIGHTS), "rows_reconciled", flights_reconciled(counts))


@dg.multi_asset_check(
    name="tracker_events_reconciled",
    specs=[
        check_spec(
            "records_reconciled",
            asset=asset_key(TRACKER_EVENTS),
            additional_deps=[asset_key(QUARANTINE), asset_key(TRACKER_EVENTS_RAW)],
            blocking=True,
            description="Records read = silver + dropped + quarantined + duplicates + late, by the tables and the ledger.",
        )
    ],
)
def events_reconciled(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
    """Account for every record that the stream into silver has read."""
    tables = (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, STREAM_BATCHES)
    with duckdb.session() as session:
        counts = count_records(session, *(f"{ALIAS}.{table.layer}.{table.name}" for table in tables))
    yield check_result(asset_key(TRACKER_EVENTS), "records_reconciled", records_reconciled(counts))


FROM_FILES = (
    *(source.table for source in SOURCES),
    FLIGHTS,
    FLIGHTS_QUARANTINE,
    FLIGHTS_WEATHER,
    CARRIER_DAILY,
    ROUTE_DELAY,
    AIRPORT_HOURLY,
    CARRIER_DAILY_SNAPSHOT,
)
"""Every table that is made of landed files, bronze to gold."""

FROM_KAFKA = (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)
"""Every table that is made of Kafka's records, bronze to gold."""

DECLARATIONS = (*FROM_FILES, *FROM_KAFKA)
"""Every table that an asset materializes."""

files_checks = [files_check(declaration) for declaration in (*DECLARATIONS, LANDED_FILES, STREAM_BATCHES)]

all_checks: list[dg.AssetChecksDefinition] = [
    *files_checks,
    *(history_checks(declaration) for declaration in DECLARATIONS),
    *(
        landing_check(source, "files_loaded_once", files_loaded_once, "Every landed file is in bronze exactly once.")
        for source in SOURCES
    ),
    *(
        landing_check(source, "csv_rows_in_bronze", csv_rows_in_bronze, "Rows in the CSV files equal rows in bronze.")
        for source in SOURCES
    ),
    rows_reconciled,
    offsets_once,
    events_reconciled,
]
