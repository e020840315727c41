"""What a query cannot be whose table is computed again only where its inputs have changed."""

from collections.abc import Collection, Sequence

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.query_parts import nondeterministic, nondeterministic_predicate, of_other_rows
from ratify_lakehouse.sql.table_query import TableQuery


def check_incremental(strategy: str, query: TableQuery, rules: Sequence[Expectation]) -> None:
    """Check that what a strategy computes of a query, and decides of its rows, is what it would for all rows.

    Args:
        strategy: The table's; not `full`.
        query: The table's.
        rules: Its expectations.

    Raises:
        UnsafeDeclaration: it may not be.
    """
    for number, rule in enumerate(rules):
        # A history is computed from all rows of the query, but only where one of its inputs has a new version.
        if parts := of_other_rows(rule.predicate, query.dialect, windows=strategy != "scd2"):
            raise UnsafeDeclaration(
                f"{rule.name} has {parts[0]}, which looks at other rows, and a run reads only rows that changed: compute "
                "it as a column of the query, or use the strategy full.",
                *("expectations", number, "expect"),
            )
    if strategy != "append_by_period":
        _check_deterministic(query, rules)


def check_day(day: str, strategy: str, known: Collection[str] | None) -> None:
    """Check the column with the day of a row.

    Args:
        day: The column; empty if none is named.
        strategy: The table's.
        known: Its columns; None where not all are known.

    Raises:
        UnsafeDeclaration: the table lacks it, or does not need it.
    """
    if day and strategy != "incremental":
        raise UnsafeDeclaration("only a table of the strategy incremental needs it: remove it.", "day")
    if day and known is not None and day not in known:
        raise UnsafeDeclaration(f"{day!r} is not a column of the table.", "day")


def _check_deterministic(query: TableQuery, rules: Sequence[Expectation]) -> None:
    """Check that the same rows of the inputs of a query always give the same rows of it."""
    if names := nondeterministic(query):
        raise UnsafeDeclaration(
            f"the query has {names[0]}, which depends on more than the rows of its inputs (the time, chance, or the order "
            "in which they are read), so rows could change although their inputs have not: remove it, give it an order, "
            "such as sort_array(…) or ORDER BY, or use the strategy full.",
            "strategy",
        )
    for number, rule in enumerate(rules):
        if rule.action is not Action.WARN and (names := nondeterministic_predicate(rule.predicate, query.dialect)):
            raise UnsafeDeclaration(
                f"{rule.name} has {names[0]}, so its result could change for rows whose inputs have not changed: remove "
                "it, let it only warn, or use the strategy full.",
                *("expectations", number, "expect"),
            )
