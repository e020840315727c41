"""SQL of our own that is written once, in Spark's words, and run by DuckDB as well."""

import re

import sqlglot

_PLACE, _NAMED = re.compile(r"\{(\w+)\}"), re.compile(r"\bratify_place_(\w+)\b")


def by_duckdb(text: str) -> str:
    """Return a query of Spark in DuckDB's SQL; one of fixed form, whose functions both engines have."""
    return sqlglot.transpile(text, read="databricks", write="duckdb")[0]


def template_by_duckdb(text: str) -> str:
    """As `by_duckdb`, of a query in which `{name}` stands for a relation; other braces of the result are doubled."""
    found = by_duckdb(_PLACE.sub(r"ratify_place_\1", text))
    return _NAMED.sub(r"{\1}", found.replace("{", "{{").replace("}", "}}"))
