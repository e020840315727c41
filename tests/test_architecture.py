"""docs/architecture.md: each file and function that it names exists, each step is called by the one above it, and no call
climbs back through the rooms.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LIBRARY = ROOT / "ratify_lakehouse"
# From top to bottom.
ROOMS = (
    *("cli", "definitions", "proof", "components", "ingest", "engines"),
    *("kafka", "delta", "catalog", "landing", "sql", "embedded"),
)
STEP = re.compile(r"`([a-z_0-9/]+\.(?:py|sql|yaml))(?::([A-Za-z_.]+))?`")
WALKS = ("The walk of one CSV row", "The walk of one Kafka event")


def runs(walk: str) -> dict[str, list[tuple[int, str, str]]]:
    """The runs of a walk by their headings, each with its steps: indentation, path and name."""
    text = PAGE.split(f"\n## {walk}\n")[1].split("\n## ")[0]
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    by_heading = zip(parts[::2], parts[1::2], strict=True)
    lines = {heading: re.findall(rf"^( *)- {STEP.pattern}", steps, re.MULTILINE) for heading, steps in by_heading}
    return {heading: [(len(indent), path, name) for indent, path, name in found] for heading, found in lines.items()}


def calls(steps: list[tuple[int, str, str]]) -> Iterator[tuple[str, str, str]]:
    """The calls of a run: the path of the caller, and the path and the name of what it calls."""
    callers = list[tuple[int, str]]()
    for indent, path, name in steps:
        while callers and callers[-1][0] >= indent:
            callers.pop()
        if callers:
            yield callers[-1][1], path, name
        callers.append((indent, path))


def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """What a module defines at its top, and in its classes."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield f"{prefix}{name}"
            case ast.ClassDef(name=name, body=inner):
                yield f"{prefix}{name}"
                yield from names(inner, f"{prefix}{name}.")
            case ast.Assign(targets=targets):
                yield from (f"{prefix}{target.id}" for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}{name}"
            case _:
                pass


def test_each_file_and_function_of_the_page_exists() -> None:
    found = STEP.findall(PAGE)
    assert len(found) > 40
    missing = [
        f"{path}:{name}"
        for path, name in found
        if not (ROOT / path).is_file() or (name and name not in set(names(ast.parse((ROOT / path).read_text()).body)))
    ]
    assert missing == []


def level(path: str) -> int:
    """The room of a step; modules that all rooms use are below them."""
    package, room, *_ = path.split("/")
    if package == "assets":
        # The components read the declarations of a project.
        return ROOMS.index("components")
    # An engine calls the protocols in any order, and modules that all rooms use have no room.
    return ROOMS.index("embedded") if room == "embedded" else min(ROOMS.index("engines"), index(room))


def index(room: str) -> int:
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


@pytest.mark.parametrize("walk", WALKS)
def test_no_call_climbs_back_through_the_rooms(walk: str) -> None:
    found = runs(walk)
    assert len(found) >= 3
    for heading, steps in found.items():
        assert len(steps) >= 4, heading
        assert level(steps[0][1]) == ROOMS.index("definitions"), heading
        assert [call for call in calls(steps) if level(call[0]) > level(call[1])] == [], heading


@pytest.mark.parametrize("walk", WALKS)
def test_each_step_names_the_ones_below_it(walk: str) -> None:
    """A declaration names its kind, and a module the function or the class that it calls."""
    found = [call for steps in runs(walk).values() for call in calls(steps)]
    assert len(found) >= 10
    for caller, path, name in found:
        text = (ROOT / caller).read_text()
        assert not name or any(re.search(rf"\b{part}\b", text) for part in name.split(".")), (caller, path, name)


def test_the_table_of_rooms_names_folders_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|.*\|(.+)\|$", PAGE, re.MULTILINE)
    assert [room for room, _ in rows] == list(ROOMS)
    folders = [LIBRARY / room / folder for room, listed in rows for folder in re.findall(r"`(\w+)/`", listed)]
    assert [folder for folder in folders if not folder.is_dir()] == []
