"""Asset checks for tables of any kind: each reads what happened and returns numbers; it raises only if it cannot measure."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged, acknowledged_in, removed_rows
from ratify_lakehouse.components.checks.check_state import Position, checked_to, last_recorded, recorded
from ratify_lakehouse.components.checks.counted_rows import counted_rows
from ratify_lakehouse.components.checks.history_findings import (
    Claim,
    Finding,
    append_only_respected,
    data_is_fresh,
    first_version,
    no_external_commits,
    rows_as_reported,
    together,
)
from ratify_lakehouse.components.checks.landed_file_checks import Checked, files_accepted, files_loaded_once
from ratify_lakehouse.components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from ratify_lakehouse.components.checks.reconciliation import Reconciliation
from ratify_lakehouse.components.checks.row_reconciliation import InputRows, rows_reconciled
from ratify_lakehouse.components.checks.table_changes import commits_after, last_new_rows, position, removed_files
from ratify_lakehouse.components.checks.table_findings import columns_as_declared, files_present
from ratify_lakehouse.components.checks.topic_comparison import ACCOUNTED, Accounting, TopicComparison
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.table_asset import COMMITS, asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.delta.table_repair import missing_files
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import catalog_name

INTACT, REPORTED = "table_is_intact", "written_as_reported"
_NOT_THERE = Finding(True, "The table does not exist yet.", {"files": 0, "missing": 0})
_CLAIMS, _MATERIALIZATIONS_READ = 2, 20
check_spec = partial(
    dg.AssetCheckSpec,
    # As soon as an asset has checks of its own, a run that automation requests includes only the checks that it requested.
    automation_condition=dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested()),
)


def table_checks(declaration: TableDeclaration, replaceable: str = "", *, reported: bool = True) -> dg.AssetChecksDefinition:
    """Return the checks whether a table is intact, and whether what it has was written by its runs, as they reported.

    They read the table's Delta history once for both: whether rows were removed, from where that last passed.

    Args:
        declaration: The table.
        replaceable: See `append_only_respected`.
        reported: Whether its runs report the commits; of a table of landed files its ledger says more.
    """
    key, append_only = asset_key(declaration), not declaration.keys
    text = "Every file is in storage, and the columns match the declaration"
    intact = check_spec(
        INTACT,
        asset=key,
        blocking=True,
        description=f"{text}; rows were only ever appended." if append_only else f"{text}.",
    )
    text = "Every commit is from a run of this table, and its rows are as the last run reported."
    specs = [intact, *([check_spec(REPORTED, asset=key, description=text)] if reported else [])]

    @dg.multi_asset_check(name=f"{declaration.layer}_{declaration.name}_history", specs=specs)
    @in_one_line(declaration.table_name)
    def checks(context: dg.AssetCheckExecutionContext, spark: Spark, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        full_name = declaration.full_name(duckdb.catalog.connection.name)
        log, claims = duckdb.log(full_name), _claims(context.instance, key)
        try:
            snapshot = log.refresh()
        except TableMissing as error:
            found = replace(_NOT_THERE, passed=False, description=str(error)) if claims else _NOT_THERE
            yield from (check_result(key, spec.name, found) for spec in specs)
            return
        now = Position(snapshot.uuid, snapshot.version)
        after = _seen_to(context, key, full_name, now) if append_only and claims else now.version if claims else -1
        after = min([after, *(first_version(claim) - 1 for claim in claims), now.version])
        history = commits_after(spark, full_name, after, now.version)
        with duckdb.session() as session:
            accepted = {**acknowledged_in(history), **acknowledged(session, now.table)}
            shown = {"acknowledged commits": "; ".join(map(str, accepted.values()))} if accepted else {}
            objectionable = [commit for commit in history if commit.version not in accepted]
            found = [_files_finding(declaration, log, snapshot), columns_as_declared(declaration, snapshot)]
            if append_only:
                removed = removed_files(log, after, now.version)
                found.append(append_only_respected(declaration, objectionable, removed, replaceable))
            yield check_result(key, INTACT, replace(together(*found), checked={full_name: now}), **shown)
            if reported:
                rows_at = counted_rows(spark, session, declaration)
                rows = rows_as_reported(claims[0] if claims else None, history, rows_at)
                yield check_result(key, REPORTED, together(rows, no_external_commits(claims, objectionable)), **shown)

    return checks


def _seen_to(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, full_name: str, now: Position) -> int:
    """Return the version up to which no rows were removed; -1 where that is not known."""
    passed = checked_to(context, key, INTACT).get(full_name)
    return passed.version if passed and now.reaches(passed) else -1


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
    return Claim(tuple(commits["versions"]), number("rows added"), number("Delta version"), number("dagster/row_count"))


def check_result(key: dg.AssetKey, name: str, finding: Finding, **more: Any) -> dg.AssetCheckResult:
    """Return a finding, with more metadata, as Dagster's result of a check."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=finding.passed,
        description=finding.description,
        metadata={**finding.numbers, **more, **(recorded(finding.checked) if finding.checked else {})},
        severity=dg.AssetCheckSeverity.WARN if finding.warns else dg.AssetCheckSeverity.ERROR,
    )


