"""`ratify plan`: what the next run of each table would compute, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, show

if TYPE_CHECKING:
    from ratify_lakehouse.cli.engine_session import Engines
    from ratify_lakehouse.components.sql_table_component import SqlTable


def plan(
    tables: Annotated[list[str] | None, typer.Argument(help="schema.table; default: every table of a query.")] = None,
    as_json: Json = False,
) -> None:
    """Show what the next run of each table would compute, from which versions of its inputs; it computes nothing."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.components.sql_table_component import SqlTable
    from ratify_lakehouse.definitions.project_tables import declared_tables
    from ratify_lakehouse.errors import NotConfigured

    known = {name: table for name, table in declared_tables().components.items() if isinstance(table, SqlTable)}
    if unknown := [name for name in tables or () if name not in known]:
        raise NotConfigured(f"There is no SqlTable called {unknown[0]}. Choose one of: {', '.join(known)}.")
    with engines() as opened:
        rows = [_row(opened, name, known[name]) for name in tables or known]
    show("The next run of each table", rows, as_json=as_json, counts=())


def _row(opened: "Engines", name: str, table: "SqlTable") -> dict[str, Any]:
    from ratify_lakehouse.errors import TerminalError

    row = {"table": name, "strategy": table.strategy}
    try:
        found = table.plan(opened.spark, opened.duckdb)
    except TerminalError as error:
        return row | {"computes": "nothing", "because": f"it fails: {error}", "versions of the inputs": ""}
    versions = (_versions(each, since, to) for each, (since, to) in found.inputs.items())
    return row | {"computes": found.computes, "because": found.why, "versions of the inputs": "\n".join(versions)}


def _versions(name: str, since: int | None, to: int) -> str:
    """Return which versions of an input the run reads: of one that has no new version, nothing changed."""
    if since == to:
        return f"{name}: still {to}"
    return f"{name}: {to}" if since is None else f"{name}: {since} to {to}"
