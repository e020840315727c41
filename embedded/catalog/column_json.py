"""Column types: Delta's schema JSON on one side, Unity Catalog's ColumnInfo on the other.

Delta's JSON comes in two spellings: `elementType`, `containsNull` (a table's schemaString) and `element-type`,
`contains-null` (the delta/v1 API). Both are accepted and stored as sent; `type_json` always uses the first.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from embedded.catalog.api_errors import InvalidParameterError

Json = dict[str, Any]

# The only table of types: Delta primitive -> (SQL text, ColumnTypeName).
# DuckDB refuses a table whose type_text is not a SQL name ("long").
_PRIMITIVES = {
    "boolean": ("boolean", "BOOLEAN"),
    "byte": ("tinyint", "BYTE"),
    "short": ("smallint", "SHORT"),
    "integer": ("int", "INT"),
    "long": ("bigint", "LONG"),
    "float": ("float", "FLOAT"),
    "double": ("double", "DOUBLE"),
    "date": ("date", "DATE"),
    "timestamp": ("timestamp", "TIMESTAMP"),
    "timestamp_ntz": ("timestamp_ntz", "TIMESTAMP_NTZ"),
    "string": ("string", "STRING"),
    "binary": ("binary", "BINARY"),
    "variant": ("variant", "VARIANT"),
    "void": ("void", "NULL"),
}
_PARAMETRIC = {"decimal": "DECIMAL", "char": "CHAR", "varchar": "STRING", "interval": "INTERVAL", "string": "STRING"}
# ColumnTypeName of unity-catalog-2.1.yaml.
_OTHER_NAMES = {"ARRAY", "MAP", "STRUCT", "USER_DEFINED_TYPE", "TABLE_TYPE"}
_TYPE_NAMES = {name for _, name in _PRIMITIVES.values()} | {*_PARAMETRIC.values()} | _OTHER_NAMES
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_SCHEMA_STRING_KEYS = {
    "element-type": "elementType",
    "contains-null": "containsNull",
    "key-type": "keyType",
    "value-type": "valueType",
    "value-contains-null": "valueContainsNull",
}
_CHILD_KEYS = {"array": ("elementType",), "map": ("keyType", "valueType")}
_NULL_KEYS = {"array": "containsNull", "map": "valueContainsNull"}


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def schema_string_type(data_type: Any) -> Any:
    """`data_type` in the spelling of a Delta schemaString, decimals as text.

    Raises InvalidParameterError for a type that is neither a name nor an array, map, struct or decimal.
    """
    if isinstance(data_type, str):
        return data_type
    if not _is_object(data_type):
        raise InvalidParameterError(f"Column type {data_type!r} is neither a name nor an object with a 'type'.")
    plain: Json = {_SCHEMA_STRING_KEYS.get(key, key): value for key, value in data_type.items()}
    kind = plain.get("type")
    if kind == "decimal" and {"precision", "scale"} <= plain.keys():
        return f"decimal({plain['precision']},{plain['scale']})"
    if kind == "struct":
        return {"type": "struct", "fields": [_schema_string_field(field) for field in _fields(plain)]}
    children = _CHILD_KEYS.get(str(kind), ())
    whole = children and all(child in plain for child in children)
    if not whole or not isinstance(plain.get(_NULL_KEYS[str(kind)]), bool):
        raise InvalidParameterError(f"Column type {json.dumps(data_type)[:200]} is not an array, map, struct or decimal.")
    return plain | {child: schema_string_type(plain[child]) for child in children}


def _schema_string_field(field: Json) -> Json:
    return field | {"type": schema_string_type(field["type"])}


def _fields(struct: Json) -> list[Json]:
    fields: Any = struct.get("fields")
    if not _is_list(fields):
        raise InvalidParameterError("A struct type needs 'fields', an array.")
    for field in fields:
        if not _is_object(field) or not isinstance(field.get("name"), str) or "type" not in field:
            raise InvalidParameterError(f"A struct field needs 'name' and 'type': {json.dumps(field)[:200]}.")
        if not isinstance(field.get("nullable", True), bool) or not _is_object(field.get("metadata", {})):
            raise InvalidParameterError(f"Field {field['name']}: 'nullable' is a boolean and 'metadata' an object.")
    return fields


def type_text(data_type: Any) -> str:
    """The SQL name of a Delta type: `bigint`, `array<struct<a:int>>`, `decimal(10,2)`."""
    plain = schema_string_type(data_type)
    if isinstance(plain, str):
        return _PRIMITIVES[plain][0] if plain in _PRIMITIVES else plain
    if plain["type"] == "array":
        return f"array<{type_text(plain['elementType'])}>"
    if plain["type"] == "map":
        return f"map<{type_text(plain['keyType'])},{type_text(plain['valueType'])}>"
    return "struct<" + ",".join(f"{f['name']}:{type_text(f['type'])}" for f in plain["fields"]) + ">"


def type_name(data_type: Any) -> str:
    """The ColumnTypeName of a Delta type (unity-catalog-2.1.yaml): LONG, STRUCT, DECIMAL, …."""
    plain = schema_string_type(data_type)
    if not isinstance(plain, str):
        return str(plain["type"]).upper()
    if plain in _PRIMITIVES:
        return _PRIMITIVES[plain][1]
    return _PARAMETRIC.get(re.split(r"[( ]", plain)[0], "USER_DEFINED_TYPE")


def check_type_name(name: str) -> str:
    """Return a ColumnTypeName, or raise ValueError."""
    if name not in _TYPE_NAMES:
        raise ValueError(f"{name} is not one of {', '.join(sorted(_TYPE_NAMES))}")
    return name


def column_infos(struct: Json, partition_columns: list[str]) -> list[Json]:
    """The ColumnInfo array of a Delta struct, partition columns (matched without case) with their index."""
    partitions = {name.lower(): index for index, name in enumerate(partition_columns)}
    return [
        _column_info(_schema_string_field(field), position, partitions) for position, field in enumerate(_fields(struct))
    ]


def _column_info(field: Json, position: int, partitions: dict[str, int]) -> Json:
    decimal = _DECIMAL.fullmatch(field["type"]) if isinstance(field["type"], str) else None
    metadata = field.get("metadata", {})
    return {
        "name": field["name"],
        "type_text": type_text(field["type"]),
        "type_json": json.dumps(field, separators=(",", ":"), ensure_ascii=False),
        "type_name": type_name(field["type"]),
        "type_precision": int(decimal[1]) if decimal else None,
        "type_scale": int(decimal[2]) if decimal else None,
        "type_interval_type": None,
        "position": position,
        "comment": metadata.get("comment"),
        "nullable": field.get("nullable", True),
        "partition_index": partitions.get(field["name"].lower()),
    }


def struct_of(infos: list[Json]) -> Json | None:
    """The Delta struct of ColumnInfos, or None when a column has no usable `type_json`.

    Clients put into `type_json` either the whole field (Spark) or only its type.
    """
    fields: list[Json] = []
    for info in infos:
        try:
            parsed: Any = json.loads(info.get("type_json") or "")
        except ValueError:
            return None
        if not (_is_object(parsed) and "name" in parsed and "metadata" in parsed):
            comment = {"comment": info["comment"]} if info.get("comment") else {}
            parsed = {"name": info["name"], "type": parsed, "nullable": info.get("nullable", True), "metadata": comment}
        fields.append(parsed)
    struct: Json = {"type": "struct", "fields": fields}
    try:
        schema_string_type(struct)
    except InvalidParameterError:
        return None
    return struct


def partition_columns_of(infos: list[Json]) -> list[str]:
    """Names of the partition columns among ColumnInfos, in the order of their index."""
    indexed = [(info["partition_index"], info["name"]) for info in infos if info.get("partition_index") is not None]
    return [name for _, name in sorted(indexed)]


def check_struct(struct: Json) -> None:
    """Refuse an invalid Delta schema: not a struct, a malformed type, two fields of one name.

    Names are compared under ASCII lower case at every level (DeltaStructField in unity-catalog-delta-v1.yaml).
    """
    if struct.get("type") != "struct":
        raise InvalidParameterError('\'columns\' must be a struct type: {"type": "struct", "fields": […]}.')
    try:
        json.dumps(struct, allow_nan=False)
    except ValueError:
        raise InvalidParameterError("'columns' has a number that JSON cannot express (NaN or an infinity).") from None
    for level in _structs(schema_string_type(struct)):
        seen: set[str] = set()
        for field in level["fields"]:
            if not {"nullable", "metadata"} <= field.keys():
                raise InvalidParameterError(f"Field {field['name']} needs 'nullable' and 'metadata'.")
            if field["name"].lower() in seen:
                raise InvalidParameterError(f"Two columns are named {field['name']!r} (names ignore case); rename one.")
            seen.add(field["name"].lower())


def _structs(data_type: Any) -> Iterator[Json]:
    if not _is_object(data_type):
        return
    if data_type["type"] == "struct":
        yield data_type
        for field in data_type["fields"]:
            yield from _structs(field["type"])
        return
    for child in _CHILD_KEYS[data_type["type"]]:
        yield from _structs(data_type[child])


def check_column_references(struct: Json, partition_columns: list[str], clustering: list[list[str]]) -> None:
    """Refuse partition or clustering columns that the schema does not have.

    Partition columns are logical names; clustering paths are physical ones when column mapping is on.
    """
    fields = _fields(struct)
    logical = {field["name"].lower() for field in fields}
    physical = {str(field.get("metadata", {}).get("delta.columnMapping.physicalName", "")).lower() for field in fields}
    for name in partition_columns:
        if name.lower() not in logical:
            raise InvalidParameterError(f"Partition column {name!r} is not a column of the table.")
    for path in clustering:
        if not path or path[0].lower() not in logical | physical:
            raise InvalidParameterError(f"Clustering column {'.'.join(path)!r} is not a column of the table.")
