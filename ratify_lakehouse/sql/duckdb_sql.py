"""SQL text for DuckDB."""

import json
from collections.abc import Iterable, Mapping, Sequence


def literal(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def no_rows(types: Mapping[str, str]) -> str:
    """Return a query that gives columns of these types, by name, and no rows."""
    columns = ", ".join(f"CAST(NULL AS {type_}) AS {identifier(name)}" for name, type_ in types.items())
    return f"SELECT {columns} WHERE false"


def rows_of(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return a query that gives rows, at least one, each a mapping of JSON's values by column; every column is text."""
    values = ", ".join(f"({literal(json.dumps(row))})" for row in rows)
    return f"SELECT {', '.join(f'line ->> {literal(name)}' for name in columns)} FROM (VALUES {values}) AS given(line)"
