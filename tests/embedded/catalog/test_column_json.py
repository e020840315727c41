"""Type names: what DuckDB and the SDKs read in ColumnInfo."""

import json

import pytest

from embedded.catalog.api_errors import InvalidParameterError
from embedded.catalog.column_json import check_struct, column_infos, struct_of, type_name, type_text

NESTED = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": {"type": "array", "elementType": "long", "containsNull": True}, "nullable": True},
        {"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
    ],
}


@pytest.mark.parametrize(
    ("delta_type", "text", "name"),
    [
        ("long", "bigint", "LONG"),
        ("integer", "int", "INT"),
        ("short", "smallint", "SHORT"),
        ("byte", "tinyint", "BYTE"),
        ("timestamp_ntz", "timestamp_ntz", "TIMESTAMP_NTZ"),
        ("decimal(38,18)", "decimal(38,18)", "DECIMAL"),
        ({"type": "decimal", "precision": 5, "scale": 1}, "decimal(5,1)", "DECIMAL"),
        ("interval day to second", "interval day to second", "INTERVAL"),
        ("geometry(4326)", "geometry(4326)", "USER_DEFINED_TYPE"),
        (NESTED, "struct<a:array<bigint>,d:decimal(10,2)>", "STRUCT"),
        ({"type": "array", "element-type": NESTED, "contains-null": True}, f"array<{type_text(NESTED)}>", "ARRAY"),
        (
            {"type": "map", "key-type": "string", "value-type": "double", "value-contains-null": True},
            "map<string,double>",
            "MAP",
        ),
    ],
)
def test_sql_text_and_name_of_delta_types(delta_type: object, text: str, name: str) -> None:
    assert (type_text(delta_type), type_name(delta_type)) == (text, name)


def test_column_infos_and_back() -> None:
    hyphenated = {"type": "array", "element-type": "long", "contains-null": False}
    fields = [
        {"name": "Id", "type": "decimal(10,2)", "nullable": False, "metadata": {"comment": "key"}},
        {"name": "xs", "type": hyphenated, "nullable": True, "metadata": {}},
    ]
    first, second = column_infos({"type": "struct", "fields": fields}, ["id"])
    assert (first["type_precision"], first["type_scale"], first["comment"]) == (10, 2, "key")
    assert (first["nullable"], first["partition_index"], second["partition_index"]) == (False, 0, None)
    plain = {"type": "array", "elementType": "long", "containsNull": False}
    assert json.loads(second["type_json"]) == {"name": "xs", "type": plain, "nullable": True, "metadata": {}}
    assert struct_of([first, second]) == {"type": "struct", "fields": [fields[0], {**fields[1], "type": plain}]}


def test_struct_of_a_bare_type_json_and_of_none() -> None:
    bare = {"name": "id", "type_json": '"long"', "nullable": True, "comment": "c"}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {"comment": "c"}}
    assert struct_of([bare]) == {"type": "struct", "fields": [field]}
    assert struct_of([{"name": "id", "type_json": None}]) is None


def _struct(*fields: object) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


def _field(name: str, delta_type: object = "long") -> dict[str, object]:
    return {"name": name, "type": delta_type, "nullable": True, "metadata": {}}


@pytest.mark.parametrize(
    "struct",
    [
        {"type": "long"},
        {"type": "struct"},
        _struct("id"),
        _struct({"name": "id"}),
        _struct(_field("id", 7)),
        _struct(_field("id", {"type": "array"})),
        _struct(_field("id", {"type": "set", "elementType": "long"})),
        _struct(_field("a"), _field("A")),
        _struct(_field("s", _struct(_field("b"), _field("B")))),
        _struct({**_field("id"), "metadata": {"x": float("nan")}}),
    ],
)
def test_malformed_schemas_are_refused(struct: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        check_struct(struct)
