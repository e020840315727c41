"""`ratify changes`: the rows that commits changed."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, show

if TYPE_CHECKING:
    from ratify_lakehouse.cli.engine_session import Engines

_DELTA = ("_commit_version", "_commit_timestamp", "_change_type")


class FeedReader(StrEnum):
    """An engine that reads a change data feed."""

    SPARK = "spark"
    DUCKDB = "duckdb"


def changes(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table; it needs a change data feed.")],
    first: Annotated[int | None, typer.Option("--from", min=0, help="First version; default: the earliest.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last version; default: the latest.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show, the oldest changes first.")] = 100,
    engine: Annotated[FeedReader, typer.Option(help="The engine that reads them.")] = FeedReader.SPARK,
    as_json: Json = False,
) -> None:
    """Show the rows that a range of versions changed, as they were and as they are."""
    from ratify_lakehouse.cli.engine_session import engines

    with engines() as opened:
        full_name = opened.full_name(table)
        # The catalog says in one line that it has no such table.
        opened.catalog.version(full_name)
        read = _by_duckdb if engine is FeedReader.DUCKDB else _by_spark
        rows = read(opened, full_name, (first, last), limit + 1)
    show(f"Changes of {full_name}", [_row(row) for row in rows[:limit]], as_json=as_json, counts=())
    if len(rows) > limit:
        err.print(f"Only the first {limit} rows are shown: ask for more with --limit.", highlight=False)


def _by_spark(opened: "Engines", full_name: str, versions: tuple[int | None, int | None], most: int) -> list[dict[str, Any]]:
    from ratify_lakehouse.engines.spark.change_feed import read_changes
    from ratify_lakehouse.engines.spark.utc_rows import rows_in_utc

    found = read_changes(opened.spark, full_name, *versions).orderBy(*_DELTA).limit(most)
    return rows_in_utc(opened.spark, found)


def _by_duckdb(
    opened: "Engines", full_name: str, versions: tuple[int | None, int | None], most: int
) -> list[dict[str, Any]]:
    from ratify_lakehouse.engines.duckdb.feed_reading import read_changes

    with opened.duckdb.session() as session:
        found = read_changes(session, opened.duckdb.log(full_name), *versions).order(", ".join(_DELTA)).limit(most)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    version, time, change = (row[name] for name in _DELTA)
    shown = {"version": version, "committed at (UTC)": f"{time:%Y-%m-%d %H:%M:%S}", "change": change}
    # A column of the table may have such a name, too.
    own = {f"{name} (column)" if name in shown else name: value for name, value in row.items() if name not in _DELTA}
    return shown | own
