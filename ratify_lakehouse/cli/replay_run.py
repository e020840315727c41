"""The run of `ratify replay`, through Dagster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.engine_session import engines
from ratify_lakehouse.cli.job_run import failure_of, run_job
from ratify_lakehouse.cli.terminal_output import progress
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration
from ratify_lakehouse.components.syncs.sync_engines import replayed
from ratify_lakehouse.components.table_asset import asset_key, step_name
from ratify_lakehouse.definitions.project_definitions import code_location, job_named
from ratify_lakehouse.definitions.project_tables import event_stream
from ratify_lakehouse.embedded.file_locks import exclusive
from ratify_lakehouse.errors import TerminalError
from ratify_lakehouse.settings import Settings

_SHOWN = ("replayed", "replayed into the table", "dagster/row_count", "Delta version")


class ReplayFailed(TerminalError):
    """The run of a replay failed; what it committed stays, and the replay may be repeated."""


@dataclass(frozen=True)
class Replayed:
    """The table whose quarantine was replayed, and the numbers of its materialization."""

    table: str
    numbers: dict[str, Any]


def replay_sync(sync: SyncDeclaration) -> dict[str, int]:
    """Write the dead letters of a sync that fit now, and return how many these were, and how many wait.

    It waits for another replay of the sync on this machine. Two at once, of which one has a corrected declaration, would
    not agree on what fits: what one has just written, the other would take for rows that wait.

    Raises:
        As `replayed`.
    """
    lock = Settings().home / "syncs" / f"{sync.name}.replay.lock"
    with exclusive(lock, progress, f"another replay of {sync.name}"), engines() as opened:
        found = replayed(opened.spark, opened.duckdb, sync)
    return {"replayed": found.replayed, "waiting": found.waiting}


def run_replay(table: str, corrections: Path | None) -> Replayed:
    """Replay the quarantine of a table, by default of the only one that has a stream.

    Raises:
        NotConfigured: there is no such table, or there are several and none is named.
        ReplayFailed: the run failed.
    """
    stream = event_stream(table)
    key = asset_key(stream.table)
    config = {"replay": True, "corrections": str(corrections.absolute()) if corrections else ""}
    with dagster_instance() as instance:
        keys = [asset_key(written) for written in stream.written]
        configured = {"ops": {step_name(stream.table): {"config": config}}}
        run = run_job(instance, code_location(), job_named("events"), keys, config=configured)
    if not run.success:
        raise ReplayFailed(failure_of(run))
    (event,) = [found for found in run.get_asset_materialization_events() if found.asset_key == key]
    metadata = event.step_materialization_data.materialization.metadata
    return Replayed(stream.name, {name: metadata[name].value for name in _SHOWN})
