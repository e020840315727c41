"""How commands print: results on stdout, progress and errors on stderr."""

import json
import os
import re
import shutil
import sys
from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


@cache
def _command() -> str:
    """How `ratify` is typed here: by its path where it is not on the PATH, as in a checkout after `make setup`."""
    program = Path(sys.executable).with_name("ratify")
    on_path = shutil.which("ratify")
    if not program.exists() or (on_path and Path(on_path).samefile(program)):
        return "ratify"
    return min(os.path.relpath(program), str(program), key=len)


def runnable(text: str) -> str:
    """Return a message in which the commands between backquotes can be typed as they stand."""
    return re.sub("`ratify(?= [a-z])", f"`{_command()}", text)


class _Messages(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(runnable(each) if isinstance(each, str) else each for each in objects), **options)


# Tables that go to a file or a pipe, which has no width of its own, are not folded to 80 columns.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 132)
err = _Messages(stderr=True)

_COUNTS = frozenset(
    {"files", "loaded", "rows", "skipped", "files refused", "not begun", "rows added", "records", "behind", "failed"}
    | {"commits", "rows read", "batches", "rows/s in", "rows/s processed", "offsets behind", "bytes outstanding"}
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def progress(message: str) -> None:
    """Print a step of a long start on stderr, so that stdout holds only the result."""
    err.print(f"[dim]{message}[/dim]", highlight=False)


def show(title: str, rows: list[dict[str, Any]], *, as_json: bool = False, counts: Container[str] = _COUNTS) -> None:
    """Print rows as a table, or as JSON.

    Args:
        title: Above the table.
        rows: With the same columns each.
        as_json: Print the rows alone, as JSON.
        counts: The columns whose integers get thousands separators. Others are ids, versions and the like.
    """
    if as_json:
        out.print_json(json.dumps(rows, default=str))
        return
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if name in counts and isinstance(v, int) else str(v) for name, v in row.items()))
    out.print(table if rows else f"[bold]{title}[/bold]\n(no rows)")
