"""Column types as SQL text, the `type_text` of a ColumnInfo, read into Delta's schema JSON."""

import re
from collections.abc import Iterator
from typing import Any

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError

_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`\s:<>(),]+))\s*(?::|\s)\s*(.+)", re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
_MOST_LEVELS = 100
"""Of nested types. Each level is searched for its parts: a text of thousands would take the server seconds to refuse."""
_DELTA_NAMES = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "real": "float",
    "timestamp_ltz": "timestamp",
}  # fmt: skip


def delta_type(text: str, level: int = 0) -> Any:
    """The Delta type of a SQL name: `bigint`, `array<struct<a:int>>`, `decimal(10,2)`. Every part may be NULL.

    Raises InvalidParameterError for what is not the text of a type; whether a plain name is one, `column_json` knows.
    """
    nested = _NESTED.fullmatch(text.strip())
    if nested is None:
        return _plain(" ".join(text.lower().split()))
    if level == _MOST_LEVELS:
        raise InvalidParameterError(f"A column's type is nested too deep: it may have {_MOST_LEVELS} levels.")
    parts, inner = list(_parts(nested[2])), level + 1
    match nested[1].lower(), len(parts):
        case "array", 1:
            return {"type": "array", "elementType": delta_type(parts[0], inner), "containsNull": True}
        case "map", 2:
            key, value = (delta_type(part, inner) for part in parts)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct", _:
            return {"type": "struct", "fields": [_field(part, inner) for part in parts]}
        case kind, count:
            raise InvalidParameterError(f"Column type {text[:200]!r}: {kind} does not have {count} parts.")


def _plain(name: str) -> str:
    if decimal := _DECIMAL.fullmatch(name):
        return f"decimal({decimal[1] or 10},{decimal[2] or 0})"  # Spark's own defaults.
    return _DELTA_NAMES.get(name, name)


def _field(text: str, level: int) -> dict[str, Any]:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise InvalidParameterError(f"Struct field {text[:200]!r} is not of the form name:type.")
    name = found[1].replace("``", "`") if found[1] else found[2]
    return {"name": name, "type": delta_type(found[3], level), "nullable": True, "metadata": {}}


def _parts(text: str) -> Iterator[str]:
    """The parts between the commas that are outside of brackets and backquotes."""
    depth, start, quoted = 0, 0, False
    for position, char in enumerate(text):
        quoted ^= char == "`"
        if not quoted:
            depth += (char in "<(") - (char in ">)")
            if depth < 0:
                break
            if char == "," and depth == 0:
                yield text[start:position]
                start = position + 1
    if depth or quoted:
        raise InvalidParameterError(f"Column type {text[:200]!r}: its brackets or quotes do not match.")
    if start or text.strip():
        yield text[start:]
