"""Any text is printed as it is, JSON is JSON, and commands that messages name can be typed as they stand."""

import datetime as dt
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratify_lakehouse.cli import terminal_output
from ratify_lakehouse.cli.terminal_output import err, out, printable, runnable, show, show_json, styled


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, path: str) -> None:
    folder.mkdir(parents=True)
    (folder / "ratify").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", path)


def test_a_command_that_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "bin", monkeypatch, path=str(tmp_path / "bin"))
    assert runnable("start `ratify up`") == "start `ratify up`"


def test_a_command_in_an_environment_that_is_not_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / ".venv" / "bin", monkeypatch, path="/nowhere")
    monkeypatch.chdir(tmp_path)
    assert runnable("start `ratify up` or `ratify-flink`") == "start `.venv/bin/ratify up` or `ratify-flink`"
    assert runnable("the catalog `ratify`") == "the catalog `ratify`"
    (tmp_path / "assets").mkdir()
    monkeypatch.chdir(tmp_path / "assets")
    assert runnable("`ratify up`") == "`../.venv/bin/ratify up`"


# Any code point, also halves of surrogate pairs, which is what Spark and files may hold; and what Rich would obey.
_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(
    st.sampled_from(["[", "]", "[/", "[a]", "[/]", "[bold]", "[link=x]", ":", ":smile:", "\\", "\x1b[31m", "\r", "\n", "x"])
).map("".join)


def _without_layout(text: str) -> str:
    """A table pads its cells, and folds them at line feeds."""
    return "".join(text.split()).replace("│", "").replace("┃", "")


@contextmanager
def _printed(console: Any, width: int = 100_000) -> Iterator[Any]:
    """What is printed in the block; other tests use the same consoles, at their own width."""
    before, console._width = console._width, width
    try:
        with console.capture() as shown:
            yield shown
    finally:
        console._width = before


@settings(max_examples=60, deadline=None)
@given(_TEXT, _TEXT, _TEXT)
@example("[a]", "[/]", "[/bold]")
@example("\x1b[2J", "\ud800", ":smile:")
def test_any_text_is_printed_as_it_is(cell: str, name: str, title: str) -> None:
    text_is_printed_as_it_is(cell, name, title)


@pytest.mark.long
@settings(max_examples=3_000, deadline=None)
@given(_TEXT, _TEXT, _TEXT)
def test_any_text_is_printed_as_it_is_long(cell: str, name: str, title: str) -> None:
    text_is_printed_as_it_is(cell, name, title)


def text_is_printed_as_it_is(cell: str, name: str, title: str) -> None:
    with _printed(out) as shown:
        show(title, [{name: cell}])
        show(title, [])
        out.print(cell, highlight=False)
        out.print(styled(cell, "red", name))
    found = shown.get()
    found.encode()
    assert printable(found) == found, "nothing that a terminal would obey"
    found = _without_layout(found)
    for text in (cell, name, title):
        assert _without_layout(printable(text)) in found
    with _printed(err) as shown:
        err.print(cell, highlight=False)
    assert _without_layout(printable(runnable(cell))) in _without_layout(shown.get())


@pytest.mark.parametrize("columns", [2, 5, 10, 40])
def test_a_table_for_no_terminal_keeps_its_box_and_cuts_names(columns: int) -> None:
    name, note = "ratify.silver.orders_quarantine" * 4, "the words of a sentence are folded"
    rows = [{"table": name, "rows": 12345, "note": note} | {f"n{n}": f"value-{n}-" + "x" * 90 for n in range(3, columns)}]
    with _printed(out, width=80) as shown:
        show("Tables", rows)
    _, *lines = shown.get().splitlines()
    assert {len(line) for line in lines if not line.startswith("Tables: ")} == {len(lines[0])}
    assert len(lines[0]) <= 80
    assert {(line[0], line[-1]) for line in lines} == {("┏", "┓"), ("┃", "┃"), ("┡", "┩"), ("│", "│"), ("└", "┘")}
    assert re.search(r"ratify\.silver\S*…", shown.get())
    assert "12,345" in shown.get()
    assert _without_layout("folded") in _without_layout(shown.get())
    every = [f"n{n}" for n in range(3, columns)]
    assert [each for each in every if f" {each} " not in shown.get()] == []


def test_a_table_on_a_terminal_shows_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_force_terminal", True)
    with _printed(out, width=30) as shown:
        show("Tables", [{"table": "ratify.silver.orders_quarantine" * 2}])
    assert "ratify.silver.orders_quarantine" * 2 in _without_layout(re.sub(r"\x1b\[[\d;]*m", "", shown.get()))


_NUMBERS = st.floats() | st.integers()
_EXACT = st.none() | st.booleans() | _NUMBERS.filter(isfinite) | _TEXT
_OTHERS = st.dates() | st.datetimes() | st.decimals() | st.binary() | st.floats()


_ANY = st.recursive(
    _EXACT | _OTHERS,
    lambda each: st.lists(each) | st.tuples(each) | st.dictionaries(_TEXT | _NUMBERS | st.dates(), each),
    max_leaves=8,
)
_JSON = st.recursive(_EXACT, lambda each: st.lists(each) | st.dictionaries(_TEXT, each), max_leaves=8)


@settings(max_examples=60, deadline=None)
@given(_ANY)
@example([{"x": float("nan")}])
@example({dt.date(2024, 1, 1): Decimal("1.50"), float("inf"): b"x"})
def test_whatever_is_printed_as_json_every_parser_reads(value: Any) -> None:
    every_parser_reads(value)


@pytest.mark.long
@settings(max_examples=3_000, deadline=None)
@given(_ANY)
def test_whatever_is_printed_as_json_every_parser_reads_long(value: Any) -> None:
    every_parser_reads(value)


def every_parser_reads(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    with _printed(out, width=20) as shown:
        show_json(value)
    shown.get().encode()
    json.loads(shown.get(), parse_constant=refuse)


@settings(max_examples=40, deadline=None)
@given(_JSON)
def test_json_has_the_values_that_it_has_forms_for(value: Any) -> None:
    json_has_the_values(value)


@pytest.mark.long
@settings(max_examples=3_000, deadline=None)
@given(_JSON)
def test_json_has_the_values_that_it_has_forms_for_long(value: Any) -> None:
    json_has_the_values(value)


def json_has_the_values(value: Any) -> None:
    with _printed(out, width=20) as shown:
        show_json(value)
    assert json.loads(shown.get()) == value


def test_markup_and_json_are_printed_in_one_place() -> None:
    """A command that did so by itself would obey the values that it prints."""
    cli = Path(terminal_output.__file__).parent
    for file in cli.glob("*.py"):
        if file.name != "terminal_output.py":
            source = file.read_text()
            for word in ("print_json", "markup", "rich.console", "rich.table", "[/"):
                assert word not in source, f"{file.name}: {word}"
