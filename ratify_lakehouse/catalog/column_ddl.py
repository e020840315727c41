"""The type of a catalog's column as Spark SQL that is safe to run: parsed, and written again with its names quoted."""

import json
import re

from ratify_lakehouse.column_types import TYPES, SqlType, sql_type, type_of_delta
from ratify_lakehouse.sql.spark_sql import identifier

_UNIT = "(YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)"
_PLAIN = re.compile(
    "|".join(re.escape(plain.duckdb) for plain in TYPES)
    + r"|DECIMAL\([0-9]{1,2},[0-9]{1,2}\)|(VAR)?CHAR\([0-9]{1,9}\)|TIMESTAMP_NTZ|VARIANT|VOID"
    + rf"|INTERVAL {_UNIT}( TO {_UNIT})?"
)


class NotWritable(ValueError):
    """A catalog's entry has no form in SQL that is safe to run."""


def quoted(name: object) -> str:
    """Return a quoted identifier.

    Raises:
        NotWritable: it is no text, or has a line break or another character that does not show.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise NotWritable(f"the name {json.dumps(name)} cannot be written")
    return identifier(name)


def column_type(type_json: str | None, type_text: str | None) -> str:
    """Return a column's type in Spark SQL, from the Delta JSON of its field or of its type, else from its text.

    Raises:
        NotWritable: it is not a type of Delta or of Spark.
    """
    try:
        if type_json:
            parsed = json.loads(type_json)
            return _ddl(type_of_delta(parsed["type"] if isinstance(parsed, dict) and "name" in parsed else parsed))
        if not type_text or "`" in type_text:
            raise NotWritable("a type without a name")
        return _ddl(sql_type(type_text))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise NotWritable(f"the type {json.dumps(type_text or type_json)} is not known") from error


def _ddl(parsed: SqlType) -> str:
    match parsed.name:
        case "LIST":
            return f"array<{_ddl(parsed.parts[0][1])}>"
        case "MAP":
            (_, key), (_, value) = parsed.parts
            return f"map<{_ddl(key)},{_ddl(value)}>"
        case "STRUCT":
            return f"struct<{','.join(f'{quoted(name)}:{_ddl(part)}' for name, part in parsed.parts)}>"
        case plain if _PLAIN.fullmatch(plain):
            return parsed.spark
        case plain:
            raise NotWritable(plain)
