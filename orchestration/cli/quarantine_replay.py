"""`ratify replay`: records in quarantine are validated again, by corrected values where there are such."""

from pathlib import Path
from typing import Annotated

import dagster as dg
import typer

from assets.silver.tracker_tables import QUARANTINE, TRACKER_EVENTS
from components.table_asset import asset_key
from orchestration.cli import cli_session
from orchestration.definitions import defs
from orchestration.jobs import events_job
from resources.errors import TerminalError

REPLAYED = {f"{TRACKER_EVENTS.layer}.{TRACKER_EVENTS.name}": TRACKER_EVENTS}
"""The tables that have a quarantine, by name."""


def replay(
    table: Annotated[str, typer.Argument(help=f"schema.table: {', '.join(REPLAYED)}.")],
    corrections: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON lines: topic, partition, offset, and value or value_base64."),
    ] = None,
    as_json: cli_session.Json = False,
) -> None:
    """Bring a table up to date, then validate what is in its quarantine again; what passes goes in, exactly once."""
    declaration = REPLAYED.get(table)
    if declaration is None:
        raise typer.BadParameter(f"{table} has no quarantine to replay: choose from {', '.join(REPLAYED)}.")
    key = asset_key(declaration)
    config = {"replay": True, "corrections": str(corrections.absolute()) if corrections else ""}
    with cli_session.dagster_instance() as instance:
        done = defs.resolve_job_def(events_job.name).execute_in_process(
            instance=instance,
            asset_selection=[key, asset_key(QUARANTINE)],
            run_config={"ops": {declaration.name: {"config": config}}, **cli_session.QUIET},
            tags=cli_session.process_tag(),
            raise_on_error=False,
        )
    if not done.success:
        raise ReplayFailed(_reason(done))
    (event,) = [found for found in done.get_asset_materialization_events() if found.asset_key == key]
    said = event.step_materialization_data.materialization.metadata
    cli_session.show(f"Replayed into {table}", [{name: said[name].value for name in _SHOWN}], as_json=as_json)


_SHOWN = ("replayed", "replayed into silver", "dagster/row_count", "Delta version")


class ReplayFailed(TerminalError):
    """The run of a replay failed; what it had committed stays, and it may be run again."""


def _reason(done: dg.ExecuteInProcessResult) -> str:
    failed = [event.step_failure_data.error for event in done.all_node_events if event.is_step_failure]
    causes = [error.cause or error for error in failed if error]
    return causes[0].message.strip() if causes else "the run failed; its log says why"
