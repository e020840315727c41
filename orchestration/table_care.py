"""The job that cares for tables that need it: small files become larger ones, deleted rows go, long logs get a checkpoint.

It keeps nothing: what a table needs is in the table, and its last care is the last OPTIMIZE of ours in its log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from pydantic import Field

from components.checks.care_checks import care_evaluation, found_care
from components.checks.history_findings import Finding
from components.table_component import CaredTable
from orchestration.care_records import CareOutcome, CareRecord, care_report, observation
from orchestration.project_tables import declared_tables
from orchestration.runs_in_progress import targeted_by_runs
from resources.catalog.unity_catalog import UnityCatalog
from resources.delta.care_history import changes_since_care
from resources.delta.care_inspection import Inspection, inspect_table
from resources.delta.care_need import CareStep
from resources.duckdb.duckdb_engine import DuckDB
from resources.duckdb.row_order import RowOrder
from resources.duckdb.table_compaction import compact
from resources.duckdb.table_scan import scan_seconds
from resources.errors import NotConfigured, RatifyError, TableMissing
from resources.wording import counted

# Larger tables are not read whole only to say how long that takes.
_SCANNED_BYTES = 1 << 30


class CareConfig(dg.Config):
    """Which tables, and whether only those over their thresholds."""

    tables: list[str] = Field(default=[], description="Tables as schema.table; none: all")
    below_thresholds: bool = Field(
        default=False, description="Compact every table in which that changes something, whatever its thresholds"
    )


def chosen_tables(names: Sequence[str]) -> Mapping[dg.AssetKey, CaredTable]:
    """Return the tables that are named as schema.table, or all, by their keys.

    Raises:
        NotConfigured: there is none of a name.
    """
    cared = declared_tables().cared
    known = {table.declaration.table_name for table in cared.values()}
    if unknown := [name for name in names if name not in known]:
        raise NotConfigured(f"{', '.join(unknown)}: the project declares no such table; there are {', '.join(known)}.")
    return {key: table for key, table in cared.items() if not names or table.declaration.table_name in names}


@dg.op(description="Cares for the tables that need it, one after the other; a table that fails does not stop the others.")
def care_for_tables(context: dg.OpExecutionContext, config: CareConfig, catalog: UnityCatalog, duckdb: DuckDB) -> None:
    """Look at the tables, care for those over their thresholds, and report each."""
    records = list[CareRecord]()
    for key, table in chosen_tables(config.tables).items():
        caring = _Caring(catalog, duckdb, table)
        try:
            record = caring.run(targeted_by_runs(context.instance).get(key, ""), below_thresholds=config.below_thresholds)
            found = _finding(duckdb, table, record)
        except RatifyError as error:
            context.log.exception("%s", caring.full_name)
            record = CareRecord(caring.full_name, CareOutcome.FAILED, f"{type(error).__name__}: {error}")
            found = None
        records.append(record)
        if found:
            # A job of ops has no checks: else the page would show what was found before the care.
            context.instance.report_runless_asset_event(care_evaluation(key, found))
        if seen := observation(key, record):
            context.log_event(seen)
    report = care_report(records)
    context.log.info("%s", report)
    context.add_output_metadata({"care": dg.MetadataValue.md(report)})
    if failed := [record.full_name for record in records if record.outcome is CareOutcome.FAILED]:
        raise dg.Failure(f"Not cared for, for the reasons above: {', '.join(failed)}.", allow_retries=False)


def _finding(duckdb: DuckDB, table: CaredTable, record: CareRecord) -> Finding | None:
    """What the check `table_care` finds now; None where nobody looked at the table."""
    look = record.after or record.before
    return found_care(duckdb, table, look) if look else None


@dg.job(name="care", description="Compact the tables that have many small files or deleted rows, and shorten long logs.")
def care_job() -> None:
    """Care for the tables."""
    care_for_tables()


@dataclass(frozen=True)
class _Caring:
    """The care for one table."""

    catalog: UnityCatalog
    duckdb: DuckDB
    table: CaredTable

    @property
    def full_name(self) -> str:
        return self.table.declaration.full_name(self.catalog.connection.name)

    def run(self, run_id: str, *, below_thresholds: bool) -> CareRecord:
        """Look at the table, and care for it if that is due.

        Args:
            run_id: Of a run in progress that targets it; empty if there is none.
            below_thresholds: As `CareConfig` has it.
        """
        if not self.table.care.enabled:
            return CareRecord(self.full_name, CareOutcome.OFF, "Its declaration says so.")
        try:
            before = self._inspect()
        except TableMissing:
            return CareRecord(self.full_name, CareOutcome.MISSING, "Nothing has made it yet.")
        log = self.duckdb.log(self.full_name)
        changes = changes_since_care(log, before.figures.version) if before.figures else None
        record = CareRecord(self.full_name, CareOutcome.NOT_DUE, "No figure is over its threshold.", before, changes=changes)
        steps = steps_for(before, below_thresholds=below_thresholds)
        refusals = [rule for step in steps if (rule := before.refused(step))]
        if not before.ours:
            return replace(record, outcome=CareOutcome.LEFT, why=f"Managed by {before.rules.manager}.")
        if len(refusals) == len(steps) > 0:
            why = " ".join(f"{rule.reason} Instead: {rule.by}" for rule in refusals)
            return replace(record, outcome=CareOutcome.LEFT, why=why)
        if steps and run_id:
            return replace(record, outcome=CareOutcome.IN_USE, why=f"Run {run_id} is in progress and targets it.")
        return self._cared_for(record, [step for step in steps if before.refused(step) is None]) if steps else record

    def _inspect(self) -> Inspection:
        return inspect_table(self.catalog, self.duckdb.log(self.full_name), self.full_name, self.table.care)

    def _cared_for(self, record: CareRecord, steps: Sequence[CareStep]) -> CareRecord:
        care, done, scans = self.table.care, list[str](), list[float]()
        figures, name = record.before.figures if record.before else None, self.table.declaration.table_name
        is_scanned = bool(figures and figures.bytes <= _SCANNED_BYTES and CareStep.COMPACT in steps)
        with self.duckdb.session() as session:
            scans += [scan_seconds(session, name)] if is_scanned else []
            if CareStep.COMPACT in steps:
                bins = compact(
                    session,
                    self.catalog,
                    self.duckdb.log(self.full_name),
                    self.full_name,
                    target_bytes=care.target_bytes,
                    order=RowOrder(care.sort, care.z_order),
                    deleted_ratio=care.deleted_ratio,
                )
                done.append(f"Compacted in {counted(len(bins), 'commit')}.")
            # The compaction makes versions, too.
            if CareStep.CHECKPOINT in steps:
                written = session.checkpoint(name)
                done.append("Wrote a checkpoint." if written else "No checkpoint could be written: the log says why.")
            scans += [scan_seconds(session, name)] if is_scanned else []
        due = record.before.need.reason if record.before else ""
        return replace(
            record,
            outcome=CareOutcome.CARED_FOR,
            why=" ".join([*([f"{due}."] if due else []), *done]),
            after=self._inspect(),
            scans=tuple(scans),
        )


def steps_for(inspection: Inspection, *, below_thresholds: bool = False) -> Sequence[CareStep]:
    """Return the steps of care that a table is due, or that change something in it.

    Args:
        inspection: The table.
        below_thresholds: As `CareConfig` has it.
    """
    due, figures = set(inspection.need.due), inspection.figures
    if below_thresholds and figures and (figures.mergeable_files or figures.droppable_rows):
        due.add(CareStep.COMPACT)
    return [step for step in CareStep if step in due]
