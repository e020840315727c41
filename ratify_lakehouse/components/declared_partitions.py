"""The attribute `partitions` of a table: what its YAML may say, and what of it cannot be."""

import datetime as dt
from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableQuery

NO_QUARANTINE_OF_PARTITIONS = "but rejected rows may belong to no partition. Quarantine them in an input of this table."
"""Why no expectation of a table of the strategy `partition` quarantines rows."""


class DailyPartitions(dg.Model, dg.Resolvable):
    """One partition for each day."""

    start: str = Field(description="The first day, as 2013-01-01")
    end: str = Field(default="", description="The day after the last one; by default, today (UTC) is the last")


class DeclaredPartitions(dg.Model, dg.Resolvable):
    """The partitions of a table: days, or listed values, of one of its keys."""

    column: str = Field(description="A key; a date where the partitions are days, else a text or an integer")
    daily: DailyPartitions | None = Field(default=None, description="One partition for each day")
    # Without `bool`, YAML's `no` would be the integer 0.
    values: list[str | int | bool] = Field(
        default=[], description="One partition for each of these; quote yes and no, which are true and false in YAML"
    )

    def partitions(self, query: TableQuery, keys: Sequence[str]) -> TablePartitions:
        """Return the partitions.

        Raises:
            UnsafeDeclaration: the attributes contradict each other or the query.
        """
        if "*" not in query.columns and self.column not in query.columns:
            text = f"{self.column!r} is not a column of the query, which returns {', '.join(query.columns)}."
            raise UnsafeDeclaration(text, "column")
        if self.column not in keys:
            raise UnsafeDeclaration(
                f"{self.column!r} is not one of the keys {', '.join(keys)}: add it, so that rows keep their partition.",
                "column",
            )
        if bool(self.daily) == bool(self.values):
            both = "Both are given" if self.daily else "Nothing says which partitions there are"
            raise UnsafeDeclaration(f"{both}: give either `daily` or `values`.", *(["values"] if self.daily else []))
        if self.daily:
            start = _day(self.daily.start, "start")
            end = _day(self.daily.end, "end") if self.daily.end else None
            if end and end <= start:
                raise UnsafeDeclaration(f"The end {end} is not after the start {start}.", "daily", "end")
            return TablePartitions(self.column, start, end)
        values = list[str]()
        for number, value in enumerate(self.values):
            if isinstance(value, bool):
                raise UnsafeDeclaration(
                    f"It is a boolean in YAML ({str(value).lower()}), as are yes, no, on and off: put a text into quotes.",
                    *("values", number),
                )
            text = str(value)
            if not text or text in values:
                raise UnsafeDeclaration(f"{text!r} is empty or listed twice.", "values", number)
            values.append(text)
        return TablePartitions(self.column, values=tuple(values))


def _day(text: str, field: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise UnsafeDeclaration(f"{text!r} is not a day: write one as 2013-01-31.", "daily", field) from None
