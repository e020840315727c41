"""Declarations with pairs of attributes, loaded in process as the code location does, beside what the docs refuse."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.errors import InvalidDeclaration

C = TypeVar("C", bound=DeclaredComponent)
Case = Mapping[str, Any]


def declared(kind: type[C], folder: Path, attributes: Mapping[str, Any], sql: str = "") -> C:
    """A component in its folder, all of whose definitions are made.

    Raises:
        InvalidDeclaration: it is refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = {"type": f"ratify_lakehouse.{kind.__name__}", "attributes": {"description": "Pairs", **attributes}}
    (folder / "defs.yaml").write_text(yaml.safe_dump(text))
    if sql:
        (folder / f"{folder.name}.sql").write_text(sql)
    component = kind.resolve_from_yaml(yaml.safe_dump(text["attributes"]))
    component.place(folder)
    component.build_defs(None)  # pyright: ignore[reportArgumentType] it takes nothing of the context
    return component


def misjudged(
    cases: Sequence[Case], refused: Callable[[Case], bool], load: Callable[[int, Case], object]
) -> Mapping[str, str]:
    """The cases that are accepted though the docs refuse them, and those that are refused though they do not."""
    wrong = dict[str, str]()
    for number, case in enumerate(cases):
        try:
            load(number, case)
        except InvalidDeclaration as error:
            if not refused(case):
                wrong[str(case)] = str(error)
        else:
            if refused(case):
                wrong[str(case)] = "accepted"
    return wrong
