"""`ratify changes`: the rows that commits changed."""

from typing import Annotated, Any

import typer

from orchestration.cli.terminal_output import Json, err, show

_DELTA = ("_commit_version", "_commit_timestamp", "_change_type")


def changes(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table; it needs a change data feed.")],
    first: Annotated[int | None, typer.Option("--from", min=0, help="First version; default: the earliest.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last version; default: the latest.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show, the oldest changes first.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the rows that a range of versions changed, as they were and as they are."""
    from orchestration.cli.engine_session import engines

    with engines() as opened:
        full_name = opened.full_name(table)
        # The catalog says in one line that it has no such table.
        opened.catalog.version(full_name)
        from resources.spark.change_feed import read_changes

        found = read_changes(opened.spark, full_name, first, last)
        rows = opened.spark.rows(found.orderBy(*_DELTA).limit(limit + 1))
    show(f"Changes of {full_name}", [_row(row) for row in rows[:limit]], as_json=as_json, counts=())
    if len(rows) > limit:
        err.print(f"Only the first {limit} rows are shown: ask for more with --limit.", highlight=False)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    version, time, change = (row[name] for name in _DELTA)
    shown = {"version": version, "committed at (UTC)": f"{time:%Y-%m-%d %H:%M:%S}", "change": change}
    return shown | {name: value for name, value in row.items() if name not in _DELTA}
