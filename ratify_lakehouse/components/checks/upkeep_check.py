"""The check that a table is as it is declared, and maintained: it warns, and blocks nothing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding, together
from ratify_lakehouse.components.checks.table_findings import rest_as_declared
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.maintenance_metadata import rules_table, shown_figures
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.delta.maintenance_inspection import Inspection, inspect_table
from ratify_lakehouse.delta.reader_lag import ReaderLag, longest_lag
from ratify_lakehouse.delta.snapshot import retention_seconds
from ratify_lakehouse.delta.table_clean import RETENTION
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import TableMissing

MAINTAINED = "maintained_as_declared"
_HOUR_S = 3600


def maintenance_finding(look: Inspection, retention_s: int, lag: ReaderLag | None) -> Finding:
    """Check that a table is not over a threshold, and that its readers find the files that they have not read.

    Args:
        look: The table.
        retention_s: How long `ratify clean` leaves files of its old versions, in seconds; 0: it removes none.
        lag: Its reader that is furthest behind, where that is known.
    """
    if look.figures is None or not look.ours:
        return Finding(True, f"Managed by {look.rules.manager}.", {"maintenance": rules_table(look.rules)})
    numbers: dict[str, Any] = {**shown_figures(look.figures), "unpublished commits": look.figures.unpublished}
    faults = list[str]()
    for step, reason in look.need.due.items():
        rule = look.refused(step)
        remedy = f"{rule.reason} Instead: {rule.by}" if rule else "The job `maintenance` fixes this."
        faults.append(f"{reason[0].upper()}{reason[1:]}. {remedy}")
    if lag:
        numbers["hours of the longest lag"] = round(lag.seconds / _HOUR_S, 2)
    if retention_s:
        numbers["hours of retention"] = round(retention_s / _HOUR_S, 2)
    if lag and 0 < retention_s < lag.seconds:
        faults.append(
            f"{lag.reader} has not read a version that is {lag.seconds / _HOUR_S:,.1f} hours old, and files that are no "
            f"longer needed stay for {retention_s / _HOUR_S:,.1f} hours: materialize it, or set {RETENTION} to more."
        )
    right = "Few small files and deleted rows, and a short log."
    return Finding(not faults, " ".join(faults) or right, {**numbers, "maintenance": rules_table(look.rules)})


def upkeep_finding(duckdb: DuckDB, table: MaintainedTable, look: Inspection | None = None) -> Finding:
    """Check that a table is as its declaration has it, and needs no maintenance, where that is not switched off.

    Args:
        duckdb: Reads the logs.
        table: The table.
        look: What an inspection found; None: it is inspected.

    Raises:
        TableMissing: it does not exist. And as `longest_lag`.
    """
    catalog, declaration = duckdb.catalog.connection.name, table.declaration
    log = duckdb.log(declaration.full_name(catalog))
    snapshot = log.refresh()
    found = [rest_as_declared(declaration, snapshot)]
    if table.maintenance.enabled:
        look = look or inspect_table(duckdb.catalog, log, declaration.full_name(catalog), table.maintenance)
        lag, retention_s = None, 0
        if look.figures and look.ours:
            readers = {reader.full_name(catalog): duckdb.log(reader.full_name(catalog)) for reader in table.readers}
            retention_s, lag = retention_seconds(snapshot.properties.get(RETENTION, "")), longest_lag(log, snapshot, readers)
        found.append(maintenance_finding(look, retention_s, lag))
    return replace(together(*found), warns=True)


def upkeep_check(table: MaintainedTable) -> dg.AssetChecksDefinition:
    """Return the check that a table is as it is declared, and maintained."""
    declaration = table.declaration
    key = asset_key(declaration)
    text = "Comments, properties and layout are as declared; few small files, a short log, and readers that keep up."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_upkeep", specs=[check_spec(MAINTAINED, asset=key, description=text)]
    )
    @in_one_line(declaration.table_name)
    def check(duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        try:
            found = upkeep_finding(duckdb, table)
        except TableMissing:
            found = Finding(True, "The table does not exist yet.", {})
        yield check_result(key, MAINTAINED, found)

    return check


def upkeep_evaluation(key: dg.AssetKey, found: Finding) -> dg.AssetCheckEvaluation:
    """Return a finding as an evaluation for who looks at the table without the check."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=MAINTAINED,
        passed=found.passed,
        metadata=dict(found.numbers),
        severity=dg.AssetCheckSeverity.WARN,
        description=found.description,
    )
