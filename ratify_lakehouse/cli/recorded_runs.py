"""Runs through Dagster that a command executes, and those of sensor and automation conditions, with their reports."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.engine_session import Engines
from ratify_lakehouse.cli.job_run import failure_of, failure_of_step, run_job
from ratify_lakehouse.cli.maintenance_run import maintenance_rows, run_maintenance
from ratify_lakehouse.cli.terminal_output import out, progress, show, show_findings, styled
from ratify_lakehouse.components.checks.upkeep_check import MAINTAINED
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.automation_sensor import automation_sensor
from ratify_lakehouse.definitions.project_definitions import ANY_JOB, code_location, job_named
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.sensors.landed_files_sensor import landed_files_sensor
from ratify_lakehouse.definitions.sensors.whole_table_sensor import definitions_of_whole_tables, whole_run_tags
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.embedded.phase_progress import phase
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.wording import counted


@dataclass
class RecordedRuns:
    """Results of the runs that a command executes on a Dagster instance; a failed step has its reason."""

    instance: dg.DagsterInstance
    cursor: Any = None
    failed_steps: list[str] = field(default_factory=list[str])
    checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = field(
        default_factory=dict[tuple[str, str], dg.AssetCheckEvaluation]
    )
    made: dict[dg.AssetKey, dg.AssetMaterialization] = field(default_factory=dict[dg.AssetKey, dg.AssetMaterialization])

    def automate(self) -> list[dg.AssetKey]:
        """Evaluate the automation conditions as the daemon would, and return the assets that they request."""
        whole = definitions_of_whole_tables()
        evaluated = dg.evaluate_automation_conditions(
            defs=whole, instance=self.instance, cursor=self.cursor, asset_selection=automation_sensor.asset_selection
        )
        self.cursor = evaluated.cursor
        keys = [spec.key for spec in whole.resolve_all_asset_specs() if spec.automation_condition]
        return [key for key in keys if evaluated.get_num_requested(key)]

    def sense(self) -> Sequence[dg.RunRequest]:
        """Evaluate the sensor on its stored cursor, as the daemon would."""
        name = f"ratify-demo/{landed_files_sensor.name}"
        stored = self.instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
        resources = {"landing": LandingZone(), "duckdb": DuckDB(catalog=UnityCatalog())}
        with dg.build_sensor_context(
            instance=self.instance, cursor=stored, resources=resources, definitions=code_location().defs
        ) as context:
            tick = landed_files_sensor.evaluate_tick(context)
        if tick.cursor:
            self.instance.daemon_cursor_storage.set_cursor_values({name: tick.cursor})
        progress(tick.skip_message or f"the sensor requests {counted(len(tick.run_requests or []), 'run')}")
        return tick.run_requests or []

    def run(
        self,
        job: str,
        what: str,
        keys: Sequence[dg.AssetKey],
        request: dg.RunRequest | None = None,
        *,
        checks: Sequence[dg.AssetCheckKey] = (),
    ) -> None:
        """Run a job for some assets, with their checks, or for checks alone, and record what it made, failed and found."""
        run_id = str(uuid4())
        self.instance.add_event_listener(run_id, partial(_show_table, set()))
        config, tags = (request.run_config, request.tags) if request else ({}, {})
        with phase(progress, f"running {what}"):
            run = run_job(self.instance, code_location(), job, keys, checks=checks, run_id=run_id, config=config, tags=tags)
        failed = [event for event in run.all_events if event.is_step_failure]
        self.failed_steps += [f"{event.step_key or what}: {failure_of_step(event)}" for event in failed]
        for event in run.get_asset_materialization_events():
            made = event.step_materialization_data.materialization
            self.made[made.asset_key] = made
        for check in run.get_asset_check_evaluations():
            self.checks[".".join(check.asset_key.path[-2:]), check.check_name] = check

    def bring_up_to_date(self) -> None:
        """Run what the sensor requests, and what the automation conditions request then."""
        for number, request in enumerate(self.sense(), 1):
            self.run(job_named("ingest"), f"load batch {number} up to gold", request.asset_selection or [], request)
        self.materialize_requested()

    def materialize_requested(self) -> None:
        """Materialize what the automation conditions request, until they request nothing more or a step fails."""
        # Evaluated again after each run, as the daemon does, because the condition has to see its request fulfilled.
        while keys := self.automate():
            partitioned = [key for key in keys if key in declared_tables().partitioned]
            if others := [key for key in keys if key not in partitioned]:
                self.run(job_named("medallion"), ", ".join(key.path[-1] for key in others), others)
            for key in partitioned:
                if self.failed_steps:
                    return
                self.run(ANY_JOB, key.path[-1], [key], dg.RunRequest(tags=dict(whole_run_tags(key))))
            if self.failed_steps:
                return


def _show_table(divided: set[dg.AssetKey], entry: dg.EventLogEntry) -> None:
    """Print a table that a run has materialized; `divided` are those with partitions that were printed."""
    event = entry.dagster_event
    if event and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
        made = event.step_materialization_data.materialization
        rows, seconds = (made.metadata.get(name) for name in ("dagster/row_count", "seconds"))
        if made.partition:
            # One commit writes them all; its numbers may stand at the last one, or at each.
            if not rows or made.asset_key in divided:
                return
            divided.add(made.asset_key)
        number = f": {counted(int(str(rows.value)), 'row')}" if rows else ""
        took = f", {float(str(seconds.value)):.1f} s" if seconds else ""
        progress(f"  {'.'.join(made.asset_key.path[-2:])}{number}{took}")


def count_rows(opened: Engines, *tables: TableDeclaration) -> list[int]:
    """Return how many rows each table has, by DuckDB."""
    with opened.duckdb.session() as duckdb:
        return [duckdb.count(table) for table in tables]


def show_tables(opened: Engines, tables: Sequence[TableDeclaration]) -> None:
    """Print the tables' rows and versions, and which engines made their commits."""
    shown = list[dict[str, Any]]()
    for declaration, rows in zip(tables, count_rows(opened, *tables), strict=True):
        full_name = declaration.full_name(opened.catalog.connection.name)
        commits = list(opened.spark.recent_commits(full_name, EVERY_COMMIT))
        by_engine = Counter(commit.engine.value for commit in commits)
        shown.append(
            {
                "table": full_name,
                "rows": rows,
                "version": commits[0].version,
                "commits": ", ".join(f"{engine} {count}" for engine, count in by_engine.most_common()),
                "last commit": f"{commits[0].engine} {commits[0].operation}",
            }
        )
    show("Tables", shown)


