"""How commands print: results on stdout, progress and errors on stderr.

Text is printed as it is: it holds values of people's data, in which `[…]` and `:…:` are no instructions to Rich.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Container, Iterable
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, OverflowMethod
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


# A file or a pipe has 80 columns, unless COLUMNS says otherwise.
out = _Verbatim()
err = _Messages(stderr=True)

_LEAST = 8
"""Characters of a text that a column of a table shows at least."""

_COUNTS = frozenset(
    {"files", "loaded", "rows", "skipped", "files refused", "not begun", "rows added", "records", "behind", "failed"}
    | {"commits", "rows read", "batches", "rows/s in", "rows/s processed", "offsets behind", "bytes outstanding"}
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def progress(message: str) -> None:
    """Print a step of a long start on stderr, so that stdout holds only the result."""
    err.print(styled(message, "dim"))


def show(title: str, rows: list[dict[str, Any]], *, as_json: bool = False, counts: Container[str] = _COUNTS) -> None:
    """Print rows as a table, or as JSON; each row as a table of its own where the columns do not fit side by side.

    A word that is too long for its column goes on in the next line on a terminal, and is cut elsewhere, as in a log.

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
        _show_titled(title, "(no rows)")
        return
    names = [Text(printable(name)) for name in rows[0]]
    numeric = [all(isinstance(row[name], int | float) for row in rows) for name in rows[0]]
    cells = [
        [Text(printable(f"{v:,}" if name in counts and isinstance(v, int) else str(v))) for name, v in row.items()]
        for row in rows
    ]
    columns = zip(names, numeric, zip(*cells, strict=True), strict=True)
    if sum(_least_width(name, number, column) for name, number, column in columns) < out.width:
        table = Table(header_style="bold")
        for name, number in zip(names, numeric, strict=True):
            table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow=_overflow())
        for row in cells:
            table.add_row(*row)
        _show_titled(title, table)
        return
    for number, row in enumerate(cells, 1):
        table = Table(header_style="bold")
        table.add_column("column", overflow=_overflow())
        table.add_column("value", overflow=_overflow())
        for name, cell in zip(names, row, strict=True):
            table.add_row(name, cell)
        _show_titled(f"{title}: {number} of {len(cells)}" if len(cells) > 1 else title, table)


def _show_titled(title: str, what: Table | str) -> None:
    # Not as the table's own title, which is no wider than the table.
    out.print(Text(printable(title), style="bold"), what, sep="\n")


def _overflow() -> OverflowMethod:
    return "fold" if out.is_terminal else "ellipsis"


def _least_width(name: Text, numeric: bool, cells: Iterable[Text]) -> int:
    """The characters that a column needs, with its edge and its margins; a number is never cut."""
    longest = max(cell.cell_len for cell in (name, *cells))
    return 3 + (longest if numeric else min(longest, _LEAST))


def show_findings(faults: Collection[str], warnings: Iterable[str] = ()) -> bool:
    """Print warnings and faults, and return whether there are no faults."""
    for warning in warnings:
        err.print(styled(warning, "yellow"))
    for fault in faults:
        err.print(styled(fault, "red"))
    return not faults


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
