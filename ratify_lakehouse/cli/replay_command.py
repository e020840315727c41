"""`ratify replay`: records in quarantine, and dead letters of a sync, are tried again."""

from pathlib import Path
from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, show


def replay(
    table: Annotated[
        str,
        typer.Argument(
            help="schema.table of a StreamTable, or a sync; by default the only StreamTable.", show_default=False
        ),
    ] = "",
    corrections: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON lines: topic, partition, offset, and value or value_base64."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a table up to date, then validate its quarantine again; rows that pass are added, exactly once.

    Of a sync, write the dead letters that fit now.
    """
    from ratify_lakehouse.cli.replay_run import replay_sync, run_replay
    from ratify_lakehouse.definitions.project_tables import declared_tables

    if sync := declared_tables().syncs.get(table):
        if corrections:
            raise typer.BadParameter(
                "--corrections is only for streams: for dead letters, change the declaration or the destination."
            )
        show(f"Dead letters of {table}", [replay_sync(sync.sync)], as_json=as_json)
        return
    replayed = run_replay(table, corrections)
    show(f"Replayed into {replayed.table}", [replayed.numbers], as_json=as_json)
