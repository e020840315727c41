"""Random queries in DuckDB's SQL: those of `random_queries`, transpiled, with types that tables have."""

import re

import duckdb
import sqlglot

from ratify_lakehouse.engines.duckdb.query_types import spark_types
from ratify_lakehouse.sql.duckdb_sql import identifier
from tests.components.random_inputs import COLUMNS
from tests.components.random_queries import RandomQuery

_TYPES = {
    "int": "INTEGER",
    "str": "VARCHAR",
    "dec": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMPTZ",
    "float": "DOUBLE",
    "array": "VARCHAR[]",
    "struct": "STRUCT(x INTEGER, y VARCHAR)",
}
# sqlglot writes these of Spark as DuckDB does not know them, or as other than an array of texts.
_SPARK_ONLY = re.compile(r"\b(get|named_struct|percentile|max_by)\(|IGNORE NULLS", re.IGNORECASE)


def in_duckdb(query: RandomQuery) -> RandomQuery | None:
    """Return a query in DuckDB's SQL; None if it has something that DuckDB, or sqlglot, has not."""
    if _SPARK_ONLY.search(query.text):
        return None
    text = sqlglot.transpile(query.text, read="databricks", write="duckdb")[0]
    with duckdb.connect() as con:
        con.execute("CREATE SCHEMA bronze; SET TimeZone = 'UTC'")
        for name, columns in COLUMNS.items():
            listed = ", ".join(f"{identifier(column)} {_TYPES[kind]}" for column, kind in columns.items())
            con.execute(f"CREATE TABLE bronze.{name} ({listed})")
        try:
            found = spark_types(con, text)
        except duckdb.Error:
            return None
    # DuckDB sums whole numbers as HUGEINT; as decimals, no sum is too great.
    columns = [name if type_ else f"CAST({name} AS DECIMAL(38, 0)) AS {name}" for name, (_, type_) in found.items()]
    if all(type_ for _, type_ in found.values()):
        return RandomQuery(text, query.columns, query.keys, query.kind)
    return RandomQuery(f"SELECT {', '.join(columns)} FROM ({text}) AS summed", query.columns, query.keys, query.kind)
