"""The asset checks: each reads what happened and returns numbers; it raises only if it cannot measure."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import dagster as dg

from assets.bronze.landed_tables import FLIGHTS_RAW, SOURCES
from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.gold.gold_flights import AIRPORT_HOURLY, CARRIER_DAILY, CARRIER_DAILY_SNAPSHOT, ROUTE_DELAY
from assets.gold.gold_tracker import DEVICE_DAILY, HEART_RATE_MINUTE
from assets.silver.silver_flights import FLIGHTS, FLIGHTS_QUARANTINE, FLIGHTS_WEATHER
from assets.silver.tracker_tables import QUARANTINE, STREAM_BATCHES, TRACKER_EVENTS
from components.checks import history_checks as judge
from components.checks.file_checks import files_present
from components.checks.history_checks import Claim, Finding
from components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from components.checks.reconciliation import count_fates, csv_rows_in_bronze, files_loaded_once, flights_conserved
from components.checks.stream_reconciliation import count_records, records_conserved
from components.table_asset import VERSIONS, asset_key
from ingest.file_source import Source
from ingest.ledger.file_ledger import LANDED_FILES
from resources.declarations import TableDeclaration
from resources.delta.table_repair import missing_files
from resources.duckdb.duckdb_engine import ALIAS, DuckDB
from resources.errors import TableMissing
from resources.landing.landing_zone import LandingZone
from resources.spark.spark_engine import Spark

_HISTORY_CHECKS = {
    "committed_as_declared": "The last commit of rows was made by the declared engine and operation.",
    "rows_as_reported": "The rows that were reported are those that the commits hold.",
    "no_foreign_versions": "Nobody but Dagster made a version since the last materialization.",
    "schema_as_declared": "The columns are the declared ones.",
}
_APPEND_ONLY_CHECK = {"nothing_taken_back": "Rows were never deleted, restored or rewritten."}
_BLOCKING = {"schema_as_declared", "nothing_taken_back"}
check_spec = partial(
    dg.AssetCheckSpec,
    # A run that automation asks for has only the checks that it asked for, as soon as a table brings some of its own.
    automation_condition=dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested()),
)


def history_checks(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the checks that read a table's Delta history, once for all of them."""
    key = asset_key(declaration)
    said = _HISTORY_CHECKS | (_APPEND_ONLY_CHECK if not declaration.keys else {})

    @dg.multi_asset_check(
        name=f"{declaration.name}_history",
        specs=[check_spec(name, asset=key, description=text, blocking=name in _BLOCKING) for name, text in said.items()],
    )
    def checks(context: dg.AssetCheckExecutionContext, spark: Spark) -> Iterator[dg.AssetCheckResult]:
        claims = _claims(context.instance, key)
        for name, finding in _findings(spark, declaration, claims).items():
            if name in said:
                yield check_result(key, name, finding)

    return checks


def _findings(spark: Spark, declaration: TableDeclaration, claims: list[Claim]) -> Mapping[str, Finding]:
    history = spark.history(declaration.full_name(spark.catalog.connection.name))
    last = claims[0] if claims else None

    def counted() -> int:
        return _counted(spark, declaration, last) if last else 0

    return {
        "committed_as_declared": judge.committed_as_declared(declaration, history),
        "rows_as_reported": judge.rows_as_reported(last, history, counted),
        "no_foreign_versions": judge.no_foreign_versions(claims, history),
        "schema_as_declared": judge.schema_as_declared(declaration, spark.table(declaration).dtypes),
        "nothing_taken_back": judge.nothing_taken_back(history),
    }


def _counted(spark: Spark, declaration: TableDeclaration, claim: Claim) -> int:
    """Rows at the claim's last version less rows before its first."""
    if not claim.versions:
        return 0
    before = min(claim.versions) - 1
    return spark.count(declaration, max(claim.versions)) - (spark.count(declaration, before) if before >= 0 else 0)


def _claims(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[Claim]:
    """What the last two materializations reported, newest first."""
    records = instance.fetch_materializations(key, limit=2).records
    events = [record.asset_materialization for record in records]
    return [_claim(event.metadata) for event in events if event is not None]


def _claim(metadata: Mapping[str, dg.MetadataValue[Any]]) -> Claim:
    def number(name: str) -> int:
        return int(metadata[name].value)

    versions = tuple(int(version) for version in metadata[VERSIONS].value)
    return Claim(versions, number("rows added"), number("Delta version"), number("dagster/row_count"))


def check_result(key: dg.AssetKey, name: str, finding: Finding) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=finding.passed,
        description=finding.description,
        metadata=dict(finding.numbers),
        severity=dg.AssetCheckSeverity.ERROR,
    )


def files_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check that a table's storage has every file that the table is made of."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.name}_files",
        specs=[
            check_spec("files_present", asset=key, blocking=True, description="Every file of the table exists in storage.")
        ],
    )
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, "files_present", _files_finding(duckdb, declaration))

    return check


def _files_finding(duckdb: DuckDB, declaration: TableDeclaration) -> Finding:
    log = duckdb.log(declaration.full_name(duckdb.catalog.connection.name))
    try:
        files = log.files(log.refresh())
    except TableMissing:
        return Finding(True, "Not made yet.", {"files": 0, "missing": 0})
    return files_present(f"{declaration.layer}.{declaration.name}", files, missing_files(log, files))


def landing_check(
    source: Source, name: str, judged: Callable[[LandingZone, DuckDB, Source], Finding], description: str
) -> dg.AssetChecksDefinition:
    """Return a check that holds a bronze table against the landing zone."""
    key = asset_key(source.table)

    @dg.multi_asset_check(
        name=f"{source.table.name}_{name}",
        specs=[check_spec(name, asset=key, blocking=True, description=description)],
    )
    def check(landing: LandingZone, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, name, judged(landing, duckdb, source))

    return check


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
    name="flights_conserved",
    specs=[
        check_spec(
            "rows_conserved",
            asset=asset_key(FLIGHTS),
            additional_deps=[asset_key(FLIGHTS_QUARANTINE), asset_key(FLIGHTS_RAW.table)],
            blocking=True,
            description="Each bronze row is in silver, in quarantine, or a duplicate of one in silver.",
        )
    ],
)
def rows_conserved(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
    """Account for every bronze row of flights."""
    tables = (FLIGHTS_RAW.table, FLIGHTS, FLIGHTS_QUARANTINE)
    with duckdb.session() as session:
        counts = count_fates(session, *(f"{ALIAS}.{table.layer}.{table.name}" for table in tables))
    yield check_result(asset_key(FLIGHTS), "rows_conserved", flights_conserved(counts))


@dg.multi_asset_check(
    name="tracker_events_conserved",
    specs=[
        check_spec(
            "records_conserved",
            asset=asset_key(TRACKER_EVENTS),
            additional_deps=[asset_key(QUARANTINE), asset_key(TRACKER_EVENTS_RAW)],
            blocking=True,
            description="Records read = silver + dropped + quarantined + duplicates + late, by the tables and the book.",
        )
    ],
)
def events_conserved(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
    """Account for every record that the stream into silver has read."""
    tables = (TRACKER_EVENTS_RAW, TRACKER_EVENTS, QUARANTINE, STREAM_BATCHES)
    with duckdb.session() as session:
        counts = count_records(session, *(f"{ALIAS}.{table.layer}.{table.name}" for table in tables))
    yield check_result(asset_key(TRACKER_EVENTS), "records_conserved", records_conserved(counts))


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
    rows_conserved,
    offsets_once,
    events_conserved,
]
