"""The attributes `append_by_period` and `history` of a table: what its YAML may say, and what of it cannot be."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.declaration_places import in_field
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.list_dates import LIST_DATE
from ratify_lakehouse.sql.row_history import RowHistory
from ratify_lakehouse.sql.table_query import TableQuery

NO_QUARANTINE_OF_PERIODS = (
    "and a row that leaves quarantine later could not enter a period that the table has: use drop, warn or fail, or "
    "quarantine them in an input of this table."
)
"""Why no expectation of a table of the strategy `append_by_period` quarantines rows."""


class Periods(dg.Model, dg.Resolvable):
    """The periods whose rows a table of the strategy `append_by_period` gets, each once."""

    period: str = Field(description="Column whose value names the period of a row: a date, a timestamp, a text or a number")


class FollowedHistory(dg.Model, dg.Resolvable):
    """What makes a version of a row in a table of the strategy `scd2`, and what ends one."""

    updated_at: str = Field(
        default="",
        description="Column with the date or timestamp since when a row is valid; by default the time of the newest "
        "input version",
    )
    ignore: list[str] = Field(
        default=[], description="Columns that start no version when only they change; a version has their last values"
    )
    invalidate_hard_deletes: bool = Field(
        default=True, description="End the current version of a row that the query no longer returns"
    )

    def row_history(self, keys: Sequence[str], attribute: str = "keys") -> RowHistory:
        """Return what the history of the rows with these keys follows.

        Args:
            keys: Columns that identify a row.
            attribute: Which names them.

        Raises:
            UnsafeDeclaration: a column cannot be a key and be followed.
        """
        if self.updated_at in keys:
            raise UnsafeDeclaration(
                f"{self.updated_at!r} is a key, so each change would be a row of its own: remove it from `{attribute}`.",
                "updated_at",
            )
        for number, name in enumerate(self.ignore):
            if name in (*keys, self.updated_at):
                raise UnsafeDeclaration(f"{name!r} is a key, or dates the row: remove it.", "ignore", number)
        return RowHistory(tuple(keys), self.updated_at, tuple(self.ignore), self.invalidate_hard_deletes)


class TableHistory(FollowedHistory):
    """The history of a table, whose rows may also come from full lists."""

    from_snapshots: str = Field(
        default="",
        description="Input whose files are full lists (`contents: snapshot`), as schema.table: a version begins and ends at "
        "the date of a list, which the query gives as _list_date",
    )

    def of_lists(self, keys: Sequence[str], query: TableQuery) -> RowHistory:
        """Return what the history of the rows with these keys follows, in lists or otherwise.

        Args:
            keys: Columns that identify a row.
            query: The table's.

        Raises:
            UnsafeDeclaration: the lists are no input of the query, or something else says what ends a row; `row_history`.
        """
        if not self.from_snapshots:
            return self.row_history(keys)
        if self.updated_at:
            raise UnsafeDeclaration("the date of its list says since when a row is as it is: take it out.", "updated_at")
        if not self.invalidate_hard_deletes:
            raise UnsafeDeclaration("a full list says which rows there are: take it out.", "invalidate_hard_deletes")
        if LIST_DATE in keys:
            raise UnsafeDeclaration(
                f"{LIST_DATE!r} is a key, so that each list would have rows of its own: take it from `keys`."
            )
        found = [f"{name.schema}.{name.table}" for name in query.inputs]
        lists = next((name for name in found if name.casefold() == self.from_snapshots.casefold()), "")
        if not lists:
            raise UnsafeDeclaration(
                f"the query does not read {self.from_snapshots}. It reads: {', '.join(found)}.", "from_snapshots"
            )
        if "*" not in query.columns and LIST_DATE not in query.columns:
            raise UnsafeDeclaration(
                f"the query does not give {LIST_DATE}, the date of the list that a row is in: add it to the query.",
                "from_snapshots",
            )
        with_date = self.model_copy(update={"updated_at": LIST_DATE})
        return replace(with_date.row_history(keys), close=False, lists=lists)


def check_lists(followed: RowHistory | None, sources: Iterable[Source], external: Iterable[str]) -> None:
    """Check that the input which a table's history comes from has full lists.

    Args:
        followed: What its history follows.
        sources: All kinds of landed files.
        external: Inputs of which nothing is known here.

    Raises:
        UnsafeDeclaration: it has not.
    """
    if not followed or not followed.lists or followed.lists.casefold() in map(str.casefold, external):
        return
    if not any(each.lists and each.table_name.casefold() == followed.lists.casefold() for each in sources):
        raise UnsafeDeclaration(
            f"{followed.lists} has no full lists: name a table of the kind LandedFiles with `contents: snapshot`.",
            "history",
            "from_snapshots",
        )


def appended_period(strategy: str, named: Periods | None, *, reconciled: bool) -> str:
    """Return the column with the period of a row; empty if the strategy is not `append_by_period`.

    Args:
        strategy: The table's.
        named: What the declaration names.
        reconciled: Whether the rows are to be reconciled with those of an input.

    Raises:
        UnsafeDeclaration: the declaration contradicts the strategy.
    """
    if strategy != "append_by_period":
        if named:
            raise UnsafeDeclaration(
                "only a table of the strategy append_by_period has periods: remove it.", "append_by_period"
            )
        return ""
    if not named:
        raise UnsafeDeclaration("it needs `append_by_period`: the column with the period of a row.", "strategy")
    if reconciled:
        raise UnsafeDeclaration("rows that an input gets later are in no period: remove it.", "reconcile")
    return named.period


def followed_history(
    strategy: str, named: TableHistory | None, keys: Sequence[str], query: TableQuery, *, reconciled: bool
) -> RowHistory | None:
    """Return what the history of a table follows; None if the strategy is not `scd2`.

    Args:
        strategy: The table's.
        named: What the declaration names.
        keys: Columns that identify a row.
        query: The table's.
        reconciled: Whether the rows are to be reconciled with those of an input.

    Raises:
        UnsafeDeclaration: the declaration contradicts the strategy.
    """
    if strategy != "scd2":
        if named:
            raise UnsafeDeclaration("only a table of the strategy scd2 has a history: remove it.", "history")
        return None
    if reconciled:
        raise UnsafeDeclaration("the table has versions of rows, which cannot be reconciled: remove it.", "reconcile")
    with in_field("history"):
        return (named or TableHistory()).of_lists(keys, query)
