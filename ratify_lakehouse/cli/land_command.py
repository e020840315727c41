"""`ratify land`: the next days of real flights, as landed files."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, show


def land(
    days: Annotated[int, typer.Argument(min=1, help="How many days.")] = 1,
    as_json: Json = False,
) -> None:
    """Put the next days of real flights into the landing zone."""
    from ratify_lakehouse.cli.sample_flights import land_days
    from ratify_lakehouse.settings import Settings

    landing = Settings().landing
    landed = land_days(landing, days)
    show(f"Landed in {landing}", [{"file": path, "rows": rows} for path, rows in landed], as_json=as_json)
