"""SQL text for Spark."""

import re
from collections.abc import Mapping, Sequence

_MAP = re.compile(r"\bmap<")
# No field of this name.
_VARIANT = re.compile(r"\bvariant\b(?!\s*:)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that sqlglot takes for no name, even where one has to stand.
_WORDS = re.compile(
    "and|as|between|create|cross|distinct|else|except|fetch|for|from|grant|having|insert|intersect|into|join|lateral|like|not|"
    "on|or|select|tablesample|then|union|using|values|when|where|with",
    re.IGNORECASE,
)


def literal(text: str) -> str:
    """Return a string literal, in which backslashes are escaped.

    Braces are, too: in a statement over DataFrames they would name one.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "\\u007B").replace("}", "\\u007D") + "'"


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def has_text(type_: str) -> bool:
    """Return whether values of a type in Spark SQL are text, or may have text in them."""
    return "string" in type_ or "char" in type_


def comparable(type_: str) -> bool:
    """Return whether Spark tells if two values of a type in Spark SQL are equal."""
    return not _MAP.search(type_) and not has_variant(type_)


def has_variant(type_: str) -> bool:
    """Return whether values of a type in Spark SQL are a VARIANT, or may have one in them."""
    return bool(_VARIANT.search(type_))


def readable(column: str, type_: str) -> str:
    """Return an expression of a column, under its name, whose values are to be shown.

    Text in it may have bytes that are no UTF-8, which no client can read, and the client gives timestamps in its local time,
    without saying so. A value of several parts that may have either is shown as JSON.

    Args:
        column: Its name.
        type_: Its type in Spark SQL; empty if it is not known.
    """
    name = identifier(column)
    if type_.startswith(("string", "char", "varchar")):
        return f"make_valid_utf8({name}) AS {name}"
    if type_ == "timestamp":
        # The zone of our sessions is UTC.
        return f"concat(CAST({name} AS STRING), '+00:00') AS {name}"
    return f"to_json({name}) AS {name}" if "<" in type_ and (has_text(type_) or "timestamp" in type_) else name


def table_name(full_name: str) -> str:
    """Return the full name of a table or schema for a statement: a part such as `my-lake` or `values` is quoted."""
    parts = full_name.split(".")
    return ".".join(part if _PLAIN.fullmatch(part) and not _WORDS.fullmatch(part) else identifier(part) for part in parts)


def at_version(table: str, version: int | None) -> str:
    """Return a table for a query as of a version; None is the latest."""
    return table if version is None else f"{table} VERSION AS OF {version}"


def same_keys(keys: Sequence[str], left: str, right: str) -> str:
    """Return the condition that two relations have the same keys; NULL equals NULL."""
    return " AND ".join(f"{left}.{identifier(key)} <=> {right}.{identifier(key)}" for key in keys)


def no_rows(types: Mapping[str, str]) -> str:
    """Return a relation with columns of these types, by name, and without rows."""
    columns = ", ".join(f"CAST(NULL AS {type_}) AS {identifier(name)}" for name, type_ in types.items())
    return f"(SELECT {columns} WHERE false)"
