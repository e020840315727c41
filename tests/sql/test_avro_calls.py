"""Queries that decode Avro, rewritten for a Spark that cannot."""

import json

import pytest

from ratify_lakehouse.sql.avro_calls import without_avro

_FIELDS = [
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": {"type": "int"}}},
    {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["a"]}},
]


def test_a_call_is_null_of_its_type_and_all_else_stays() -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": _FIELDS}, indent=1)
    query = "SELECT 'from_avro(' AS a, -- from_avro(\n  {} AS b, FROM_AVRO(f(c), '\"long\"') AS c FROM bronze.t"
    struct = (
        "STRUCT<`at`: TIMESTAMP, `price`: DECIMAL(10, 2), `tags`: ARRAY<STRING>, `counts`: MAP<STRING, INT>, `kind`: STRING>"
    )
    given = query.format(f"from_avro(substring(value, 6), '{schema}', map('mode', 'PERMISSIVE'))")
    assert without_avro(given) == query.format(f"CAST(NULL AS {struct})").replace(
        "FROM_AVRO(f(c), '\"long\"')", "CAST(NULL AS BIGINT)"
    )


@pytest.mark.parametrize("schema", ['["null", "int", "string"]', '"duration"', '{"fields": []}'])
def test_a_type_that_spark_does_not_have_is_an_error(schema: str) -> None:
    with pytest.raises(ValueError, match="a Spark without Avro cannot type"):
        without_avro(f"SELECT from_avro(value, '{schema}') FROM bronze.t")
