"""Queries that decode Avro, for a Spark that cannot: `from_avro` needs a package that not every server has."""

import json
from typing import Any

from ratify_lakehouse.sql.spark_sql import identifier

FUNCTION = "from_avro"

_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "string": "STRING",
    "enum": "STRING",
}
_LOGICAL = {"timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP", "date": "DATE"}


def without_avro(text: str) -> str:
    """Return a query in which each call of `from_avro` is NULL, of the type that the call has by its schema.

    Raises:
        ValueError: the schema of a call is not written in it, or is no record of types that Spark reads from Avro.
    """
    import sqlglot
    from sqlglot.tokenizer_core import TokenType

    tokens = sqlglot.tokenize(text, "databricks")
    parts, at = list[str](), 0
    for first, token in enumerate(tokens):
        if token.text.lower() != FUNCTION or token.start < at:
            continue
        depth, schema = 0, ""
        for inner in tokens[first + 1 :]:
            depth += (inner.token_type is TokenType.L_PAREN) - (inner.token_type is TokenType.R_PAREN)
            if inner.token_type is TokenType.STRING and depth == 1:
                schema = inner.text
            if depth == 0:
                parts += [text[at : token.start], f"CAST(NULL AS {_type(json.loads(schema))})"]
                at = inner.end + 1
                break
    return "".join([*parts, text[at:]])


def _type(schema: Any) -> str:
    """The Spark type of a value in Avro."""
    match schema:
        case [*branches] if len(given := [branch for branch in branches if branch != "null"]) == 1:
            found = _type(given[0])
        case str() if schema in _PLAIN:
            found = _PLAIN[schema]
        case {"logicalType": "decimal", "precision": precision}:
            found = f"DECIMAL({precision}, {schema.get('scale', 0)})"
        case {"logicalType": str(logical)} if logical in _LOGICAL:
            found = _LOGICAL[logical]
        case {"type": "record", "fields": fields}:
            named = (f"{identifier(field['name'])}: {_type(field['type'])}" for field in fields)
            found = f"STRUCT<{', '.join(named)}>"
        case {"type": "array", "items": items}:
            found = f"ARRAY<{_type(items)}>"
        case {"type": "map", "values": values}:
            found = f"MAP<STRING, {_type(values)}>"
        case {"type": kind}:
            found = _type(kind)
        case _:
            raise ValueError(f"a Spark without Avro cannot type {json.dumps(schema)} in a call of {FUNCTION}")
    return found
