"""The reference of the kinds of tables, from their schemas; run as a program, this module writes it."""

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import ratify_lakehouse
from ratify_lakehouse.components.declared_component import DeclaredComponent

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-kinds.md"

_HEAD = """# The kinds of tables

Generated from the schemas of the components by `python -m ratify_lakehouse.components.kinds_reference`; do not edit. How to
use them: [own-tables.md](own-tables.md). `dg list components` and the Docs tab of the UI show the same.
"""


def kinds() -> list[type[DeclaredComponent]]:
    """Return the kinds that a `defs.yaml` can name, by their names."""
    found = (getattr(ratify_lakehouse, name) for name in sorted(ratify_lakehouse.KINDS))
    return [kind for kind in found if issubclass(kind, DeclaredComponent)]


def reference() -> str:
    """Return the reference as Markdown."""
    return "\n".join([_HEAD, *(line for kind in kinds() for line in _kind(kind))])


def _kind(kind: type[DeclaredComponent]) -> Iterator[str]:
    yield f"## ratify_lakehouse.{kind.__name__}\n"
    yield f"{inspect.getdoc(kind)}\n"
    yield from _attributes(kind)
    for name, model in _nested(kind).items():
        yield f"### {kind.__name__}: `{name}`\n"
        yield f"{inspect.getdoc(model)}\n"
        yield from _attributes(model)


def _attributes(model: type[BaseModel]) -> Iterator[str]:
    yield "| attribute | type | by default | |\n|---|---|---|---|"
    # Required ones first, each group in the order of the code.
    for name, info in sorted(model.model_fields.items(), key=lambda field: not field[1].is_required()):
        yield f"| `{name}` | {_type(info.annotation)} | {_default(info)} | {_cell(info.description or '')} |"
    yield ""


def _nested(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel]]:
    """The models of attributes, by the attribute's path."""
    found = dict[str, type[BaseModel]]()
    for name, info in model.model_fields.items():
        for each in _models(info.annotation):
            found[prefix + name] = each
            found |= _nested(each, f"{prefix}{name}.")
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts if part is not NoneType)
    if origin is list:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"map of {_type(parts[0])} to {_type(parts[1])}"
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "attributes, below"
    return {str: "text", bool: "true or false", int: "number", float: "number"}.get(annotation, str(annotation))


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "**required**"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value in (None, "", [], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{_cell(str(value.value if isinstance(value, Enum) else value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
    sys.stdout.write(f"{REFERENCE}\n")
