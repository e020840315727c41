"""The run of `ratify replay`, through Dagster."""

from pathlib import Path
from typing import Any

import dagster as dg
import typer

from assets.silver.tracker_tables import QUARANTINE, TRACKER_EVENTS
from components.table_asset import asset_key, step_name
from orchestration.cli.dagster_session import QUIET, dagster_instance, process_tag
from orchestration.definitions import defs
from orchestration.jobs import events_job
from resources.errors import TerminalError

REPLAYED = {TRACKER_EVENTS.table_name: TRACKER_EVENTS}
"""The tables that have a quarantine, by name."""

_SHOWN = ("replayed", "replayed into silver", "dagster/row_count", "Delta version")


class ReplayFailed(TerminalError):
    """The run of a replay failed; what it committed stays, and the replay may be repeated."""


def run_replay(table: str, corrections: Path | None) -> dict[str, Any]:
    """Replay a table's quarantine and return the numbers of its materialization.

    Raises:
        typer.BadParameter: the table has no quarantine.
        ReplayFailed: the run failed.
    """
    declaration = REPLAYED.get(table)
    if declaration is None:
        raise typer.BadParameter(f"{table} has no quarantine to replay: choose from {', '.join(REPLAYED)}.")
    key = asset_key(declaration)
    config = {"replay": True, "corrections": str(corrections.absolute()) if corrections else ""}
    with dagster_instance() as instance:
        run = defs.resolve_job_def(events_job.name).execute_in_process(
            instance=instance,
            asset_selection=[key, asset_key(QUARANTINE)],
            run_config={"ops": {step_name(declaration): {"config": config}}, **QUIET},
            tags=process_tag(),
            raise_on_error=False,
        )
    if not run.success:
        raise ReplayFailed(_reason(run))
    (event,) = [found for found in run.get_asset_materialization_events() if found.asset_key == key]
    metadata = event.step_materialization_data.materialization.metadata
    return {name: metadata[name].value for name in _SHOWN}


def _reason(run: dg.ExecuteInProcessResult) -> str:
    failed = [event.step_failure_data.error for event in run.all_node_events if event.is_step_failure]
    causes = [error.cause or error for error in failed if error]
    return causes[0].message.strip() if causes else "the run failed; its log says why"
