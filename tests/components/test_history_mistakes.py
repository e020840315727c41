"""Mistakes in the strategies `append_by_period` and `scd2`: each error names the file, the line and the field."""

import pytest

from tests.components.test_declaration_mistakes import BRONZE, DAYS, GOLD, Mistakes, mistakes, reconcile

__all__ = ["mistakes"]

BY_PERIOD = "  strategy: append_by_period\n  append_by_period: {period: day}\n"
HISTORY = "  strategy: scd2\n  history: {updated_at: amount}\n"


@pytest.mark.parametrize(
    ("more", "sql", "place", "reason"),
    [
        (
            "  strategy: append_by_period\n",
            DAYS,
            "line 5, strategy",
            "it needs `append_by_period`: the column with the period of a row",
        ),
        (
            BY_PERIOD.replace("day}", "dey}"),
            DAYS,
            "line 6, append_by_period.period",
            "'dey' is not a column of the table, whose query",
        ),
        (
            BY_PERIOD + "  intermediate_columns: [day]\n",
            DAYS,
            "line 6, append_by_period.period",
            "'day' is not a column of the table, whose query",
        ),
        (BY_PERIOD + reconcile("bronze.orders", "[day]"), DAYS, "line 7, reconcile", "that an input gets later are in no"),
        (
            BY_PERIOD + "  expectations:\n    - {name: a, expect: amount > 0, action: quarantine}\n",
            DAYS,
            "line 8, expectations[0].action",
            "a quarantines rows, and a row that leaves quarantine later could not enter a period",
        ),
        (
            "  append_by_period: {period: day}\n",
            DAYS,
            "line 5, append_by_period",
            "only a table of the strategy append_by_period has periods",
        ),
        ("  history: {updated_at: day}\n", DAYS, "line 5, history", "only a table of the strategy scd2 has a history"),
        ("  strategy: scd2\n", "SELECT day, now() AS n FROM bronze.orders", "line 5, strategy", "depends on more than"),
        (
            "  strategy: scd2\n",
            "SELECT day, 1 AS current FROM bronze.orders",
            "line 5, strategy",
            "the query returns current",
        ),
        ("  strategy: scd2\n" + reconcile("bronze.orders", "[day]"), DAYS, "line 6, reconcile", "versions of rows, which"),
        (
            HISTORY.replace("amount", "seen"),
            DAYS,
            "line 6, history.updated_at",
            "'seen' is not a column of the table, whose",
        ),
        (HISTORY.replace("amount", "day"), DAYS, "line 6, history.updated_at", "'day' is a key, so each change would"),
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
            "'seen' is not a column of the table",
        ),
        (
            HISTORY.replace("}", ", invalidate_hard_deletes: keep}"),
            DAYS,
            "line 6, history.invalidate_hard_deletes",
            "should be a valid boolean",
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
    declaration = GOLD.replace("  keys: [day]\n", "") + BY_PERIOD + "  unique: {latest: [amount]}\n"
    mistakes.write("gold/days", declaration, DAYS)
    error = mistakes.error()
    assert "gold/days/defs.yaml, line 6, unique" in error
    assert "it takes the latest of the rows with the same keys: name them under `keys`." in error
