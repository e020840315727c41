"""The run of `ratify demo`: the main job on real data, through Dagster, and a report of it."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.engine_session import Engines, engines
from ratify_lakehouse.cli.job_run import close_dead_runs
from ratify_lakehouse.cli.recorded_runs import (
    RecordedRuns,
    count_rows,
    faults_of,
    maintain,
    report,
    show_checks,
    show_tables,
)
from ratify_lakehouse.cli.sample_flights import day_path, land_days, landed_days, next_day, write
from ratify_lakehouse.cli.terminal_output import out, show, styled
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_definitions import code_location
from ratify_lakehouse.definitions.project_tables import declared_tables, sources
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.ledger.ledger_queries import latest_entries
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import LAYERS, Settings
from ratify_lakehouse.wording import counted

_FLIGHTS_RAW, _FLIGHTS = "bronze.flights_raw", "silver.flights"
_REFUSED = (_FLIGHTS_RAW, "files_accepted")
"""The check that one file of the second landing, which is cut off, makes fail."""


def _flights_raw() -> Source:
    """The landed flights."""
    (found,) = [source for source in sources() if source.table_name == _FLIGHTS_RAW]
    return found


def _tables() -> list[TableDeclaration]:
    """Every table from landed files, bronze to gold, and the ledger of the files."""
    job = code_location().defs.resolve_job_def("medallion")
    keys = {*job.asset_layer.executable_asset_keys, *declared_tables().partitioned}
    found = [table for table in declared_tables().declarations.values() if asset_key(table) in keys]
    return [*sorted(found, key=lambda table: LAYERS.index(table.layer)), LANDED_FILES]


def run_demo(days: int, more: int) -> bool:
    """Run the demo; return whether every step and check passed, but for the one that warns of the refused file."""
    landing = Settings().landing
    with engines() as opened, dagster_instance() as instance:
        opened.catalog.ensure_schemas(LAYERS)
        runs = RecordedRuns(instance)
        close_dead_runs(instance)
        # What a killed run left behind. The conditions compare with this evaluation, so it comes before anything lands.
        runs.materialize_requested()
        existing = len(landed_days(landing))
        first = land_days(landing, days - existing)
        earlier = f", after {existing} that an earlier demo landed" if existing else ""
        out.print(styled(f"1. Landed {_summary(first)}", "bold", f" in {landing}{earlier}"))
        runs.bring_up_to_date()
        if runs.failed_steps:
            # The tables that it would have made may be missing.
            return _passed(faults_of(runs, {_REFUSED}))
        before = count_rows(opened, _flights_raw().table)[0]
        second = land_days(landing, more)
        repeated, broken = _repeat_a_day(landing), _land_broken(landing)
        again = f", {repeated} a second time, and {broken}, which is cut off"
        out.print(styled(f"2. Landed {_summary(second)}", "bold", again))
        runs.bring_up_to_date()
        if runs.failed_steps:
            return _passed(faults_of(runs, {_REFUSED}))
        after = count_rows(opened, _flights_raw().table)[0]
        show_tables(opened, [*_tables(), *(sync.sync.table for sync in declared_tables().syncs.values())])
        fates = _fates(opened, [path for path, _ in second], repeated, broken)
        show("Files of the second landing", fates)
        maintain(runs, _tables())
        show_checks(runs, {_REFUSED})
        wanted = ["loaded"] * len(second) + ["repeated", "refused"]
        new_rows = sum(rows for _, rows in second)
        faults = _faults(
            runs,
            files_as_wanted=[fate["status"] for fate in fates] == wanted,
            rows_as_wanted=after - before == new_rows,
            in_silver=_rows_in_silver(opened, [path for path, _ in second]) == new_rows,
        )
    return _passed(faults)


def _passed(faults: Sequence[str]) -> bool:
    return report(faults, "Every step and check passed, except for the refused file.")


def _faults(runs: RecordedRuns, *, files_as_wanted: bool, rows_as_wanted: bool, in_silver: bool) -> list[str]:
    faults = faults_of(runs, {_REFUSED})
    refused = runs.checks.get(_REFUSED)
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
    (flights,) = [table for table in declared_tables().declarations.values() if table.table_name == _FLIGHTS]
    silver = opened.spark.table(flights)
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


def _fates(opened: Engines, second: Sequence[str], repeated: str, broken: str) -> list[dict[str, Any]]:
    """The last ledger entry of each file of the second landing, in the given order."""
    with opened.duckdb.session() as session:
        found = latest_entries(session, _flights_raw(), [*second, repeated, broken])
    last = {path: {"status": e.status, "rows": e.rows, "reason": e.reason} for path, e in found.items()}
    missing = {"status": "missing", "rows": 0, "reason": ""}
    return [{"file": path, **last.get(path, missing)} for path in (*second, repeated, broken)]
