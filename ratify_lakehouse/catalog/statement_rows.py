"""Values in the results of statements on a workspace, which come as texts, as those of Python."""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_PARSED: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
    **dict.fromkeys(("ARRAY", "MAP", "STRUCT"), json.loads),
    "DECIMAL": Decimal,
    "BOOLEAN": lambda text: text == "true",
    "TIMESTAMP": dt.datetime.fromisoformat,
}


def value_of(type_text: str, text: str | None) -> Any:
    """Return the value of a text.

    Args:
        type_text: The column's type, such as BIGINT.
        text: The value as the result has it; None is NULL.
    """
    name = type_text.upper().partition("(")[0].partition("<")[0].strip()
    return None if text is None else _PARSED.get(name, str)(text)
