"""How commands print: results on stdout, progress and errors on stderr.

Text is printed as it is: it holds values of people's data, in which `[…]` and `:…:` are no instructions to Rich.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Container
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

# Characters that a terminal would obey or cannot encode: control characters, but for line feed and tab, and halves of
# surrogate pairs.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


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


def printable(text: str) -> str:
    """Return a text in which characters that cannot be printed stand as their escapes."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def styled(text: str, style: str, rest: str = "") -> Text:
    """Return a message that begins with a text in a style."""
    return Text.assemble((printable(runnable(text)), style), printable(runnable(rest)))


class _Verbatim(Console):
    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


class _Messages(_Verbatim):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(runnable(each) if isinstance(each, str) else each for each in objects), **options)


# Tables that go to a file or a pipe, which has no width of its own, are not folded to 80 columns.
out = _Verbatim(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 132)
err = _Messages(stderr=True)

_COUNTS = frozenset(
    {"files", "loaded", "rows", "skipped", "files refused", "not begun", "rows added", "records", "behind", "failed"}
    | {"commits", "rows read", "batches", "rows/s in", "rows/s processed", "offsets behind", "bytes outstanding"}
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def progress(message: str) -> None:
    """Print a step of a long start on stderr, so that stdout holds only the result."""
    err.print(styled(message, "dim"))


def show(title: str, rows: list[dict[str, Any]], *, as_json: bool = False, counts: Container[str] = _COUNTS) -> None:
    """Print rows as a table, or as JSON.

    Args:
        title: Above the table.
        rows: With the same columns each.
        as_json: Print the rows alone, as JSON.
        counts: The columns whose integers get thousands separators. Others are ids, versions and the like.
    """
    if as_json:
        show_json(rows)
        return
    if not rows:
        out.print(Text(printable(title), style="bold"), "(no rows)", sep="\n")
        return
    table = Table(title=Text(printable(title)), title_justify="left", title_style="bold", header_style="bold")
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = (f"{v:,}" if name in counts and isinstance(v, int) else str(v) for name, v in row.items())
        table.add_row(*(Text(printable(cell)) for cell in cells))
    out.print(table)


def show_json(value: Any) -> None:
    """Print a value as JSON; what JSON has no form for is a text, such as a time, NaN or infinity."""
    text = json.dumps(_with_json_forms(value), indent=2, ensure_ascii=False, allow_nan=False)
    out.print(JSONHighlighter()(printable(text)), soft_wrap=True)


def _with_json_forms(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(name): _with_json_forms(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_json_forms(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        # As Spark's to_json writes them.
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _key(name: Any) -> Any:
    return name if name is None or isinstance(name, str | bool | int) else str(name)
