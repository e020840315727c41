"""Column types: Delta's schema JSON, in which they are stored, and Unity Catalog's ColumnInfo.

Delta's JSON comes in two spellings: `elementType`, `containsNull` (a table's schemaString) and `element-type`,
`contains-null` (the delta/v1 API). Both are accepted and stored as sent; `type_json` always uses the first.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError
from ratify_lakehouse.embedded.catalog.object_names import folded
from ratify_lakehouse.embedded.catalog.type_text import delta_type

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
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*\)")
# Beside the primitives and decimals: what a Delta table may have, and what only the other formats may.
_DELTA_TYPE = re.compile(r"(geometry|geography)\([A-Za-z0-9:, ]{1,40}\)|string collate [A-Za-z0-9_]{1,40}")
_UNIT = "(year|month|day|hour|minute|second)"
_OTHER_TYPE = re.compile(rf"(char|varchar)\(\d{{1,9}}\)|interval {_UNIT}( to {_UNIT})?")
_SHORT_TEXT = re.compile(r"(var)?char\(\d+\)")
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
    partitions = {folded(name): index for index, name in enumerate(partition_columns)}
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
        "position": position,
        "comment": metadata.get("comment"),
        "nullable": field.get("nullable", True),
        "partition_index": partitions.get(folded(field["name"])),
    }


def struct_of(infos: list[Json]) -> Json:
    """The Delta struct of ColumnInfos, in the order of their positions.

    Raises InvalidParameterError for a column without a type, and where `type_json`, `type_text` and `type_name` differ.
    """
    if all(info.get("position") is not None for info in infos):
        infos = sorted(infos, key=lambda info: info["position"])
    try:
        return {"type": "struct", "fields": [_field_of(info) for info in infos]}
    except RecursionError:
        raise InvalidParameterError("A column's type is nested too deep.") from None


def _field_of(info: Json) -> Json:
    name, text = info["name"], info.get("type_text")
    field: Json = {"name": name, "type": None, "nullable": info.get("nullable", True), "metadata": {}}
    if info.get("comment"):
        field["metadata"] = {"comment": info["comment"]}
    if info.get("type_json") is not None:
        field |= _parsed_json(info)
    elif text is not None:
        field["type"] = delta_type(text)
    else:
        raise InvalidParameterError(f"Column {name!r} has no type: send its type_json or its type_text.")
    plain = schema_string_type(field["type"])
    if text is not None and not _is_text_of(text, plain):
        raise InvalidParameterError(f"Column {name!r}: type_text is {text[:200]!r} and type_json says {type_text(plain)}.")
    known = (None, type_name(plain), "CHAR" if plain == "string" else None)
    if info.get("type_name") not in known:
        raise InvalidParameterError(f"Column {name!r}: type_name is {info['type_name']} for the type {type_text(plain)}.")
    return field


def _parsed_json(info: Json) -> Json:
    """What `type_json` says of a field: Spark sends the whole of it, other clients only its type."""
    name = info["name"]
    try:
        parsed: Any = json.loads(info["type_json"])
    except ValueError as error:
        raise InvalidParameterError(f"Column {name!r}: type_json is not JSON ({error}).") from None
    if not (_is_object(parsed) and "name" in parsed):
        return {"type": parsed}
    [field] = _fields({"fields": [parsed]})
    for key in ("name", "nullable"):
        if key in info and field.get(key, info[key]) != info[key]:
            raise InvalidParameterError(f"Column {name!r}: its {key} is {info[key]!r}, and {field[key]!r} in type_json.")
    return {key: field[key] for key in ("type", "nullable", "metadata") if key in field}


def _is_text_of(text: str, plain: Any) -> bool:
    """Whether `text` names the type. Spark does not quote names in it, and a char column is a string to Delta."""
    wanted = _squeezed(type_text(plain))
    return _squeezed(text) == wanted or _squeezed(type_text(delta_type(text))) == wanted


def _squeezed(text: str) -> str:
    return _SHORT_TEXT.sub("string", "".join(folded(text).split()))


def partition_columns_of(infos: list[Json]) -> list[str]:
    """Names of the partition columns among ColumnInfos, in the order of their index."""
    indexed = [(info["partition_index"], info["name"]) for info in infos if info.get("partition_index") is not None]
    return [name for _, name in sorted(indexed)]


def check_struct(struct: Json, *, delta: bool = True) -> None:
    """Refuse an invalid schema: not a struct, an unknown or malformed type, two fields of one name.

    Names are compared without their case at every level (DeltaStructField in unity-catalog-delta-v1.yaml). Tables of
    other formats (`delta` is false) may have types that Delta does not know.
    """
    if struct.get("type") != "struct":
        raise InvalidParameterError('\'columns\' must be a struct type: {"type": "struct", "fields": […]}.')
    try:
        json.dumps(struct, allow_nan=False)
    except ValueError:
        raise InvalidParameterError("'columns' has a number that JSON cannot express (NaN or an infinity).") from None
    for data_type in _types(schema_string_type(struct)):
        if isinstance(data_type, str):
            _check_plain(data_type, delta=delta)
        elif data_type["type"] == "struct":
            _check_fields(data_type["fields"])


def _check_plain(name: str, *, delta: bool) -> None:
    if name in _PRIMITIVES or _DELTA_TYPE.fullmatch(name) or (not delta and _OTHER_TYPE.fullmatch(name)):
        return
    decimal = _DECIMAL.fullmatch(name)
    if not decimal or not 0 <= int(decimal[2]) <= int(decimal[1]) <= 38:
        raise InvalidParameterError(f"{name[:200]!r} is not a column type{' of Delta' if delta else ''}.")


def _check_fields(fields: list[Json]) -> None:
    seen: set[str] = set()
    for field in fields:
        if not {"nullable", "metadata"} <= field.keys():
            raise InvalidParameterError(f"Field {field['name']} needs 'nullable' and 'metadata'.")
        if folded(field["name"]) in seen:
            raise InvalidParameterError(f"Two columns are named {field['name']!r} (names ignore case); rename one.")
        seen.add(folded(field["name"]))


def _types(data_type: Any) -> Iterator[Any]:
    """A type, and every type in it."""
    yield data_type
    if _is_object(data_type):
        inner = [data_type[child] for child in _CHILD_KEYS.get(data_type["type"], ())]
        for child in inner or [field["type"] for field in data_type["fields"]]:
            yield from _types(child)


def check_column_references(struct: Json, partition_columns: list[str], clustering: list[list[str]]) -> None:
    """Refuse partition or clustering columns that the schema does not have.

    Partition columns are logical names; clustering paths are physical ones when column mapping is on.
    """
    fields = _fields(struct)
    logical = {folded(field["name"]) for field in fields}
    physical = {folded(str(field.get("metadata", {}).get("delta.columnMapping.physicalName", ""))) for field in fields}
    for name in partition_columns:
        if folded(name) not in logical:
            raise InvalidParameterError(f"Partition column {name!r} is not a column of the table.")
    for path in clustering:
        if not path or folded(path[0]) not in logical | physical:
            raise InvalidParameterError(f"Clustering column {'.'.join(path)!r} is not a column of the table.")
