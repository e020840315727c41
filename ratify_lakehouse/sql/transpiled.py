"""SQL of our own that is written once, in Spark's words, and run by DuckDB as well."""

import sqlglot


def by_duckdb(text: str) -> str:
    """Return a query of Spark in DuckDB's SQL; one of fixed form, whose functions both engines have."""
    return sqlglot.transpile(text, read="databricks", write="duckdb")[0]
