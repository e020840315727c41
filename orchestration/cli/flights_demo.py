"""The run of `ratify demo`: the main job on real data, through Dagster, and a report of it."""

import datetime as dt
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import dagster as dg

from assets.bronze.landed_sources import FLIGHTS_RAW
from assets.silver.silver_flights import FLIGHTS
from assets.table_checks import FROM_FILES
from ingest.ledger.file_ledger import LANDED_FILES
from ingest.ledger.ledger_queries import latest_entries
from orchestration.automation_sensor import automation_sensor
from orchestration.cli.dagster_session import QUIET, close_dead_runs, dagster_instance, process_tag
from orchestration.cli.engine_session import Engines, engines
from orchestration.cli.sample_flights import day_path, land_days, landed_days, next_day, write
from orchestration.cli.terminal_output import err, out, progress, runnable, show
from orchestration.definitions import defs
from orchestration.sensors.landed_files_sensor import landed_files_sensor
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import TableDeclaration
from resources.duckdb.duckdb_engine import DuckDB
from resources.landing.landing_zone import LandingZone
from resources.settings import LAYERS, Settings
from resources.wording import counted

_REFUSED = (FLIGHTS_RAW.table_name, "files_accepted")
"""The check that one file of the second landing, which is cut off, makes fail."""


@dataclass
class Demo:
    """One demo: the Dagster instance that it runs on, and the results of its runs."""

    instance: dg.DagsterInstance
    cursor: Any = None
    failed_steps: list[str] = field(default_factory=list[str])
    checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = field(
        default_factory=dict[tuple[str, str], dg.AssetCheckEvaluation]
    )

    def automate(self) -> list[dg.AssetKey]:
        """Evaluate the automation conditions as the daemon would, and return the assets that they request."""
        evaluated = dg.evaluate_automation_conditions(
            defs=defs, instance=self.instance, cursor=self.cursor, asset_selection=automation_sensor.asset_selection
        )
        self.cursor = evaluated.cursor
        keys = [spec.key for spec in defs.resolve_all_asset_specs() if spec.automation_condition]
        return [key for key in keys if evaluated.get_num_requested(key)]

    def sense(self) -> Sequence[dg.RunRequest]:
        """Evaluate the sensor on its stored cursor, as the daemon would."""
        name = f"ratify-demo/{landed_files_sensor.name}"
        stored = self.instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
        resources = {"landing": LandingZone(), "duckdb": DuckDB(catalog=UnityCatalog())}
        with dg.build_sensor_context(
            instance=self.instance, cursor=stored, resources=resources, definitions=defs
        ) as context:
            tick = landed_files_sensor.evaluate_tick(context)
        if tick.cursor:
            self.instance.daemon_cursor_storage.set_cursor_values({name: tick.cursor})
        progress(tick.skip_message or f"the sensor requests {counted(len(tick.run_requests or []), 'run')}")
        return tick.run_requests or []

    def run(self, job: str, what: str, keys: Sequence[dg.AssetKey], request: dg.RunRequest | None = None) -> None:
        """Run a job for some assets, with their checks, and record which steps failed and what the checks found."""
        progress(f"running {what}")
        run_id = str(uuid4())
        self.instance.add_event_listener(run_id, _show_table)
        run = defs.resolve_job_def(job).execute_in_process(
            run_config={**(request.run_config if request else {}), **QUIET},
            asset_selection=list(keys),
            tags={**(request.tags if request else {}), **process_tag()},
            instance=self.instance,
            run_id=run_id,
            raise_on_error=False,
        )
        self.failed_steps += [event.step_key or what for event in run.all_events if event.is_step_failure]
        for check in run.get_asset_check_evaluations():
            self.checks[".".join(check.asset_key.path[-2:]), check.check_name] = check

    def bring_up_to_date(self) -> None:
        """Load what the sensor finds, and carry it to gold by the automation conditions."""
        for number, request in enumerate(self.sense(), 1):
            self.run("ingest", f"load batch {number}", request.asset_selection or [], request)
        self.materialize_requested()

    def materialize_requested(self) -> None:
        """Materialize what the automation conditions request, until they request nothing more or a step fails."""
        # Evaluated again after each run, as the daemon does, because the condition has to see its request fulfilled.
        while keys := self.automate():
            self.run("medallion", ", ".join(key.path[-1] for key in keys), keys)
            if self.failed_steps:
                return


def _show_table(entry: dg.EventLogEntry) -> None:
    """Print a table that a run has materialized."""
    event = entry.dagster_event
    if event and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
        made = event.step_materialization_data.materialization
        rows = made.metadata.get("dagster/row_count")
        number = f": {counted(int(str(rows.value)), 'row')}" if rows else ""
        progress(f"  {'.'.join(made.asset_key.path[-2:])}{number}")


