"""Mistakes in declarations of tables that follow a change data feed, named with their file, line and field."""

import pytest

from tests.components.test_declaration_mistakes import BRONZE, Mistakes, mistakes

__all__ = ["mistakes"]

TRAIL = "type: components.AuditTrail\nattributes:\n  description: D\n  table: bronze.orders\n  keys: [id]\n"


@pytest.mark.parametrize(
    ("declaration", "place", "reason"),
    [
        (TRAIL, "line 4, table", "bronze.orders records no changes: set `change_data_feed: true` in its defs.yaml"),
        (TRAIL.replace("orders", "order"), "line 4, table", "Did you mean bronze.orders? Say `external: true`"),
        (TRAIL.replace("bronze.", ""), "line 4, table", "'orders' names no table: give it as schema.table"),
        (TRAIL.replace("[id]", "[]"), "defs.yaml:5", "keys"),
        (TRAIL + "  from_version: -1\n", "defs.yaml:6", "from_version"),
    ],
)
def test_in_a_table_that_follows_a_feed(mistakes: Mistakes, declaration: str, place: str, reason: str) -> None:
    feed = "" if declaration == TRAIL else "  change_data_feed: true\n"
    mistakes.write("bronze/orders", BRONZE + feed)
    mistakes.write("gold/followed", declaration)
    error = mistakes.error()
    assert f"gold/followed/defs.yaml, {place}" in error or place in error
    assert reason in error
