"""`ratify replay`: records in quarantine are validated again, with corrected values where there are any."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal_output import Json, show


def replay(
    table: Annotated[
        str, typer.Argument(help="schema.table of a StreamTable; by default the only one.", show_default=False)
    ] = "",
    corrections: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON lines: topic, partition, offset, and value or value_base64."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a table up to date, then validate its quarantine again; rows that pass are added, exactly once."""
    from orchestration.cli.replay_run import run_replay

    replayed = run_replay(table, corrections)
    show(f"Replayed into {replayed.table}", [replayed.numbers], as_json=as_json)
