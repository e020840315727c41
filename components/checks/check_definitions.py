"""Asset checks for tables of any kind: each reads what happened and returns numbers; it raises only if it cannot measure."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import dagster as dg

from components.checks import history_findings
from components.checks.file_checks import files_present
from components.checks.history_findings import Claim, Finding
from components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from components.checks.reconciliation import Reconciliation
from components.table_asset import VERSIONS, asset_key
from ingest.file_source import Source
from resources.declarations import TableDeclaration
from resources.delta.table_repair import missing_files
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import TableMissing
from resources.landing.landing_zone import LandingZone
from resources.spark.spark_engine import Spark

_HISTORY_CHECKS = {
    "committed_as_declared": "The last commit of rows was made by the declared engine and operation.",
    "rows_as_reported": "The rows that were reported are those that the commits hold.",
    "no_external_commits": "No version since the last materialization but one is an external commit.",
    "schema_as_declared": "The columns are the declared ones.",
}
_APPEND_ONLY_CHECK = {"append_only_respected": "Rows were never deleted, restored or rewritten."}
_BLOCKING = {"schema_as_declared", "append_only_respected"}
check_spec = partial(
    dg.AssetCheckSpec,
    # As soon as an asset has checks of its own, a run that automation requests includes only the checks that it requested.
    automation_condition=dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested()),
)


def history_checks(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the checks of a table's Delta history, which read it once for all of them."""
    key = asset_key(declaration)
    descriptions = _HISTORY_CHECKS | (_APPEND_ONLY_CHECK if not declaration.keys else {})

    @dg.multi_asset_check(
        name=f"{declaration.name}_history",
        specs=[
            check_spec(name, asset=key, description=text, blocking=name in _BLOCKING) for name, text in descriptions.items()
        ],
    )
    def checks(context: dg.AssetCheckExecutionContext, spark: Spark) -> Iterator[dg.AssetCheckResult]:
        claims = _claims(context.instance, key)
        for name, finding in _findings(spark, declaration, claims).items():
            if name in descriptions:
                yield check_result(key, name, finding)

    return checks


def _findings(spark: Spark, declaration: TableDeclaration, claims: list[Claim]) -> Mapping[str, Finding]:
    history = spark.history(declaration.full_name(spark.catalog.connection.name))
    last = claims[0] if claims else None

    def counted() -> int:
        return _counted(spark, declaration, last) if last else 0

    return {
        "committed_as_declared": history_findings.committed_as_declared(declaration, history),
        "rows_as_reported": history_findings.rows_as_reported(last, history, counted),
        "no_external_commits": history_findings.no_external_commits(claims, history),
        "schema_as_declared": history_findings.schema_as_declared(declaration, spark.table(declaration).dtypes),
        "append_only_respected": history_findings.append_only_respected(history),
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


def check_result(
    key: dg.AssetKey, name: str, finding: Finding, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    """Return a finding as Dagster's result of a check."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=finding.passed,
        description=finding.description,
        metadata=dict(finding.numbers),
        severity=severity,
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
        return Finding(True, "The table does not exist yet.", {"files": 0, "missing": 0})
    return files_present(f"{declaration.layer}.{declaration.name}", files, missing_files(log, files))


def landing_check(
    source: Source, name: str, found: Callable[[LandingZone, DuckDB, Source], Finding], description: str
) -> dg.AssetChecksDefinition:
    """Return a check that compares a bronze table with the landing zone."""
    key = asset_key(source.table)

    @dg.multi_asset_check(
        name=f"{source.table.name}_{name}",
        specs=[check_spec(name, asset=key, blocking=True, description=description)],
    )
    def check(landing: LandingZone, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, name, found(landing, duckdb, source))

    return check


def reconciliation_check(
    reconciliation: Reconciliation, name: str, found: Callable[[Mapping[str, int]], Finding], description: str
) -> dg.AssetChecksDefinition:
    """Return the check that what a table's rows were made of is all accounted for."""
    silver = reconciliation.tables["silver"]
    key = asset_key(silver)
    others = [asset_key(reconciliation.tables[table]) for table in ("quarantine", "bronze")]

    @dg.multi_asset_check(
        name=f"{silver.name}_reconciled",
        specs=[check_spec(name, asset=key, additional_deps=others, blocking=True, description=description)],
    )
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with duckdb.session() as session:
            counts = reconciliation.counts(session)
        yield check_result(key, name, found(counts))

    return check


def offsets_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check of a table of records that every offset of each partition is in it, and once."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.name}_offsets",
        specs=[
            check_spec(
                "offsets_once",
                asset=key,
                # Not blocking: an accepted gap stays, and silver leaves out what bronze holds twice.
                description="Every offset of each partition is in the table, and once.",
            )
        ],
    )
    def check(spark: Spark) -> Iterator[dg.AssetCheckResult]:
        partitions = spark.rows(spark.sql(PARTITIONS, raw=spark.table(declaration)))
        finding = each_offset_once([Partition(**row) for row in partitions])
        only_missing = finding.numbers["doubled"] == 0
        severity = dg.AssetCheckSeverity.WARN if only_missing else dg.AssetCheckSeverity.ERROR
        yield check_result(key, "offsets_once", finding, severity)

    return check
