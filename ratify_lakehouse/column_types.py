"""The one table of column types: their names in Spark SQL, DuckDB, Delta's schema and Flink SQL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.spark_sql import identifier as spark_identifier

NESTED = re.compile(r"^(array|map|struct)\s*<(.*)>$", re.DOTALL | re.IGNORECASE)
DECIMAL = re.compile(r"^(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?$", re.IGNORECASE)


@dataclass(frozen=True)
class PlainType:
    """A type without parts, by the name that each engine has for it.

    Attributes:
        spark: In Spark SQL, and in declarations.
        duckdb: In DuckDB, as DESCRIBE shows it.
        delta: In the schema of Delta's log.
        flink: In Flink SQL. Its TIMESTAMP is TIMESTAMP_NTZ in Delta, so a timestamp is TIMESTAMP_LTZ.
        numeric: Whether its values are numbers.
        same_text: Whether Spark and DuckDB cast each of its values to the same text.
    """

    spark: str
    duckdb: str
    delta: str
    flink: str
    numeric: bool = False
    same_text: bool = False


TYPES = (
    PlainType("boolean", "BOOLEAN", "boolean", "BOOLEAN", same_text=True),
    PlainType("tinyint", "TINYINT", "byte", "TINYINT", numeric=True, same_text=True),
    PlainType("smallint", "SMALLINT", "short", "SMALLINT", numeric=True, same_text=True),
    PlainType("int", "INTEGER", "integer", "INT", numeric=True, same_text=True),
    PlainType("bigint", "BIGINT", "long", "BIGINT", numeric=True, same_text=True),
    PlainType("float", "FLOAT", "float", "FLOAT", numeric=True),
    PlainType("double", "DOUBLE", "double", "DOUBLE", numeric=True),
    PlainType("string", "VARCHAR", "string", "STRING", same_text=True),
    PlainType("binary", "BLOB", "binary", "BYTES"),
    PlainType("date", "DATE", "date", "DATE", same_text=True),
    PlainType("timestamp", "TIMESTAMP WITH TIME ZONE", "timestamp", "TIMESTAMP_LTZ(6)"),
)
"""All types without parts, apart from decimals. Every other list of types is derived from this table."""

_BY_SPARK = {plain.spark: plain for plain in TYPES}
_BY_DUCKDB = {plain.duckdb: plain for plain in TYPES}
_SYNONYMS = {"integer": "int", "long": "bigint", "real": "float", "short": "smallint", "byte": "tinyint"}
# By the names of types that DuckDB alone has: the narrowest type of Spark that holds all values.
_DUCKDB_ONLY = {
    "UTINYINT": "smallint",
    "USMALLINT": "int",
    "UINTEGER": "bigint",
    "UBIGINT": "decimal(20,0)",
    "TIMESTAMP": "timestamp",
}
_NUMERIC = {plain.duckdb for plain in TYPES if plain.numeric} | {*_DUCKDB_ONLY, "HUGEINT", "UHUGEINT"} - {"TIMESTAMP"}
# Spark refuses a number that is too great for a column of one of these.
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}

PLAIN_TYPES = frozenset([*_BY_SPARK, "integer", "long", "real"])
"""Types without parts that a declaration may have, by Spark's names."""

SAME_TEXT = frozenset(plain.spark for plain in TYPES if plain.same_text)
"""Types, by Spark's names, whose values Spark and DuckDB cast to the same text."""


