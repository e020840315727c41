"""Mistakes in declarations of the strategies `snapshot` and `scd2`: each error names the file, the line and the field."""

import pytest

from tests.components.test_declaration_mistakes import BRONZE, DAYS, GOLD, Mistakes, mistakes, reconcile

__all__ = ["mistakes"]

SNAPSHOT = "  strategy: snapshot\n  snapshot: {period: day}\n"
HISTORY = "  strategy: scd2\n  history: {changed_at: amount}\n"


@pytest.mark.parametrize(
    ("more", "sql", "place", "reason"),
    [
        ("  strategy: snapshot\n", DAYS, "line 5, strategy", "it needs `snapshot`: the column with the period of a row"),
        (SNAPSHOT.replace("day}", "dey}"), DAYS, "line 6, snapshot.period", "'dey' is no column of the table, whose query"),
        (SNAPSHOT + "  helpers: [day]\n", DAYS, "line 6, snapshot.period", "'day' is no column of the table, whose query"),
        (SNAPSHOT + reconcile("bronze.orders", "[day]"), DAYS, "line 7, reconcile", "that an input gets later are in no"),
        (
            SNAPSHOT + "  expectations:\n    - {name: a, expect: amount > 0, action: quarantine}\n",
            DAYS,
            "line 8, expectations[0].action",
            "a quarantines rows, which would leave the quarantine when an input is corrected, but not come into a period",
        ),
        ("  snapshot: {period: day}\n", DAYS, "line 5, snapshot", "only a table of the strategy snapshot has periods"),
        ("  history: {changed_at: day}\n", DAYS, "line 5, history", "only a table of the strategy scd2 has a history"),
        ("  strategy: scd2\n  engine: duckdb\n", DAYS, "line 5, strategy", "only Spark computes what has changed"),
        ("  strategy: scd2\n", "SELECT day, now() AS n FROM bronze.orders", "line 5, strategy", "depends on more than"),
        ("  strategy: scd2\n", "SELECT day, 1 AS current FROM bronze.orders", "line 5, strategy", "the query gives current"),
        ("  strategy: scd2\n" + reconcile("bronze.orders", "[day]"), DAYS, "line 6, reconcile", "versions of rows, which"),
        (HISTORY.replace("amount", "seen"), DAYS, "line 6, history.changed_at", "'seen' is no column of the table, whose"),
        (HISTORY.replace("amount", "day"), DAYS, "line 6, history.changed_at", "'day' is a key, so that each change would"),
        (
            HISTORY.replace("}", ", ignore: [day]}"),
            DAYS,
            "line 6, history.ignore[0]",
            "'day' is a key, or dates the row",
        ),
        (
            HISTORY.replace("}", ", ignore: [seen]}"),
            DAYS,
            "line 6, history.ignore[0]",
            "'seen' is no column of the table",
        ),
        (
            HISTORY.replace("}", ", deleted: keep}"),
            DAYS,
            "line 6, history.deleted",
            "should be 'close' or 'ignore', not 'keep'",
        ),
    ],
)
def test_it_is_named(mistakes: Mistakes, more: str, sql: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("gold/days", GOLD + more, sql)
    error = mistakes.error()
    assert f"gold/days/defs.yaml, {place}" in error
    assert reason in error


def test_the_latest_row_of_a_period_needs_keys(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE)
    declaration = GOLD.replace("  keys: [day]\n", "") + SNAPSHOT + "  unique: {latest: [amount]}\n"
    mistakes.write("gold/days", declaration, DAYS)
    error = mistakes.error()
    assert "gold/days/defs.yaml, line 6, unique" in error
    assert "it takes the latest of the rows with the same keys: name them under `keys`." in error
