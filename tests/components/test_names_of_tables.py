"""Names of tables in declarations and queries: one that names none is refused by its line."""

import re

import pytest

from tests.components.test_declaration_mistakes import BRONZE, DAYS, GOLD, Mistakes, mistakes, reconcile

__all__ = ["mistakes"]

NAMED = "type: ratify_lakehouse.{}\nattributes:\n  description: d\n"
TOPIC = "  topics: [{topic: t, name: e}]\n  keys: [k]\n  columns: [{name: k, type: int}]\n"
FIELDS = {
    "source.table": ("syncs/x", "Sync", "  source:\n    table: {}\n  destination: {{table: a.b}}\n  strategy: append\n", 5),
    "destination.table": (
        "syncs/x",
        "Sync",
        "  source: {{table: bronze.orders}}\n  destination:\n    table: {}\n  strategy: append\n",
        6,
    ),
    "table": ("gold/x", "AuditTrail", "  keys: [k]\n  table: {}\n", 5),
    "equal_to.table": (
        "gold/x",
        "FlinkSql",
        TOPIC.replace("{", "{{").replace("}", "}}") + "  equal_to:\n    table: {}\n    time: k\n",
        8,
    ),
    "external[0]": ("gold/x", "SqlTable", "  keys: [day]\n  external:\n  - {}\n", 6),
    "reconcile.input": ("gold/x", "SqlTable", "  keys: [day]\n" + reconcile("{}", "[day]"), 6),
    "append.input": ("gold/x", "SqlTable", "  strategy: append\n  append:\n    input: {}\n", 6),
}
"""What names a table: folder, kind, attributes, and the line of the field."""


@pytest.mark.parametrize("name", ["a..b", "a...b", ".b", "a.", "'a. b'", "'a.b;c'"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_name_of_no_table(mistakes: Mistakes, field: str, name: str) -> None:
    folder, kind, attributes, line = FIELDS[field]
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write(folder, NAMED.format(kind) + attributes.format(name), DAYS)
    error = mistakes.error()
    assert f"defs.yaml, line {line}, {field}: " in error
    assert name.strip("'") in error


@pytest.mark.parametrize("name", ["a...b", "a..b", "c.a..b", "a.b.c.d"])
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_query_of_no_table(mistakes: Mistakes, name: str, engine: str) -> None:
    mistakes.write("gold/days", f"{GOLD}  engine: {engine}\n", f"SELECT 1 AS day\nFROM {name}\n")
    error = mistakes.error()
    assert re.search(rf"gold/days/days.sql, line 2: .*{re.escape(name)} is not a table name: write schema.table", error), (
        error
    )


def test_a_column_with_a_name_that_no_table_can_have(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("gold/days", GOLD, "SELECT day, amount AS `a..b` FROM bronze.orders")
    assert "'a..b', a column of the query, is not a plain identifier: write AS …" in mistakes.error()
