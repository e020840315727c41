"""Type names: what DuckDB and the SDKs read in ColumnInfo."""

import json

import pytest

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError
from ratify_lakehouse.embedded.catalog.column_json import check_struct, column_infos, struct_of, type_name, type_text
from ratify_lakehouse.embedded.catalog.type_text import delta_type

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


WHOLE = '{"name": "id", "type": "long", "nullable": false, "metadata": {"comment": "c"}}'


@pytest.mark.parametrize(
    ("info", "delta_type"),
    [
        ({"type_json": '"long"', "comment": "c"}, "long"),
        ({"type_json": WHOLE}, "long"),
        ({"type_json": WHOLE, "nullable": False, "type_text": "BIGINT", "type_name": "LONG", "comment": "x"}, "long"),
        ({"type_text": " bigint ", "comment": "c"}, "long"),
        ({"type_json": '"string"', "type_text": "varchar(10)", "type_name": "CHAR", "comment": "c"}, "string"),
        ({"type_text": "Numeric", "comment": "c"}, "decimal(10,0)"),
        ({"type_json": '"decimal(12,2)"', "type_text": "decimal(12, 2)", "type_name": "DECIMAL", "comment": "c"}, None),
    ],
)
def test_the_field_of_a_column(info: dict[str, object], delta_type: str | None) -> None:
    delta_type = delta_type or "decimal(12,2)"
    [field] = struct_of([{"name": "id", **info}])["fields"]
    whole = info.get("type_json") == WHOLE
    assert field == {"name": "id", "type": delta_type, "nullable": not whole, "metadata": {"comment": "c"}}


@pytest.mark.parametrize(
    "text",
    [
        "array<bigint>",
        "map<string,array<decimal(10,2)>>",
        "struct<a:int,b:struct<c:map<int,string>,d:date>>",
        "struct<>",
        "array<" * 100 + "int" + ">" * 100,
    ],
)
def test_text_and_type_are_one(text: str) -> None:
    assert type_text(delta_type(text)) == text
    both = {"name": "x", "type_text": text.upper(), "type_json": json.dumps(delta_type(text))}
    assert struct_of([both]) == struct_of([{"name": "x", "type_text": text}])


def test_quoted_field_names() -> None:
    assert delta_type("struct<`a,``:b`: int, c string>")["fields"] == [_field("a,`:b", "integer"), _field("c", "string")]


INJECTED = "int); GRANT ALL PRIVILEGES ON CATALOG `ratify` TO `eve"


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"type_name": "INT"},
        {"type_json": "long"},
        {"type_json": ""},
        {"type_json": "{}"},
        {"type_json": "7"},
        {"type_json": '"long", "long"'},
        {"type_json": '"flurb"'},
        {"type_json": json.dumps(INJECTED)},
        {"type_json": "[" * 100_000},
        {"type_json": '"long"', "type_text": "int"},
        {"type_json": '"long"', "type_text": INJECTED},
        {"type_json": '"long"', "type_name": "INT"},
        {"type_json": WHOLE, "nullable": True},
        {"type_json": WHOLE.replace('"id"', '"other"')},
        {"type_text": INJECTED},
        {"type_text": "int NOT NULL"},
        {"type_text": "varchar(10)"},
        {"type_text": f"struct<a:{INJECTED}>"},
        {"type_text": "struct<a>"},
        {"type_text": "array<int,int>"},
        {"type_text": "map<int>"},
        {"type_text": "array<int>>"},
        {"type_text": "array<" * 5000 + "int" + ">" * 5000},
        {"type_text": "array<" * 101 + "int" + ">" * 101},
        {"type_text": "decimal(39,1)"},
        {"type_text": "decimal(5,6)"},
        {"type_text": "decimal(" + "1" * 5000 + ")"},
        {"type_text": "struct<a:int,A:int>"},
    ],
)
def test_columns_without_one_known_type_are_refused(info: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        check_struct(struct_of([{"name": "id", **info}]))


def test_other_formats_have_more_types() -> None:
    for text in ("varchar(10)", "char(3)", "interval day to second"):
        check_struct(struct_of([{"name": "id", "type_text": text}]), delta=False)
    with pytest.raises(InvalidParameterError):
        check_struct(struct_of([{"name": "id", "type_text": INJECTED}]), delta=False)


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
        _struct(_field("straße"), _field("STRASSE")),
        _struct(_field("a", INJECTED)),
        _struct(_field("a", {"type": "array", "elementType": "varchar(10)", "containsNull": True})),
        _struct(_field("a", {"type": "decimal", "precision": "1); GRANT", "scale": 1})),
        _struct(_field("s", _struct(_field("b"), _field("B")))),
        _struct({**_field("id"), "metadata": {"x": float("nan")}}),
    ],
)
def test_malformed_schemas_are_refused(struct: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        check_struct(struct)
