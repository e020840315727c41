"""Values in the results of statements on a workspace, which come as texts, as those of Python."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

_INTEGERS = {"BIGINT", "INT", "SMALLINT", "TINYINT", "LONG", "INTEGER", "SHORT", "BYTE"}
_NESTED = ("ARRAY", "MAP", "STRUCT")


def value_of(type_text: str, text: str | None) -> Any:
    """Return the value of a text.

    Args:
        type_text: The column's type, such as BIGINT.
        text: The value as the result has it; None is NULL.
    """
    name = type_text.upper().partition("(")[0].partition("<")[0].strip()
    if text is None:
        return None
    if name in _INTEGERS:
        return int(text)
    if name in ("DOUBLE", "FLOAT"):
        return float(text)
    if name == "DECIMAL":
        return Decimal(text)
    if name == "BOOLEAN":
        return text == "true"
    if name == "TIMESTAMP":
        return dt.datetime.fromisoformat(text)
    return json.loads(text) if name in _NESTED else text
