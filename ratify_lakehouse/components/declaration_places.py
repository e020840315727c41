"""Where in a `defs.yaml` a mistake is: errors name the file, the line and the field."""

import re
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import yaml

from ratify_lakehouse.errors import InvalidDeclaration, UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableName

_PART = re.compile(r"[\w-]+")


def not_made(name: str, known: Collection[str], hint: str = "Set `external: true` for a table of another program.") -> str:
    """Return the text of the error for a table that no asset of the project makes.

    Args:
        name: Of the table, as schema.table.
        known: The tables that assets make, likewise.
        hint: What to do if it is right.
    """
    near = get_close_matches(name, known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"no asset of the project makes {name}.{meant} {hint}"


def named_table(text: str, *field: str | int, catalogs: bool = False) -> TableName:
    """Return the table that a declaration names.

    Args:
        text: As schema.table.
        field: The field that names it.
        catalogs: Whether catalog.schema.table is one, too.

    Raises:
        UnsafeDeclaration: it is given in another form.
    """
    parts = text.split(".")
    if len(parts) not in ((2, 3) if catalogs else (2,)) or not all(_PART.fullmatch(part) for part in parts):
        forms = "schema.table or catalog.schema.table" if catalogs else "schema.table"
        raise UnsafeDeclaration(f"{text!r} is not a table name: write {forms}.", *field)
    return TableName(parts[-2], parts[-1], parts[0] if len(parts) == 3 else "")


@contextmanager
def in_field(*field: str | int) -> Generator[None]:
    """Errors of a declaration that come from the block are about this field, or a field in it."""
    try:
        yield
    except UnsafeDeclaration as error:
        error.field = (*field, *error.field)
        raise


@contextmanager
def located(declaration: Path) -> Generator[None]:
    """Put the file, the line and the field before the text of errors of a declaration.

    Args:
        declaration: The `defs.yaml`.

    Raises:
        InvalidDeclaration: instead of every other UnsafeDeclaration.
    """
    try:
        yield
    except InvalidDeclaration:
        # It has its place already, which may be in the file of the query.
        raise
    except UnsafeDeclaration as error:
        if not declaration.exists():
            # It is only about to be written.
            raise
        name = "/".join(declaration.parts[-3:])
        shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.field).removeprefix(".")
        place = f"{name}, line {_line(declaration, error.field)}"
        raise InvalidDeclaration(f"{place}{f', {shown}' if shown else ''}: {error}") from error


def field_with(declaration: Path, name: str, value: object) -> Sequence[str | int]:
    """Return the path of the first field of this name that has this value; only the name if there is none."""
    root = yaml.safe_load(declaration.read_text())
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), root.get("attributes"))]
    while waiting:
        path, node = waiting.pop(0)
        children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in children:
            if key == name and child == value:
                return (*path, key)
            waiting.append(((*path, key), child))
    return (name,)


def _line(declaration: Path, field: Sequence[str | int]) -> int:
    """The line of a field, or of the last part of its path that the file has."""
    node = yaml.compose(declaration.read_text(), Loader=yaml.SafeLoader)
    line = 1
    for part in ("attributes", *field):
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == part]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            found = [(value, value) for value in node.value[part : part + 1]]
        else:
            found = []
        if not found:
            break
        (key, node), *_ = found
        line = key.start_mark.line + 1
    return line
