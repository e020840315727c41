"""`ratify reprocess`: days are computed again, in every table that is made of bronze."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, show


def reprocess(
    day: Annotated[str, typer.Argument(help="The day, as 2013-01-31.")],
    last: Annotated[str, typer.Option("--to", help="The last of several days.", show_default=False)] = "",
    table: Annotated[list[str] | None, typer.Option(help="Only this table, as schema.table; may be given again.")] = None,
    as_json: Json = False,
) -> None:
    """Compute the rows of a day again, from bronze on, and show what changed."""
    from ratify_lakehouse.cli.reprocess_run import run_reprocess

    days = f"{day} to {last}" if last else day
    show(f"Computed again: {days}", run_reprocess(day, last or day, table or []), as_json=as_json)