@dataclass(frozen=True)
class SqlType:
    """A type, by DuckDB's name: a plain one, or LIST (one part), MAP (key and value) or STRUCT (its fields)."""

    name: str
    parts: tuple[tuple[str, "SqlType"], ...] = ()

    @property
    def sql(self) -> str:
        """The type in DuckDB SQL."""
        match self.name:
            case "LIST":
                return f"{self.parts[0][1].sql}[]"
            case "MAP":
                return f"MAP({self.parts[0][1].sql}, {self.parts[1][1].sql})"
            case "STRUCT":
                return f"STRUCT({', '.join(f'{identifier(name)} {part.sql}' for name, part in self.parts)})"
            case "TIMESTAMP_NTZ":
                # No table of ours may have one, but one that is read may.
                return "TIMESTAMP"
            case plain:
                return plain

    @property
    def spark(self) -> str:
        """The type in Spark SQL, always in the same spelling."""
        match self.name:
            case "LIST":
                return f"array<{self.parts[0][1].spark}>"
            case "MAP":
                return f"map<{self.parts[0][1].spark},{self.parts[1][1].spark}>"
            case "STRUCT":
                return f"struct<{','.join(f'{name}:{part.spark}' for name, part in self.parts)}>"
            case plain:
                return _BY_DUCKDB[plain].spark if plain in _BY_DUCKDB else plain.lower()

    @property
    def delta(self) -> Any:
        """The type in Delta's schema, in which all parts may be NULL."""
        inner = [part.delta for _, part in self.parts]
        match self.name:
            case "LIST":
                return {"type": "array", "elementType": inner[0], "containsNull": True}
            case "MAP":
                return {"type": "map", "keyType": inner[0], "valueType": inner[1], "valueContainsNull": True}
            case "STRUCT":
                return {"type": "struct", "fields": [delta_field(name, part) for name, part in self.parts]}
            case plain:
                return _BY_DUCKDB[plain].delta if plain in _BY_DUCKDB else plain.lower()

    @property
    def flink(self) -> str:
        """The type in Flink SQL, which quotes names as Spark does."""
        match self.name:
            case "LIST":
                return f"ARRAY<{self.parts[0][1].flink}>"
            case "MAP":
                return f"MAP<{self.parts[0][1].flink}, {self.parts[1][1].flink}>"
            case "STRUCT":
                return f"ROW<{', '.join(f'{spark_identifier(name)} {part.flink}' for name, part in self.parts)}>"
            case plain:
                return _BY_DUCKDB[plain].flink if plain in _BY_DUCKDB else plain


def delta_field(name: str, type_: SqlType) -> dict[str, Any]:
    """Return a column, or a field of a struct, that may be NULL, as a field of Delta's schema."""
    return {"name": name, "type": type_.delta, "nullable": True, "metadata": {}}


@cache
def sql_type(spark: str) -> SqlType:
    """Return a type from its text in Spark SQL."""
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
    name = _SYNONYMS.get(text.lower(), text.lower())
    return SqlType(_BY_SPARK[name].duckdb if name in _BY_SPARK else name.upper())


def keeps_values(stored: SqlType, given: SqlType) -> bool:
    """Return whether Spark writes values of one type into a column of another as they are, or refuses them."""
    return stored == given or {stored.name, given.name} <= _INTEGERS


def type_of_delta(delta: Any) -> SqlType:
    """Return a type of Delta's schema: a name, or an object with `type`.

    The catalog's API writes `element-type` where Delta's log has `elementType`; both are accepted.
    """
    if isinstance(delta, str):
        return sql_type(delta)
    keys = {key.replace("-t", "T"): value for key, value in cast("Mapping[str, Any]", delta).items()}
    match keys["type"]:
        case "array":
            return SqlType("LIST", (("", type_of_delta(keys["elementType"])),))
        case "map":
            return SqlType("MAP", (("", type_of_delta(keys["keyType"])), ("", type_of_delta(keys["valueType"]))))
        case _:
            return SqlType("STRUCT", tuple((field["name"], type_of_delta(field["type"])) for field in keys["fields"]))


def spark_type_of_duckdb(name: str) -> str | None:
    """Return the Spark type that holds all values of a plain DuckDB type, given in upper case; None if there is none."""
    return _BY_DUCKDB[name].spark if name in _BY_DUCKDB else _DUCKDB_ONLY.get(name)


def is_numeric(duckdb: str) -> bool:
    """Return whether a type of DuckDB, in upper case, is one of numbers."""
    return duckdb in _NUMERIC or duckdb.startswith("DECIMAL")


def split_parts(text: str) -> list[str]:
    """Split `a:int,b:map<string,int>` at the commas that are outside of brackets."""
    parts, depth, start = list[str](), 0, 0
    for position, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]
