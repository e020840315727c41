"""`ratify history`: a table's commits."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, show

if TYPE_CHECKING:
    from ratify_lakehouse.delta.commit_history import Commit


def history(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    limit: Annotated[int, typer.Option(min=1, help="Newest versions to show.")] = 50,
    as_json: Json = False,
) -> None:
    """Show a table's commits and the engines that made them."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.settings import Settings

    with engines() as opened:
        full_name = opened.full_name(table)
        # The catalog says in one line that it has no such table; Spark says so with its stack.
        opened.catalog.version(full_name)
        by = opened.spark.recent_commits if Settings().without_spark else opened.spark.history
        commits = list(by(full_name, limit))
    show(f"History of {full_name}", [_row(commit) for commit in commits], as_json=as_json)


def _row(commit: "Commit") -> dict[str, Any]:
    return {
        "version": commit.version,
        "committed at (UTC)": f"{commit.timestamp:%Y-%m-%d %H:%M:%S}",
        "engine": commit.engine.value,
        "operation": commit.operation,
        "rows added": "unknown" if commit.rows_added is None else commit.rows_added,
        "engine info": commit.engine_info,
    }
