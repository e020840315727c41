"""`ratify acknowledge`: say why a commit that the checks of a table object to is right."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, show


def acknowledge(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    version: Annotated[
        list[int] | None, typer.Argument(help="The version, or several; without one, show what is acknowledged.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, shown with the checks.")] = "",
    as_json: Json = False,
) -> None:
    """Accept a DELETE, RESTORE or other commit that the checks of a table fail for. They pass then, and show the reason."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.components.checks.acknowledged_commits import acknowledge as acknowledge_commits
    from ratify_lakehouse.components.checks.acknowledged_commits import acknowledged

    if version and not reason.strip():
        raise typer.BadParameter("give the reason.", param_hint="--reason")
    with engines() as opened:
        full_name = opened.full_name(table)
        if version:
            acknowledge_commits(opened.spark, full_name, version, reason.strip())
        table_id = opened.catalog.table(full_name).table_id or ""
        with opened.duckdb.session() as session:
            found = sorted(acknowledged(session, table_id).values(), key=lambda each: -each.version)
    rows = [
        {
            "version": each.version,
            "operation": each.operation,
            "engine": each.engine,
            "reason": each.reason,
            "acknowledged by": each.by,
            "at (UTC)": f"{each.at:%Y-%m-%d %H:%M:%S}",
        }
        for each in found
    ]
    show(f"Acknowledged commits of {full_name}", rows, as_json=as_json)
