"""The job that maintains tables that need it: small files become larger ones, deleted rows go, long logs get a checkpoint.

It keeps nothing: what a table needs is in the table, and its last maintenance is the last OPTIMIZE of ours in its log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.checks.upkeep_check import upkeep_evaluation, upkeep_finding
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.definitions.maintenance_records import (
    MaintenanceOutcome,
    MaintenanceRecord,
    maintenance_report,
    observation,
)
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.runs_in_progress import targeted_by_runs
from ratify_lakehouse.delta.maintenance_history import changes_since_maintenance
from ratify_lakehouse.delta.maintenance_inspection import Inspection, inspect_table
from ratify_lakehouse.delta.maintenance_need import MaintenanceStep
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.row_order import RowOrder
from ratify_lakehouse.engines.duckdb.table_compaction import compact
from ratify_lakehouse.engines.duckdb.table_scan import scan_seconds
from ratify_lakehouse.errors import NotConfigured, RatifyError, TableMissing
from ratify_lakehouse.wording import counted

# Larger tables are not read whole only to say how long that takes.
_SCANNED_BYTES = 1 << 30


class MaintenanceConfig(dg.Config):
    """Choose the tables, and whether only those over their thresholds."""

    tables: list[str] = Field(default=[], description="Tables as schema.table; none: all")
    below_thresholds: bool = Field(
        default=False, description="Compact every table in which that changes something, whatever its thresholds"
    )


def chosen_tables(names: Sequence[str]) -> Mapping[dg.AssetKey, MaintainedTable]:
    """Return the tables that are named as schema.table, or all, by their keys.

    Raises:
        NotConfigured: there is none of a name.
    """
    maintained = declared_tables().maintained
    known = {table.declaration.table_name for table in maintained.values()}
    if unknown := [name for name in names if name not in known]:
        raise NotConfigured(f"{', '.join(unknown)}: the project declares no such table; there are {', '.join(known)}.")
    return {key: table for key, table in maintained.items() if not names or table.declaration.table_name in names}


@dg.op(description="Maintains the tables that need it, one after the other; a table that fails does not stop the others.")
def maintain_tables(
    context: dg.OpExecutionContext, config: MaintenanceConfig, catalog: UnityCatalog, duckdb: DuckDB
) -> None:
    """Look at the tables, maintain those over their thresholds, and report each."""
    records = list[MaintenanceRecord]()
    for key, table in chosen_tables(config.tables).items():
        maintaining = _Maintaining(catalog, duckdb, table)
        try:
            record = maintaining.run(
                targeted_by_runs(context.instance).get(key, ""), below_thresholds=config.below_thresholds
            )
            found = _finding(duckdb, table, record)
        except RatifyError as error:
            context.log.exception("%s", maintaining.full_name)
            record = MaintenanceRecord(maintaining.full_name, MaintenanceOutcome.FAILED, f"{type(error).__name__}: {error}")
            found = None
        records.append(record)
        if found:
            # A job of ops has no checks: else the page would show what was found before the maintenance.
            context.instance.report_runless_asset_event(upkeep_evaluation(key, found))
        if seen := observation(key, record):
            context.log_event(seen)
    report = maintenance_report(records)
    context.log.info("%s", report)
    context.add_output_metadata({"maintenance": dg.MetadataValue.md(report)})
    if failed := [record.full_name for record in records if record.outcome is MaintenanceOutcome.FAILED]:
        raise dg.Failure(f"Not maintained, for the reasons above: {', '.join(failed)}.", allow_retries=False)


def _finding(duckdb: DuckDB, table: MaintainedTable, record: MaintenanceRecord) -> Finding | None:
    """Return what the check `maintained_as_declared` finds now; None where nobody looked at the table."""
    look = record.after or record.before
    return upkeep_finding(duckdb, table, look) if look else None


@dg.job(
    name="maintenance", description="Compact the tables that have many small files or deleted rows, and shorten long logs."
)
def maintenance_job() -> None:
    """Maintain the tables."""
    maintain_tables()


@dataclass(frozen=True)
class _Maintaining:
    """The maintenance of one table."""

    catalog: UnityCatalog
    duckdb: DuckDB
    table: MaintainedTable

    @property
    def full_name(self) -> str:
        return self.table.declaration.full_name(self.catalog.connection.name)

    def run(self, run_id: str, *, below_thresholds: bool) -> MaintenanceRecord:
        """Look at the table, and maintain it if that is due.

        Args:
            run_id: Of a run in progress that targets it; empty if there is none.
            below_thresholds: As `MaintenanceConfig` has it.
        """
        if not self.table.maintenance.enabled:
            return MaintenanceRecord(self.full_name, MaintenanceOutcome.OFF, "Its declaration says so.")
        try:
            before = self._inspect()
        except TableMissing:
            return MaintenanceRecord(self.full_name, MaintenanceOutcome.MISSING, "It does not exist yet.")
        log = self.duckdb.log(self.full_name)
        changes = changes_since_maintenance(log, before.figures.version) if before.figures else None
        record = MaintenanceRecord(
            self.full_name, MaintenanceOutcome.NOT_DUE, "No figure is over its threshold.", before, changes=changes
        )
        steps = steps_for(before, below_thresholds=below_thresholds)
        refusals = [rule for step in steps if (rule := before.refused(step))]
        if not before.ours:
            return replace(record, outcome=MaintenanceOutcome.LEFT, why=f"Managed by {before.rules.manager}.")
        if len(refusals) == len(steps) > 0:
            why = " ".join(f"{rule.reason} Instead: {rule.by}" for rule in refusals)
            return replace(record, outcome=MaintenanceOutcome.LEFT, why=why)
        if steps and run_id:
            return replace(record, outcome=MaintenanceOutcome.IN_USE, why=f"Run {run_id} is in progress and targets it.")
        return self._maintained(record, [step for step in steps if before.refused(step) is None]) if steps else record

    def _inspect(self) -> Inspection:
        return inspect_table(self.catalog, self.duckdb.log(self.full_name), self.full_name, self.table.maintenance)

    def _maintained(self, record: MaintenanceRecord, steps: Sequence[MaintenanceStep]) -> MaintenanceRecord:
        maintenance, done, scans = self.table.maintenance, list[str](), list[float]()
        figures, name = record.before.figures if record.before else None, self.table.declaration.table_name
        is_scanned = bool(figures and figures.bytes <= _SCANNED_BYTES and MaintenanceStep.COMPACT in steps)
        with self.duckdb.session() as session:
            scans += [scan_seconds(session, name)] if is_scanned else []
            if MaintenanceStep.COMPACT in steps:
                bins = compact(
                    session,
                    self.catalog,
                    self.duckdb.log(self.full_name),
                    self.full_name,
                    target_bytes=maintenance.target_bytes,
                    order=RowOrder(maintenance.sort, maintenance.z_order),
                    deleted_ratio=maintenance.deleted_ratio,
                )
                done.append(f"Compacted in {counted(len(bins), 'commit')}.")
            # The compaction makes versions, too.
            if MaintenanceStep.CHECKPOINT in steps:
                written = session.checkpoint(name)
                done.append("Wrote a checkpoint." if written else "No checkpoint could be written: the log says why.")
            scans += [scan_seconds(session, name)] if is_scanned else []
        due = record.before.need.reason if record.before else ""
        return replace(
            record,
            outcome=MaintenanceOutcome.MAINTAINED,
            why=" ".join([*([f"{due}."] if due else []), *done]),
            after=self._inspect(),
            scans=tuple(scans),
        )


def steps_for(inspection: Inspection, *, below_thresholds: bool = False) -> Sequence[MaintenanceStep]:
    """Return the steps of maintenance that a table is due, or that change something in it.

    Args:
        inspection: The table.
        below_thresholds: As `MaintenanceConfig` has it.
    """
    due, figures = set(inspection.need.due), inspection.figures
    if below_thresholds and figures and (figures.mergeable_files or figures.droppable_rows):
        due.add(MaintenanceStep.COMPACT)
    return [step for step in MaintenanceStep if step in due]
