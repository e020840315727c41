"""Mistakes in declarations of full lists, and of their history: each error names the file, the line and the field."""

import pytest

from tests.components.test_declaration_mistakes import BRONZE, DAYS, GOLD, Mistakes, load, mistakes

__all__ = ["mistakes"]

SNAPSHOT = "  contents: snapshot\n"
LISTS = "  strategy: scd2\n  history: {from_snapshots: bronze.orders}\n"
LISTED = "SELECT day, amount, _list_date FROM bronze.orders"


@pytest.mark.parametrize(
    ("more", "place", "reason"),
    [
        ("  list_date: {landing: true}\n", "line 5, list_date", "only a snapshot has the date of a list"),
        (SNAPSHOT + "  on_rewrite: append\n", "line 6, on_rewrite", "new content of a list is its correction"),
        (SNAPSHOT + "  landed: rewrite\n", "line 6, landed", "a list is known by its bytes and its name"),
        (SNAPSHOT + "  change_data_feed: true\n", "line 5, contents", "a corrected file cannot replace rows of a table"),
        (SNAPSHOT + "  list_date: {name: '%Y%m%d', landing: true}\n", "line 6, list_date", "comes from one place: give one"),
        (SNAPSHOT + "  list_date: {name: '%Y-%m'}\n", "line 6, list_date.name", "'%Y-%m' has no whole date"),
        (
            SNAPSHOT + "  list_date: {column: b}\n  columns: [{name: a}]\n",
            "line 6, list_date.column",
            "'b' is not a column of the table",
        ),
    ],
)
def test_in_a_table_of_landed_files_it_is_named(mistakes: Mistakes, more: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE + more)
    error = mistakes.error()
    assert f"bronze/orders/defs.yaml, {place}" in error
    assert reason in error


@pytest.mark.parametrize(
    ("bronze", "more", "sql", "place", "reason"),
    [
        ("", LISTS, LISTED, "line 6, history.from_snapshots", "bronze.orders has no full lists: name a table of the kind"),
        (SNAPSHOT, LISTS.replace("orders", "others"), LISTED, "line 6, history.from_snapshots", "It reads: bronze.orders."),
        (SNAPSHOT, LISTS, DAYS, "line 6, history.from_snapshots", "the query does not give _list_date, the date of"),
        (
            SNAPSHOT,
            LISTS.replace("}", ", updated_at: amount}"),
            LISTED,
            "line 6, history.updated_at",
            "the date of its list says since when",
        ),
        (
            SNAPSHOT,
            LISTS.replace("}", ", invalidate_hard_deletes: false}"),
            LISTED,
            "line 6, history.invalidate_hard_deletes",
            "a full list says which rows there are",
        ),
        (
            SNAPSHOT,
            LISTS + "  intermediate_columns: [_list_date]\n",
            LISTED,
            "line 6, history.from_snapshots",
            "'_list_date' is not a column of the table",
        ),
        (
            SNAPSHOT,
            LISTS.replace("  strategy", "  keys: [day, _list_date]\n  strategy"),
            LISTED,
            "line 6, history",
            "'_list_date' is a key, so that each list would have rows of its own",
        ),
    ],
)
def test_in_a_table_of_history_it_is_named(
    mistakes: Mistakes, bronze: str, more: str, sql: str, place: str, reason: str
) -> None:
    mistakes.write("bronze/orders", BRONZE + bronze)
    gold = GOLD.replace("  keys: [day]\n", "") if "keys:" in more else GOLD
    mistakes.write("gold/days", gold + more, sql)
    error = mistakes.error()
    assert f"gold/days/defs.yaml, {place}" in error
    assert reason in error


def test_lists_and_their_history_are_accepted(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE + SNAPSHOT)
    mistakes.write("gold/days", GOLD + LISTS, LISTED)
    load(mistakes.tables())
