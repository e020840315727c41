"""Maintenance of all declared tables for the command line: what each needs, and a run of the job `maintenance`."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.engine_session import Engines
from ratify_lakehouse.cli.job_run import failure_of, run_job
from ratify_lakehouse.components.maintenance_metadata import SHOWN_FIGURES, shown_figures
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.definitions.maintenance_records import BEFORE, SCAN, shown_seconds
from ratify_lakehouse.definitions.project_definitions import code_location
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.table_maintenance import chosen_tables, maintain_tables, maintenance_job
from ratify_lakehouse.delta.maintenance_inspection import inspect_table
from ratify_lakehouse.errors import RatifyError, TableMissing

_NOTHING = dict.fromkeys(SHOWN_FIGURES, "")


def maintenance_needs(opened: Engines) -> list[dict[str, Any]]:
    """Return what each declared table needs, the worst first; those that cannot be looked at come before all others."""
    found = [_need(opened, table) for table in declared_tables().maintained.values()]
    return [row for _, row in sorted(found, key=lambda each: -each[0])]


def _need(opened: Engines, table: MaintainedTable) -> tuple[float, dict[str, Any]]:
    """The urgency of a table, and its row."""
    full_name = table.declaration.full_name(opened.catalog.connection.name)
    row = {"table": table.declaration.table_name, **_NOTHING, "due": "", "why": ""}
    try:
        found = inspect_table(opened.catalog, opened.duckdb.log(full_name), full_name, table.maintenance)
    except TableMissing:
        return -2, row | {"why": "it does not exist yet"}
    except RatifyError as error:
        return float("inf"), row | {"why": f"{type(error).__name__}: {error}"}
    row |= shown_figures(found.figures) if found.figures else {}
    if not found.ours:
        return -1, row | {"why": f"managed by {found.rules.manager}"}
    notes = [found.need.reason]
    if not table.maintenance.enabled:
        notes.append("its maintenance is switched off")
    notes += [f"not allowed: {rule.reason}" for step in found.need.due if (rule := found.refused(step))]
    return found.need.times_over, row | {"due": ", ".join(found.need.due), "why": "; ".join(filter(None, notes))}


def run_maintenance(instance: dg.DagsterInstance, tables: Sequence[str], *, below_thresholds: bool) -> dg.JobExecutionResult:
    """Run the job `maintenance` in this process.

    Args:
        instance: Where the run is recorded.
        tables: As schema.table; none: all.
        below_thresholds: As `MaintenanceConfig` has it.

    Raises:
        NotConfigured: the project declares no such table.
    """
    chosen_tables(tables)
    config = {"tables": list(tables), "below_thresholds": below_thresholds}
    return run_job(
        instance, code_location(), maintenance_job.name, [], config={"ops": {maintain_tables.name: {"config": config}}}
    )


def maintain_when_due(tables: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Run what the job would run, and return what became of the tables that it looked at, and why the run failed, if so.

    Args:
        tables: As schema.table; none: all.

    Raises:
        NotConfigured: the project declares no such table.
    """
    with dagster_instance() as instance:
        run = run_maintenance(instance, tables, below_thresholds=False)
        rows = maintenance_rows(instance, run.run_id)
    return rows, "" if run.success else failure_of(run)


def maintenance_rows(instance: dg.DagsterInstance, run_id: str) -> list[dict[str, Any]]:
    """Return the tables that a run of the job looked at, with files, MB and seconds of a scan before and after, and why.

    They are read from the log: the result of a run does not have what a step reported that failed.
    """
    found = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION).records
    return [_row(seen) for record in found if (seen := record.asset_observation)]


def _row(seen: dg.AssetObservation) -> dict[str, Any]:
    values = {name: found.value for name, found in seen.metadata.items()}
    row: dict[str, Any] = {"table": ".".join(seen.asset_key.path[-2:]), "outcome": values["outcome"]}
    for name in ("files", "MB"):
        row |= {f"{name}{BEFORE}": values.get(f"{name}{BEFORE}", ""), f"{name} after": values.get(name, "")}
    for when, suffix in (("before", BEFORE), ("after", "")):
        seconds = values.get(f"{SCAN}{suffix}")
        row[f"scan {when}"] = shown_seconds(seconds if isinstance(seconds, float) else None)
    return row | {"why": values["why"]}
