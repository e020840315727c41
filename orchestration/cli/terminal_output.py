"""How commands print: results on stdout, progress and errors on stderr."""

import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

# Tables that go to a file or a pipe, which has no width of its own, are not folded to 80 columns.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 132)
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def progress(message: str) -> None:
    """Print a step of a long start on stderr, so that stdout holds only the result."""
    err.print(f"[dim]{message}[/dim]", highlight=False)


def show(title: str, rows: list[dict[str, Any]], *, as_json: bool = False) -> None:
    """Print rows as a table, or as JSON."""
    if as_json:
        out.print_json(json.dumps(rows, default=str))
        return
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else str(v) for v in row.values()))
    out.print(table if rows else f"[bold]{title}[/bold]\n(no rows)")