def run_demo(days: int, more: int) -> bool:
    """Run the demo; return whether every step and check passed, but for the one that warns of the refused file."""
    landing = Settings().landing
    with engines() as opened, dagster_instance() as instance:
        opened.catalog.ensure_schemas(LAYERS)
        demo = Demo(instance)
        close_dead_runs(instance)
        # What a killed run left behind. The conditions compare with this evaluation, so it comes before anything lands.
        demo.materialize_requested()
        existing = len(landed_days(landing))
        first = land_days(landing, days - existing)
        earlier = f", after {existing} that an earlier demo landed" if existing else ""
        out.print(f"[bold]1. Landed {_summary(first)}[/bold] in {landing}{earlier}", highlight=False)
        demo.bring_up_to_date()
        if demo.failed_steps:
            # The tables that it would have made may be missing.
            return _passed(_failed(demo))
        before = _rows(opened, FLIGHTS_RAW.table)[0]
        second = land_days(landing, more)
        repeated, broken = _repeat_a_day(landing), _land_broken(landing)
        out.print(
            f"[bold]2. Landed {_summary(second)}[/bold], {repeated} a second time, and {broken}, which is cut off",
            highlight=False,
        )
        demo.bring_up_to_date()
        if demo.failed_steps:
            return _passed(_failed(demo))
        after = _rows(opened, FLIGHTS_RAW.table)[0]
        show_tables(opened, (*FROM_FILES, LANDED_FILES))
        fates = _fates(opened, [path for path, _ in second], repeated, broken)
        show("Files of the second landing", fates)
        show_checks(demo, {_REFUSED})
        wanted = ["loaded"] * len(second) + ["repeated", "refused"]
        new_rows = sum(rows for _, rows in second)
        faults = _faults(
            demo,
            files_as_wanted=[fate["status"] for fate in fates] == wanted,
            rows_as_wanted=after - before == new_rows,
            in_silver=_rows_in_silver(opened, [path for path, _ in second]) == new_rows,
        )
    return _passed(faults)


def _passed(faults: Sequence[str]) -> bool:
    """Print the faults, or that there are none, and return whether there are none."""
    for fault in faults:
        err.print(f"[red]{fault}[/red]", highlight=False)
    if not faults:
        done = "[green]Every step and check passed, but for the refused file.[/green]"
        out.print(runnable(f"{done} See it in the Dagster UI: `ratify dev`"), highlight=False)
    return not faults


def _failed(demo: Demo) -> list[str]:
    """Return the steps and checks that failed, without the one that warns of the refused file."""
    failed = {key: check for key, check in demo.checks.items() if not check.passed and key != _REFUSED}
    return [f"step failed: {step}; ratify dev shows its log" for step in demo.failed_steps] + [
        f"check failed: {table}.{name}: {check.description}" for (table, name), check in failed.items()
    ]


def _faults(demo: Demo, *, files_as_wanted: bool, rows_as_wanted: bool, in_silver: bool) -> list[str]:
    faults = _failed(demo)
    refused = demo.checks.get(_REFUSED)
    if not files_as_wanted:
        faults.append("the files of the second landing do not have the expected results")
    if not rows_as_wanted:
        faults.append("bronze did not grow by exactly the rows of the new files")
    if refused is None or refused.passed:
        faults.append("the file that is cut off is not reported as refused")
    if not in_silver:
        faults.append("the new files' flights are not all in silver")
    return faults


def _rows_in_silver(opened: Engines, paths: Sequence[str]) -> int:
    silver = opened.spark.table(FLIGHTS)
    return silver.where(silver["_source_file"].isin(list(paths))).count()


def _summary(written: Sequence[tuple[str, int]]) -> str:
    trips = [rows for path, rows in written if path.startswith("trips/")]
    return f"{counted(len(trips), 'day')} ({counted(sum(trips), 'flight')})"


def _repeat_a_day(landing: str) -> str:
    day = landed_days(landing)[0]
    zone = LandingZone(url=landing)
    write(landing, day_path(day), zone.read(day_path(day)))
    return day_path(day)


def _land_broken(landing: str) -> str:
    """Land the first half of the next day under another name; the whole day can still land later."""
    day, content = next_day(landing)
    path = day_path(day).replace(".csv", f"-cut-off-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}.csv")
    write(landing, path, content[: len(content) // 2].rstrip(b"\n"))
    return path


def _rows(opened: Engines, *tables: TableDeclaration) -> list[int]:
    with opened.duckdb.session() as duckdb:
        return [duckdb.count(table) for table in tables]


def show_tables(opened: Engines, tables: Sequence[TableDeclaration]) -> None:
    """Print the tables' rows and versions, and which engines made their commits."""
    shown = list[dict[str, Any]]()
    for declaration, rows in zip(tables, _rows(opened, *tables), strict=True):
        full_name = declaration.full_name(opened.catalog.connection.name)
        commits = opened.spark.history(full_name)
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


def _fates(opened: Engines, second: Sequence[str], repeated: str, broken: str) -> list[dict[str, Any]]:
    """The last ledger entry of each file of the second landing, in the given order."""
    with opened.duckdb.session() as session:
        found = latest_entries(session, FLIGHTS_RAW, [*second, repeated, broken])
    last = {path: {"status": e.status, "rows": e.rows, "reason": e.reason} for path, e in found.items()}
    missing = {"status": "missing", "rows": 0, "reason": ""}
    return [{"file": path, **last.get(path, missing)} for path in (*second, repeated, broken)]


def show_checks(demo: Demo, by_design: Container[tuple[str, str]]) -> None:
    """Print how many checks passed, and those that failed.

    Args:
        demo: Its checks.
        by_design: The checks, by table and name, that data which is wrong on purpose makes fail.
    """
    by_table: dict[str, list[tuple[bool, dg.AssetCheckEvaluation]]] = {}
    for key, check in demo.checks.items():
        by_table.setdefault(key[0], []).append((key in by_design and not check.passed, check))
    rows = list[dict[str, str]]()
    for table, checks in by_table.items():
        passed = [check.passed for wanted, check in checks if not wanted]
        rows.append(
            {
                "table": table,
                "checks passed": f"{sum(passed)} of {len(passed)}",
                "failed by design": ", ".join(check.check_name for wanted, check in checks if wanted),
                "of note": next((c.description or "" for _, c in checks if c.check_name in _OF_NOTE), ""),
            }
        )
    show("Checks", rows)


_OF_NOTE = {"rows_reconciled", "csv_rows_in_bronze", "records_reconciled", "offsets_once"}
