"""The attribute `append` of a table: which input drives it, and what a table cannot be whose rows are appended once."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.row_wise_inputs import row_wise_inputs
from ratify_lakehouse.sql.table_query import TableName, TableQuery


class AppendedInput(dg.Model, dg.Resolvable):
    """The input whose new rows a table of the strategy `append` follows."""

    input: str = Field(description="A table that the query reads row by row and that only gets new rows, as schema.table")


def driving_input(query: TableQuery, named: AppendedInput | None) -> TableName:
    """Return the input that a table of the strategy `append` follows.

    Args:
        query: The table's.
        named: What the declaration names.

    Raises:
        UnsafeDeclaration: the query reads none row by row, or several, and none or another one is named.
    """
    found = row_wise_inputs(query)
    if named:
        chosen = [each for each in found if str(each).casefold() == named.input.casefold()]
        if not chosen:
            raise UnsafeDeclaration(
                f"the query does not read {named.input} row by row. It reads these row by row: {_listed(found)}.",
                "append",
                "input",
            )
        return chosen[0]
    if not found:
        raise UnsafeDeclaration(
            "the query reads no input row by row, so new input rows would change rows that were already appended: use "
            "the strategy incremental.",
            "strategy",
        )
    if len(found) > 1:
        raise UnsafeDeclaration(
            f"new rows of each of {_listed(found)} give new rows of the query: name under `append` the input that the "
            "table follows; rows of the others are joined as they are at that time; or use the strategy incremental.",
            "strategy",
        )
    return found[0]


def check_appended(query: TableQuery, rules: Sequence[Expectation], changing: Sequence[str]) -> None:
    """Check that nothing of a table changes rows that were appended.

    Args:
        query: The table's.
        rules: Its expectations.
        changing: The attributes given that later rows of an input would decide again.

    Raises:
        UnsafeDeclaration: something does.
    """
    if LANDING in query.text:
        raise UnsafeDeclaration(
            f"the query reads {LANDING}, which changes when a file lands again: use the strategy incremental.", "strategy"
        )
    for field in changing:
        raise UnsafeDeclaration("appended rows never change: use the strategy incremental.", field)
    for number, rule in enumerate(rules):
        if rule.action is Action.QUARANTINE:
            raise UnsafeDeclaration(
                "the strategy append has no quarantine: use drop, warn or fail, or the strategy incremental.",
                *("expectations", number, "action"),
            )


def _listed(names: Sequence[TableName]) -> str:
    return ", ".join(map(str, names)) or "none"
