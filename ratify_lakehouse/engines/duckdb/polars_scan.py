"""A LazyFrame of Polars over a relation of DuckDB: columns and conditions of a query reach the files.

DuckDB's own LazyFrame translates whole conditions, some to ones that mean something else (`%` of negative numbers). Here,
DuckDB gets the comparisons that mean the same in both, to read less by, and Polars applies its condition to what is read.
"""

# pyright: basic
# Arrow and pandas ship no types.

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

_COMPARISONS = {"Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "Eq": "="}
_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq"}
BATCH_ROWS = 122_880
"""Rows of a batch where nobody says otherwise: those of a row group of DuckDB."""


def lazy_frame(con: "DuckDBPyConnection", query: str) -> "pl.LazyFrame":
    """Return a LazyFrame of the rows of a query.

    Args:
        con: Each scan is a query on a cursor of it: two may run at once, as in a join of the frame with itself.
        query: Names nothing that only this connection has, such as a temporary table.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    empty = pl.from_arrow(con.sql(query).limit(0).to_arrow_table())
    schema = pl.DataFrame(empty).schema

    def scan(
        with_columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, batch_size: int | None
    ) -> "Iterator[pl.DataFrame]":
        relation = con.cursor().sql(query)
        if condition := "" if predicate is None else pushed_condition(predicate, schema):
            relation = relation.filter(condition)
        if with_columns is not None:
            # Polars asks for the columns of its condition, too.
            relation = relation.project(", ".join(map(identifier, with_columns)))
        if n_rows is not None and predicate is None:
            relation = relation.limit(n_rows)
        for batch in relation.to_arrow_reader(batch_size or BATCH_ROWS):
            frame = pl.DataFrame(pl.from_arrow(batch))
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(scan, schema=schema)


def pushed_condition(predicate: "pl.Expr", schema: "Mapping[str, pl.DataType]") -> str:
    """Return the part of a condition of Polars that DuckDB understands alike, in its SQL; empty if there is none.

    Each row for which the condition is true has to pass it.
    """
    # The text is no stable format: what is not known in it is left to Polars.
    tree = json.loads(predicate.meta.serialize(format="json"))
    return " AND ".join(_comparisons(tree, schema))


def _comparisons(tree: Any, schema: "Mapping[str, pl.DataType]") -> Iterator[str]:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _comparisons(left, schema)
            yield from _comparisons(right, schema)
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": {"Literal": value}}}:
            yield from _comparison(name, op, value, schema)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": str(op), "right": {"Column": str(name)}}}:
            yield from _comparison(name, _TURNED.get(op, ""), value, schema)
        case _:
            pass


def _comparison(name: str, op: str, value: Any, schema: "Mapping[str, pl.DataType]") -> Iterator[str]:
    if op in _COMPARISONS and name in schema and (constant := _constant(value, schema[name])):
        yield f"{identifier(name)} {_COMPARISONS[op]} {constant}"


def _constant(value: Any, type_: "pl.DataType") -> str:
    """A literal in DuckDB's SQL; empty if its type is not the column's, as Polars may convert either of them."""
    # {"Dyn": {"Int": 5}} is a number without a type of its own, {"Scalar": {"Int64": 5}} one with it.
    match value:
        case {"Dyn": {**held}} | {"Scalar": {**held}} if len(held) == 1:
            ((kind, constant),) = held.items()
        case _:
            return ""
    found = ""
    match (str(type_), kind, constant):
        case ("Int8" | "Int16" | "Int32" | "Int64", "Int" | "Int8" | "Int16" | "Int32" | "Int64", int(number)):
            found = str(number)
        case ("Float64", "Float" | "Float64", float(number)) if isfinite(number):
            found = f"CAST('{number!r}' AS DOUBLE)"
        case ("String", "String", str(text)) if "\0" not in text:
            found = literal(text)
        case ("Boolean", "Boolean", bool(truth)):
            found = str(truth)
        case ("Date", "Date", int(days)):
            found = f"(DATE '1970-01-01' + {days}::INTEGER)"
        case (_, "Datetime", [int(number), "Microseconds", {"inner": "UTC"}]) if "time_zone='UTC'" in str(type_):
            found = f"make_timestamptz({number}::BIGINT)"
        case _:
            pass
    return found