def ledger_check(declaration: TableDeclaration) -> dg.AssetChecksDefinition:
    """Return the check that a ledger, which no run of its own writes, has every file in storage."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_files",
        specs=[check_spec(INTACT, asset=key, blocking=True, description="Every file is in storage.")],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        log = duckdb.log(declaration.full_name(duckdb.catalog.connection.name))
        try:
            found = _files_finding(declaration, log, log.refresh())
        except TableMissing:
            found = _NOT_THERE
        yield check_result(key, INTACT, found)

    return check


def _files_finding(declaration: TableDeclaration, log: DeltaLog, snapshot: Snapshot) -> Finding:
    files = log.files(snapshot)
    return files_present(declaration.table_name, files, missing_files(log, files))


def landed_file_checks(source: Source) -> list[dg.AssetChecksDefinition]:
    """Return the checks that compare a bronze table with the landing zone, from where they last passed."""
    return [
        _landing_check(
            source, "files_loaded_once", files_loaded_once, "Each row of each landed file is in bronze exactly once."
        ),
        _landing_check(source, "files_accepted", files_accepted, "No refused file waits for its correction."),
    ]


def _landing_check(
    source: Source, name: str, found: Callable[[LandingZone, DuckDB, Source, Checked], Finding], description: str
) -> dg.AssetChecksDefinition:
    key = asset_key(source.table)

    @dg.multi_asset_check(
        name=f"{source.table.layer}_{source.table.name}_{name}",
        # Other files need not wait for the correction of one.
        specs=[check_spec(name, asset=key, blocking=found is files_loaded_once, description=description)],
    )
    @in_one_line(source.table_name)
    def check(context: dg.AssetCheckExecutionContext, landing: LandingZone, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        yield check_result(key, name, found(landing, duckdb, source, checked_to(context, key, name)))

    return check


def freshness_check(
    declaration: TableDeclaration, warn_after: dt.timedelta, error_after: dt.timedelta
) -> dg.AssetChecksDefinition:
    """Return the check that the last new rows of a table are not older than that."""
    key = asset_key(declaration)

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_fresh",
        specs=[check_spec("data_is_fresh", asset=key, description="New rows were committed recently.")],
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        log, now = duckdb.log(declaration.full_name(duckdb.catalog.connection.name)), dt.datetime.now(dt.UTC)
        last = last_new_rows(log, position(log).version)
        yield check_result(key, "data_is_fresh", data_is_fresh(last, now, warn_after, error_after))

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
                description="Every offset of each partition that has a record is in the table exactly once.",
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
        known_next = {ACCOUNTED: dg.MetadataValue.json(found.json)}
        yield check_result(key, name, each_offset_once(partitions, removed, lost), **known_next)

    return check
