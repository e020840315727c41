"""Asset checks for tables of any kind: each reads what happened and returns numbers; it raises only if it cannot measure."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks import history_findings
from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged, acknowledged_in, removed_rows
from ratify_lakehouse.components.checks.check_state import checked_to, last_recorded, recorded
from ratify_lakehouse.components.checks.counted_rows import columns_with_types, counted_rows
from ratify_lakehouse.components.checks.file_checks import files_present
from ratify_lakehouse.components.checks.history_findings import Claim, Finding, first_version
from ratify_lakehouse.components.checks.landed_file_checks import (
    Checked,
    file_rows_in_bronze,
    files_accepted,
    files_loaded_once,
)
from ratify_lakehouse.components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from ratify_lakehouse.components.checks.reconciliation import Reconciliation
from ratify_lakehouse.components.checks.row_reconciliation import InputRows, rows_reconciled
from ratify_lakehouse.components.checks.table_changes import commits_after, last_new_rows, position, removed_files
from ratify_lakehouse.components.checks.topic_comparison import ACCOUNTED, Accounting, TopicComparison
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.table_asset import COMMITS, asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.table_repair import missing_files
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import catalog_name

_HISTORY_CHECKS = {
    "committed_as_declared": "The last commit of rows was made by the declared engine and operation.",
    "rows_as_reported": "The rows that were reported are those that the commits hold.",
    "no_external_commits": "No version since the last materialization but one is an external commit.",
    "schema_as_declared": "The columns are the declared ones.",
}
_APPEND_ONLY_CHECK = {"append_only_respected": "No version removed rows, whatever its operation is called."}
_FROM_LAST_PASSED = ("committed_as_declared", "append_only_respected")
_OF_COMMITS = {*_FROM_LAST_PASSED, "no_external_commits"}
"""Checks that object to commits, which may be acknowledged."""
_CLAIMS, _MATERIALIZATIONS_READ = 2, 20
_BLOCKING = {"schema_as_declared", "append_only_respected"}
check_spec = partial(
    dg.AssetCheckSpec,
    # As soon as an asset has checks of its own, a run that automation requests includes only the checks that it requested.
    automation_condition=dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested()),
)


def history_checks(declaration: TableDeclaration, replaceable: str = "") -> dg.AssetChecksDefinition:
    """Return the checks of a table's Delta history, which read it once for all of them, from where they last passed.

    Args:
        declaration: The table.
        replaceable: See `append_only_respected`.
    """
    key = asset_key(declaration)
    descriptions = _HISTORY_CHECKS | (_APPEND_ONLY_CHECK if not declaration.keys else {})

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_history",
        specs=[
            check_spec(name, asset=key, description=text, blocking=name in _BLOCKING) for name, text in descriptions.items()
        ],
    )
    @in_one_line(declaration.table_name)
    def checks(context: dg.AssetCheckExecutionContext, spark: Spark, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        claims = _claims(context.instance, key)
        full_name = declaration.full_name(spark.catalog.connection.name)
        log = duckdb.log(full_name)
        now = position(log)
        # The other checks of the history look no further back than the last materializations.
        passed = [checked_to(context, key, name).get(full_name) for name in _FROM_LAST_PASSED if name in descriptions]
        after = min((p.version for p in passed if p and now.reaches(p)), default=-1) if claims and all(passed) else -1
        after = min([after, *(first_version(claim) - 1 for claim in claims), now.version])
        history = commits_after(spark, full_name, after, now.version)
        removed = removed_files(log, after, now.version) if not declaration.keys else {}
        with duckdb.session() as session:
            accepted = {**acknowledged_in(history), **acknowledged(session, now.table)}
            rows = counted_rows(spark, session, declaration)
            reported = history_findings.rows_as_reported(claims[0] if claims else None, history, rows)
        objectionable = [commit for commit in history if commit.version not in accepted]
        columns = columns_with_types(spark, declaration, log)
        findings = {
            "committed_as_declared": history_findings.committed_as_declared(declaration, objectionable),
            "rows_as_reported": reported,
            "no_external_commits": history_findings.no_external_commits(claims, objectionable),
            "schema_as_declared": history_findings.schema_as_declared(declaration, columns),
            "append_only_respected": history_findings.append_only_respected(
                declaration, objectionable, removed, replaceable
            ),
        }
        shown = {"acknowledged commits": "; ".join(map(str, accepted.values()))} if accepted else {}
        for name in descriptions:
            found = findings[name]
            more = shown if name in _OF_COMMITS else {}
            yield check_result(key, name, replace(found, numbers={**found.numbers, **more}, checked={full_name: now}))

    return checks


def _claims(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[Claim]:
    """What the last two materializations reported, newest first."""
    found, cursor, more = dict[tuple[str, int], Claim](), None, True
    while more and len(found) < _CLAIMS:
        page = instance.fetch_materializations(key, limit=_MATERIALIZATIONS_READ, cursor=cursor)
        cursor, more = page.cursor, page.has_more
        for record in page.records:
            event = record.asset_materialization
            # A run of a table with partitions reports each of them; some of these events claim nothing of the table.
            if event is not None and COMMITS in event.metadata:
                claim = _claim(event.metadata)
                found.setdefault((record.run_id, claim.version), claim)
    return list(found.values())[:_CLAIMS]


def _claim(metadata: Mapping[str, dg.MetadataValue[Any]]) -> Claim:
    def number(name: str) -> int:
        return int(metadata[name].value)

    commits: dict[str, Any] = metadata[COMMITS].value
    claim = Claim(tuple(commits["versions"]), number("rows added"), number("Delta version"), number("dagster/row_count"))
    if "batches" not in commits:
        return claim
    return replace(claim, batches=tuple(commits["batches"]), loaded=int(commits["rows"]))


def check_result(
    key: dg.AssetKey, name: str, finding: Finding, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    """Return a finding as Dagster's result of a check."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=finding.passed,
        description=finding.description,
        metadata={**finding.numbers, **(recorded(finding.checked) if finding.checked else {})},
        severity=severity,
    )


