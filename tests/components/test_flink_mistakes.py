"""Mistakes in declarations of tables of Flink: as test_declaration_mistakes.py has those of other tables."""

import pytest

from tests.components.test_declaration_mistakes import Mistakes, mistakes

__all__ = ["mistakes"]

HEAD = """type: ratify_lakehouse.FlinkSql
attributes:
  description: Clicks a minute
"""
TOPICS = "  topics: [{topic: clicks, name: clicks}]\n"
REST = "  keys: [user]\n  columns:\n    - {name: user, type: string}\n    - {name: at, type: timestamp}\n"
QUERY = "SELECT `key` AS user, `timestamp` AS at FROM clicks\n"


@pytest.mark.parametrize(
    ("attributes", "sql", "place", "reason"),
    [
        (REST, QUERY, "defs.yaml:2", "topics"),
        ("  topics: []\n" + REST, QUERY, "defs.yaml:4", "at least 1 item"),
        (TOPICS + REST, "", "line 2, sql", "silver/clicks/clicks.sql does not exist"),
        (TOPICS + REST, "\n", "line 2, sql", "silver/clicks/clicks.sql is empty"),
        (TOPICS + REST.replace("timestamp", "money"), QUERY, "columns[1]", "type 'money' is not one"),
        (
            TOPICS + REST.replace("[user]", "[users]"),
            QUERY,
            "line 5, keys[0]",
            "users is not a column: choose from user, at",
        ),
        (
            "  topics: [{topic: a, name: clicks}, {topic: b, name: clicks}]\n" + REST,
            QUERY,
            "topics[1].name",
            "Two topics have the name clicks",
        ),
        ("  topics: [{topic: a, name: my clicks}]\n" + REST, QUERY, "defs.yaml:4", "name"),
        (
            "  topics: [{topic: a, name: clicks, time: {expression: now(), allowed: an hour}}]\n" + REST,
            QUERY,
            "defs.yaml:4",
            "allowed",
        ),
        (
            TOPICS + REST + "  equal_to: {table: clicks, time: at}\n",
            QUERY,
            "equal_to.table",
            "is not a table name: write schema.table",
        ),
        (TOPICS + REST + "  equal_to: {table: gold.clicks, time: t}\n", QUERY, "equal_to.time", "t is not a column"),
        (TOPICS + REST + "  state: soon\n", QUERY, "defs.yaml:9", "state"),
        (TOPICS + REST + "  isolation: committed\n", QUERY, "isolation", "read_committed"),
        (TOPICS + REST + "  parallelism: 0\n", QUERY, "defs.yaml:9", "parallelism"),
    ],
)
def test_a_mistake_is_named_with_its_place(mistakes: Mistakes, attributes: str, sql: str, place: str, reason: str) -> None:
    mistakes.write("silver/clicks", HEAD + attributes, sql)
    error = mistakes.error()
    assert "silver/clicks/defs.yaml" in error
    assert place in error
    assert reason in error
