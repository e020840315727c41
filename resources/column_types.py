"""Types of columns: one and the same in Spark SQL's words, in DuckDB's, and in Delta's schema."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from resources.sql.duckdb_sql import identifier

NESTED = re.compile(r"^(array|map|struct)\s*<(.*)>$", re.DOTALL | re.IGNORECASE)
DECIMAL = re.compile(r"^(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?$", re.IGNORECASE)

# By Spark's name: DuckDB's and Delta's, where they differ from it.
_PLAIN = {
    "boolean": ("BOOLEAN", "boolean"),
    "tinyint": ("TINYINT", "byte"),
    "smallint": ("SMALLINT", "short"),
    "int": ("INTEGER", "integer"),
    "bigint": ("BIGINT", "long"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "string": ("VARCHAR", "string"),
    "binary": ("BLOB", "binary"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP WITH TIME ZONE", "timestamp"),
}
_BY_DUCKDB = {duckdb: (spark, delta) for spark, (duckdb, delta) in _PLAIN.items()}
_SAME = {"integer": "int", "long": "bigint", "real": "float", "short": "smallint", "byte": "tinyint"}

PLAIN_TYPES = frozenset([*_PLAIN, "integer", "long", "real"])
"""Types without parts that Spark, DuckDB and Delta all know, by Spark's names."""


@dataclass(frozen=True)
class SqlType:
    """A type, by the name that DuckDB has for it: a plain one, or LIST (one part), MAP (two) or STRUCT (its fields)."""

    name: str
    parts: tuple[tuple[str, "SqlType"], ...] = ()

    @property
    def sql(self) -> str:
        """The type in DuckDB's SQL."""
        match self.name:
            case "LIST":
                return f"{self.parts[0][1].sql}[]"
            case "MAP":
                return f"MAP({self.parts[0][1].sql}, {self.parts[1][1].sql})"
            case "STRUCT":
                return f"STRUCT({', '.join(f'{identifier(name)} {part.sql}' for name, part in self.parts)})"
            case plain:
                return plain

    @property
    def spark(self) -> str:
        """The type in Spark SQL's words, always spelt in the same way."""
        match self.name:
            case "LIST":
                return f"array<{self.parts[0][1].spark}>"
            case "MAP":
                return f"map<{self.parts[0][1].spark},{self.parts[1][1].spark}>"
            case "STRUCT":
                return f"struct<{','.join(f'{name}:{part.spark}' for name, part in self.parts)}>"
            case plain:
                return _BY_DUCKDB[plain][0] if plain in _BY_DUCKDB else plain.lower()

    @property
    def delta(self) -> Any:
        """The type in Delta's schema, whose parts may all be NULL."""
        inner = [part.delta for _, part in self.parts]
        match self.name:
            case "LIST":
                return {"type": "array", "elementType": inner[0], "containsNull": True}
            case "MAP":
                return {"type": "map", "keyType": inner[0], "valueType": inner[1], "valueContainsNull": True}
            case "STRUCT":
                return {"type": "struct", "fields": [delta_field(name, part) for name, part in self.parts]}
            case plain:
                return _BY_DUCKDB[plain][1] if plain in _BY_DUCKDB else plain.lower()


def delta_field(name: str, type_: SqlType) -> dict[str, Any]:
    """Return a column, or a field of a struct, that may be NULL, as Delta's schema has it."""
    return {"name": name, "type": type_.delta, "nullable": True, "metadata": {}}


@cache
def sql_type(spark: str) -> SqlType:
    """Return a type that is given in Spark SQL's words."""
    text = spark.strip()
    if match := NESTED.match(text):
        kind, inner = match.group(1).lower(), split_parts(match.group(2))
        if kind == "struct":
            pairs = (re.split(r"\s*[:\s]\s*", part.strip(), maxsplit=1) for part in inner)
            return SqlType("STRUCT", tuple((name, sql_type(type_text)) for name, type_text in pairs))
        return SqlType("LIST" if kind == "array" else "MAP", tuple(("", sql_type(part)) for part in inner))
    if match := DECIMAL.match(text):
        # Spark's own default.
        return SqlType(f"DECIMAL({match.group(1) or 10},{match.group(2) or 0})")
    name = _SAME.get(text.lower(), text.lower())
    return SqlType(_PLAIN[name][0] if name in _PLAIN else name.upper())


def type_of_delta(delta: Any) -> SqlType:
    """Return a type of Delta's schema: a name, or an object with `type`.

    The catalog's API writes `element-type` where Delta's log has `elementType`; both are understood.
    """
    if isinstance(delta, str):
        return sql_type(delta)
    said = {key.replace("-t", "T"): value for key, value in cast("Mapping[str, Any]", delta).items()}
    match said["type"]:
        case "array":
            return SqlType("LIST", (("", type_of_delta(said["elementType"])),))
        case "map":
            return SqlType("MAP", (("", type_of_delta(said["keyType"])), ("", type_of_delta(said["valueType"]))))
        case _:
            return SqlType("STRUCT", tuple((field["name"], type_of_delta(field["type"])) for field in said["fields"]))


def split_parts(text: str) -> list[str]:
    """Split `a:int,b:map<string,int>` at the commas that are outside of brackets."""
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