def files_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check that a table's storage has every file that the table is made of."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_files",
        specs=[
            check_spec("files_present", asset=key, blocking=True, description="Every file of the table exists in storage.")
        ],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, "files_present", _files_finding(duckdb, declaration))

    return check


def _files_finding(duckdb: DuckDB, declaration: TableDeclaration) -> Finding:
    log = duckdb.log(declaration.full_name(duckdb.catalog.connection.name))
    try:
        files = log.files(log.refresh())
    except TableMissing:
        return Finding(True, "The table does not exist yet.", {"files": 0, "missing": 0})
    return files_present(declaration.table_name, files, missing_files(log, files))


def landing_check(
    source: Source,
    name: str,
    found: Callable[[LandingZone, DuckDB, Source, Checked], Finding],
    description: str,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetChecksDefinition:
    """Return a check that compares a bronze table with the landing zone, from where it last passed; an ERROR blocks."""
    key = asset_key(source.table)

    @dg.multi_asset_check(
        name=f"{source.table.layer}_{source.table.name}_{name}",
        specs=[check_spec(name, asset=key, blocking=severity is dg.AssetCheckSeverity.ERROR, description=description)],
    )
    @in_one_line(source.table_name)
    def check(context: dg.AssetCheckExecutionContext, landing: LandingZone, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, name, found(landing, duckdb, source, checked_to(context, key, name)), severity)

    return check


def landed_file_check_definitions(source: Source) -> list[dg.AssetChecksDefinition]:
    """Return every check that compares a bronze table with the landing zone."""
    return [
        landing_check(source, "files_loaded_once", files_loaded_once, "Every landed file is in bronze exactly once."),
        landing_check(source, "file_rows_in_bronze", file_rows_in_bronze, "Rows in the files equal rows in bronze."),
        landing_check(
            source,
            "files_accepted",
            files_accepted,
            "No refused file waits for its correction.",
            dg.AssetCheckSeverity.WARN,
        ),
    ]


def freshness_check(
    declaration: TableDeclaration, warn_after: dt.timedelta, error_after: dt.timedelta
) -> dg.AssetChecksDefinition:
    """Return the check that the last new rows of a table are not older than that."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_fresh",
        specs=[check_spec("data_is_fresh", asset=key, description="New rows were committed lately.")],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        log, now = duckdb.log(declaration.full_name(duckdb.catalog.connection.name)), dt.datetime.now(dt.UTC)
        last = last_new_rows(log, position(log).version)
        late = last is None or now - last > error_after
        severity = dg.AssetCheckSeverity.ERROR if late else dg.AssetCheckSeverity.WARN
        yield check_result(key, "data_is_fresh", history_findings.data_is_fresh(last, now, warn_after), severity)

    return check


def reconciliation_check(
    reconciliation: Reconciliation, name: str, found: Callable[[Mapping[str, int]], Finding], description: str
) -> dg.AssetChecksDefinition:
    """Return the check that what a table's rows were made of is all accounted for."""
    silver = reconciliation.tables["silver"]
    key = asset_key(silver)
    others = [asset_key(reconciliation.tables[table]) for table in ("quarantine", "bronze")]

    @dg.multi_asset_check(
        name=f"{silver.layer}_{silver.name}_reconciled",
        specs=[check_spec(name, asset=key, additional_deps=others, blocking=True, description=description)],
    )
    @in_one_line(silver.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with duckdb.session() as session:
            counts = reconciliation.counts(session)
        yield check_result(key, name, found(counts))

    return check


def rows_reconciled_check(
    declaration: TableDeclaration, quarantine: TableDeclaration | None, rows: InputRows
) -> dg.AssetChecksDefinition:
    """Return the check that every row of an input of a table is accounted for."""
    key = asset_key(declaration)
    name = "rows_reconciled"
    places = [declaration, *([quarantine] if quarantine else [])]
    others = [dg.AssetKey(rows.table.key_path(catalog_name())), *map(asset_key, places[1:])]
    description = f"Each row of {rows.table} is in the table, in quarantine, or a duplicate of one in the table."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_reconciled",
        specs=[check_spec(name, asset=key, additional_deps=others, blocking=True, description=description)],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with duckdb.session() as session:
            relations = [attached(f"{rows.table.schema}.{rows.table.table}")]
            relations += [attached(place.table_name) for place in places]
            counts = rows.counts(session, *relations)
        yield check_result(key, name, rows_reconciled(counts))

    return check


def offsets_check(declaration: TableDeclaration, isolation: Isolation = "read_committed") -> dg.AssetChecksDefinition:
    """Return the check of a table of records that every offset of each partition is in it, and once.

    Of Kafka's, it is every offset of which a reader of that isolation is given a record.
    """
    key, name = asset_key(declaration), "offsets_once"

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_offsets",
        specs=[
            check_spec(
                name,
                asset=key,
                # Not blocking: an accepted gap stays, and silver leaves out what bronze holds twice.
                description="Every offset of each partition that has a record is in the table, and once.",
            )
        ],
    )
    @in_one_line(declaration.table_name)
    def check(
        context: dg.AssetCheckExecutionContext, spark: Spark, duckdb: DuckDB, kafka: Kafka
    ) -> Iterator[dg.AssetCheckResult]:
        full_name = spark.full_name(declaration)
        now = Accounting(spark.catalog.table(full_name).table_id or "", spark.catalog.version(full_name))
        partitions = [Partition(**row) for row in spark.rows(spark.sql(PARTITIONS, raw=spark.table(declaration)))]
        with duckdb.session() as session:
            session.attach()
            removed = removed_rows(session, now.table)
        # Each row is counted every time, so that nothing more is to do where a run has the tag `FULL`.
        known = last_recorded(context, key, name, ACCOUNTED)
        comparison = TopicComparison(kafka, spark, declaration, isolation)
        lost, found = comparison.lost(partitions, removed, Accounting.read(known) if known else None, now)
        finding = each_offset_once(partitions, removed, lost)
        finding = replace(finding, numbers={**finding.numbers, ACCOUNTED: dg.MetadataValue.json(found.json)})
        only_missing = finding.numbers["doubled"] == 0
        severity = dg.AssetCheckSeverity.WARN if only_missing else dg.AssetCheckSeverity.ERROR
        yield check_result(key, name, finding, severity)

    return check
