"""The run of `ratify reprocess`, through Dagster."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import dagster as dg

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.job_run import failure_of, run_job
from ratify_lakehouse.cli.terminal_output import progress
from ratify_lakehouse.definitions.project_definitions import code_location
from ratify_lakehouse.definitions.reprocess_job import (
    checked_days,
    checks_of,
    chosen_tables,
    reprocess_checks_job,
    reprocess_days,
)
from ratify_lakehouse.embedded.phase_progress import phase
from ratify_lakehouse.errors import TerminalError
from ratify_lakehouse.wording import counted

_NUMBERS = ("rows inserted", "rows updated", "rows deleted")


class ReprocessFailed(TerminalError):
    """The run failed; the tables that it has computed stay, and it may be repeated."""


def run_reprocess(first: str, last: str, tables: Sequence[str]) -> list[dict[str, Any]]:
    """Compute days again, and return what that changed, by table.

    The checks of these tables follow in a run of their own.

    Raises:
        PartitionMissing: there is no such day.
        NotConfigured: there is no such table, or none with days.
        ReprocessFailed: the run failed, or a check found a fault.
    """
    checked_days(first, last)
    checks = checks_of(chosen_tables(tables))
    config = {"ops": {reprocess_days.name: {"config": {"first": first, "last": last, "tables": list(tables)}}}}
    tags = {"dagster/partition": first} if first == last else {}
    run_id = str(uuid4())
    with dagster_instance() as instance:
        instance.add_event_listener(run_id, _show_table)
        run = run_job(instance, code_location(), "reprocess", [], run_id=run_id, config=config, tags=tags)
        if not run.success:
            raise ReprocessFailed(failure_of(run))
        with phase(progress, f"running {counted(len(checks), 'check')} of these tables"):
            checked = run_job(instance, code_location(), reprocess_checks_job.name, [], checks=checks)
    raise_if_faulty(checked, len(checks))
    changed = dict[str, dict[str, Any]]()
    for event in run.all_events:
        if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
            made = event.step_materialization_data.materialization
            if _NUMBERS[0] in made.metadata:
                changed[".".join(made.asset_key.path[-2:])] = _row(made)
    return [{"table": name, **row} for name, row in changed.items()]


def _row(made: dg.AssetMaterialization) -> dict[str, Any]:
    numbers = {name: made.metadata[name].value for name in _NUMBERS if name in made.metadata}
    strategy = made.metadata.get("strategy")
    return {
        **{name: numbers.get(name, 0) for name in _NUMBERS},
        "version": made.metadata["Delta version"].value,
        "strategy": strategy.value if strategy else "full",
    }


def raise_if_faulty(run: dg.JobExecutionResult | dg.ExecuteInProcessResult, expected: int) -> None:
    """Raise `ReprocessFailed` where a check that is more than a warning failed, or one did not end."""
    found = run.get_asset_check_evaluations()
    if not run.success or len(found) < expected:
        raise ReprocessFailed(f"The tables are computed, but not all of their checks finished: {failure_of(run)}")
    faults = [check for check in found if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR]
    if faults:
        texts = (f"{'.'.join(check.asset_key.path[-2:])}, {check.check_name}: {check.description}" for check in faults)
        raise ReprocessFailed("\n".join(["The tables are computed, but checks failed:", *texts]))


def _show_table(entry: dg.EventLogEntry) -> None:
    """Print a table when it has been computed."""
    event = entry.dagster_event
    if event and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
        made = event.step_materialization_data.materialization
        progress(f"  {'.'.join(made.asset_key.path[-2:])}{f', {made.partition}' if made.partition else ''}")
