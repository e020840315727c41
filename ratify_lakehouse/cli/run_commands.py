"""`ratify run` and `ratify check`: tables and syncs, as the UI materializes and checks them, with the result as a table."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, show, show_findings

Named = Annotated[list[str], typer.Argument(help="Tables, as schema.table, and syncs, as syncs.name.")]


def run(
    tables: Named,
    upstream: Annotated[bool, typer.Option("--upstream", help="Also update everything they are built from.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="Also update everything built from them.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all rows of these tables, not only those affected by changes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Update tables and run syncs, with their checks, in a run that the Dagster UI shows."""
    from ratify_lakehouse.cli.table_run import run_tables

    found = run_tables(tables, upstream=upstream, downstream=downstream, full=full)
    show("Tables", found.tables, as_json=as_json)
    raise typer.Exit(0 if show_findings(found.faults, found.warnings) else 1)


def check(
    tables: Named,
    full: Annotated[
        bool, typer.Option("--full", help="Compare whole tables, not only what is new since the checks last passed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Execute the checks of tables and syncs, but for expectations, which are part of a table's own run."""
    from ratify_lakehouse.cli.table_run import check_tables

    found = check_tables(tables, full=full)
    show("Checks", found.tables, as_json=as_json)
    raise typer.Exit(0 if show_findings(found.faults, found.warnings) else 1)
