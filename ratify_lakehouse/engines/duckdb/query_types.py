"""The types of a DuckDB query's columns, as those of a table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.column_types import spark_type_of_duckdb
from ratify_lakehouse.declarations import IDENTIFIER
from ratify_lakehouse.sql.duckdb_sql import identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


ColumnType = tuple[str, str | None]
"""DuckDB's type of a column, and that of Spark; None if no type there holds its values."""


def spark_types(con: "DuckDBPyConnection", query: str) -> dict[str, ColumnType]:
    """Return, for each column of a query, DuckDB's type of it and that of Spark (see `spark_type_of`).

    Raises:
        duckdb.Error: the query is wrong.
    """
    relation = con.sql(query)
    return {name: (str(type_), spark_type_of(type_)) for name, type_ in zip(relation.columns, relation.types, strict=True)}


def with_plain_sums(query: str, types: Mapping[str, ColumnType]) -> tuple[str, dict[str, ColumnType]]:
    """Return a query for the same rows, and the types of its columns, with each HUGEINT as a BIGINT.

    DuckDB sums whole numbers as HUGEINT, which no column of a table can be, and Spark as BIGINT. A sum that is too great for
    one is an error of the query in both.

    Args:
        query: The query.
        types: Those of its columns, as `spark_types` returns them.
    """
    sums = [name for name, (held, _) in types.items() if held == "HUGEINT"]
    if not sums:
        return query, dict(types)
    casts = ", ".join(f"CAST({identifier(name)} AS BIGINT) AS {identifier(name)}" for name in sums)
    return f"SELECT * REPLACE ({casts}) FROM ({query})", {**types, **dict.fromkeys(sums, ("BIGINT", "bigint"))}


def spark_type_of(held: Any, *, inside: bool = False) -> str | None:
    """Return the type of a table's column for one of DuckDB's, in Spark SQL's words; None if no type there holds its values.

    Args:
        held: A `DuckDBPyType`.
        inside: It is the type of a struct's field.
    """
    match held.id:
        case "decimal":
            sizes = dict(held.children)
            return None if inside else f"decimal({sizes['precision']},{sizes['scale']})"
        case "list":
            item = spark_type_of(held.child, inside=inside)
            return f"array<{item}>" if item else None
        case "map":
            key, value = (spark_type_of(part, inside=inside) for _, part in held.children)
            return f"map<{key},{value}>" if key and value else None
        case "struct":
            parts = [(name, spark_type_of(part, inside=True)) for name, part in held.children]
            plain = all(part and IDENTIFIER.fullmatch(name) for name, part in parts)
            return f"struct<{','.join(f'{name}:{part}' for name, part in parts)}>" if plain else None
        case _:
            found = spark_type_of_duckdb(held.id.upper())
            # A timestamp without a zone has another type inside of a struct than the table declares.
            return None if inside and held.id in ("ubigint", "timestamp") else found
