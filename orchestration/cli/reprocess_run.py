"""The run of `ratify reprocess`, through Dagster."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import dagster as dg

from orchestration import definitions
from orchestration.cli.dagster_session import dagster_instance
from orchestration.cli.job_run import failure_of, run_job
from orchestration.cli.terminal_output import progress
from orchestration.reprocess_job import checked_days, chosen_tables, reprocess_days
from resources.errors import TerminalError

_NUMBERS = ("rows inserted", "rows updated", "rows deleted")


class ReprocessFailed(TerminalError):
    """The run failed; the tables that it has computed stay, and it may be repeated."""


def run_reprocess(first: str, last: str, tables: Sequence[str]) -> list[dict[str, Any]]:
    """Compute days again, and return what that changed, by table.

    Raises:
        PartitionMissing: there is no such day.
        NotConfigured: there is no such table, or none with days.
        ReprocessFailed: the run failed.
    """
    checked_days(first, last)
    chosen_tables(tables)
    config = {"ops": {reprocess_days.name: {"config": {"first": first, "last": last, "tables": list(tables)}}}}
    tags = {"dagster/partition": first} if first == last else {}
    run_id = str(uuid4())
    with dagster_instance() as instance:
        instance.add_event_listener(run_id, _show_table)
        run = run_job(instance, definitions, "reprocess", [], run_id=run_id, config=config, tags=tags)
    if not run.success:
        raise ReprocessFailed(failure_of(run))
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


def _show_table(entry: dg.EventLogEntry) -> None:
    """Print a table when it has been computed."""
    event = entry.dagster_event
    if event and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
        made = event.step_materialization_data.materialization
        progress(f"  {'.'.join(made.asset_key.path[-2:])}{f', {made.partition}' if made.partition else ''}")
