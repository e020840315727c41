"""`ratify plan`: what the next run of each table would compute, and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal_output import Json, show

if TYPE_CHECKING:
    from components.sql_table_component import SqlTable
    from resources.spark.spark_engine import Spark


def plan(
    tables: Annotated[list[str] | None, typer.Argument(help="schema.table; default: every table of a query.")] = None,
    as_json: Json = False,
) -> None:
    """Show what the next run of each table would compute, from which versions of its inputs; it computes nothing."""
    from components.sql_table_component import SqlTable
    from orchestration.cli.engine_session import engines
    from orchestration.project_tables import declared_tables
    from resources.errors import NotConfigured

    known = {name: table for name, table in declared_tables().components.items() if isinstance(table, SqlTable)}
    if unknown := [name for name in tables or () if name not in known]:
        raise NotConfigured(f"{unknown[0]} is no table of the kind SqlTable: choose from {', '.join(known)}.")
    with engines() as opened:
        rows = [_row(opened.spark, name, known[name]) for name in tables or known]
    show("The next run of each table", rows, as_json=as_json, counts=())


def _row(spark: "Spark", name: str, table: "SqlTable") -> dict[str, Any]:
    from resources.errors import TerminalError

    row = {"table": name, "strategy": table.strategy}
    try:
        found = table.plan(spark)
    except TerminalError as error:
        return row | {"computes": "nothing", "because": f"it fails: {error}", "versions of the inputs": ""}
    versions = (f"{each}: {'?' if since is None else since} to {to}" for each, (since, to) in found.inputs.items())
    return row | {"computes": found.computes, "because": found.why, "versions of the inputs": "\n".join(versions)}