def maintain(runs: RecordedRuns, tables: Sequence[TableDeclaration]) -> None:
    """Compact tables by the job `maintenance`, though their files may be few, and print what that changes."""
    maintained = {table.declaration.table_name for table in declared_tables().maintained.values()}
    with phase(progress, "maintaining the tables"):
        names = [table.table_name for table in tables if table.table_name in maintained]
        run = run_maintenance(runs.instance, names, below_thresholds=True)
    if not run.success:
        runs.failed_steps.append(f"maintenance: {failure_of(run)}")
    else:
        # What they asked for is done.
        runs.checks = {key: check for key, check in runs.checks.items() if key[1] != MAINTAINED}
    rows = [{name: row[name] for name in row if name != "why"} for row in maintenance_rows(runs.instance, run.run_id)]
    show("Maintenance: small files become larger ones, and no row changes", rows, counts={"files before", "files after"})


def show_checks(runs: RecordedRuns, by_design: Container[tuple[str, str]], expected: str = "failed by design") -> None:
    """Print how many checks passed, and those that failed as expected.

    Args:
        runs: Their checks.
        by_design: The checks, by table and name, whose failure is no fault, such as those that wrong data makes warn.
        expected: Heading of their column.
    """
    by_table: dict[str, list[tuple[bool, dg.AssetCheckEvaluation]]] = {}
    for key, check in runs.checks.items():
        by_table.setdefault(key[0], []).append((key in by_design and not check.passed, check))
    rows = list[dict[str, str]]()
    for table, checks in by_table.items():
        passed = [check.passed for wanted, check in checks if not wanted]
        rows.append(
            {
                "table": table,
                "checks passed": f"{sum(passed)} of {len(passed)}",
                expected: ", ".join(check.check_name for wanted, check in checks if wanted),
                "of note": next((c.description or "" for _, c in checks if c.check_name in _OF_NOTE), ""),
            }
        )
    show("Checks", rows)


def faults_of(runs: RecordedRuns, by_design: Container[tuple[str, str]]) -> list[str]:
    """Return the steps and checks that failed; `by_design` as `show_checks` has it."""
    return [f"step failed: {step} (`ratify dev` shows its log)" for step in runs.failed_steps] + [
        f"check failed: {table}.{name}: {check.description}"
        for (table, name), check in runs.checks.items()
        if not check.passed and (table, name) not in by_design
    ]


def warnings_of(runs: RecordedRuns) -> Mapping[tuple[str, str], str]:
    """Return what the checks found that failed and only warn, by table and name."""
    return {
        (table, name): f"{table}.{name}: {check.description}"
        for (table, name), check in runs.checks.items()
        if not check.passed and check.severity is dg.AssetCheckSeverity.WARN
    }


def report(faults: Sequence[str], done: str, warnings: Iterable[str] = ()) -> bool:
    """Print warnings and faults, or `done` if there are no faults, and return whether there are none."""
    passed = show_findings(faults, warnings)
    if passed:
        out.print(styled(done, "green", " See it in the Dagster UI: `ratify dev`"))
    return passed


_OF_NOTE = {"rows_reconciled", "files_loaded_once", "records_reconciled", "offsets_once"}
