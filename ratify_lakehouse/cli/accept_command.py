"""`ratify accept`: load a file that was refused, as its table's declaration is now, or with what does not fit rescued."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, progress, show, show_findings


def accept(
    file: Annotated[str, typer.Argument(help="Its path in the landing zone, such as orders/1.csv.")],
    rescue: Annotated[
        bool, typer.Option("--rescue", help="Declare `rescue: true` for the table, so that values that do not fit are kept.")
    ] = False,
    as_declared: Annotated[
        bool, typer.Option("--as-declared", help="Load it by the present declaration; the default.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load a file that was refused: it is moved back, and its table is run. Exit code 1: it is refused again."""
    from ratify_lakehouse.cli.file_acceptance import accept_file

    if rescue and as_declared:
        raise typer.BadParameter("give either --rescue or --as-declared.", param_hint="--rescue, --as-declared")
    found = accept_file(file, rescue=rescue)
    if found.declared:
        progress(f"`rescue: true` is now in {found.declared}")
    show("Accepted", [found.row], as_json=as_json)
    if not show_findings(found.faults):
        raise typer.Exit(1)
