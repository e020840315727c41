"""Values in the words of each engine, and in one form in which they are compared.

A string or a binary goes into SQL as its bytes in hexadecimal, anything else as a text that is cast: no driver of Python has
a part in what is written.
"""

import datetime as dt
import math
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

from ratify_lakehouse.column_types import SqlType

Dialect = Literal["spark", "duckdb"]


def sql(value: Any, type_: SqlType, dialect: Dialect) -> str:
    """Return a value as an expression of exactly that type."""
    spark = dialect == "spark"
    name = type_.spark if spark else type_.sql
    inner = [part for _, part in type_.parts]
    match value, type_.name:
        case None, _:
            text = f"CAST(NULL AS {name})"
        case str(), _:
            text = f"decode(unhex('{value.encode().hex()}'){', ' + repr('UTF-8') if spark else ''})"
        case bytes(), _:
            text = f"unhex('{value.hex()}')"
        case _, "LIST":
            items = ", ".join(sql(item, inner[0], dialect) for item in value)
            text = f"CAST({f'array({items})' if spark else f'[{items}]'} AS {name})"
        case _, "MAP":
            pairs = [[sql(key, inner[0], dialect), sql(item, inner[1], dialect)] for key, item in value.items()]
            items = ", ".join((", " if spark else ": ").join(pair) for pair in pairs)
            text = f"CAST({f'map({items})' if spark else f'MAP {{{items}}}'} AS {name})"
        case _, "STRUCT":
            mark = ", " if spark else ": "
            items = ", ".join(f"'{key}'{mark}{sql(value[key], part, dialect)}" for key, part in type_.parts)
            text = f"named_struct({items})" if spark else f"{{{items}}}"
        case _:
            text = f"CAST('{value}' AS {name})"
    return text


def plain(value: Any, type_: SqlType) -> Any:
    """Return what an engine's Python client gives for a value in a form that is equal just where the values are the same:
    NaN equals itself, and -0.0 is not 0.0.

    Raises:
        TypeError, ValueError, AttributeError: the client gave something of another type.
    """
    inner = [part for _, part in type_.parts]
    match type_.name:
        case _ if value is None:
            form = None
        case "LIST":
            form = [plain(item, inner[0]) for item in value]
        case "MAP":
            # Arrow gives pairs.
            pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
            form = sorted([[plain(key, inner[0]), plain(item, inner[1])] for key, item in pairs], key=repr)
        case "STRUCT":
            form = [list(value), *(plain(value[key], part) for key, part in type_.parts)]
        case "FLOAT" | "DOUBLE":
            width = "<f" if type_.name == "FLOAT" else "<d"
            form = "NaN" if math.isnan(value) else [value, struct.pack(width, value).hex()]
        case "BLOB":
            form = bytes(value).hex()
        case "TIMESTAMP WITH TIME ZONE":
            # Spark gives no time zone; its session's is UTC, and so is this process's (see test_matrix).
            form = (value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)).isoformat()
        case _ if isinstance(value, dt.date | Decimal):
            form = [type(value).__name__, str(value)]
        case _:
            form = [type(value).__name__, value]
    return form


def other_zero(value: Any) -> Any:
    """Return the zero that is equal to this one in SQL but has the other sign; any other value as it is."""
    return -value if isinstance(value, float) and value == 0 else value
