"""What a pass over an incremental table computes."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.strategies.rows_of_keys import AFFECTED, same_keys
from resources.delta.computed_inputs import ComputedInputs
from resources.sql.spark_sql import literal


@dataclass(frozen=True)
class DaysAgain:
    """The days whose rows are to be computed again, whatever has changed.

    Attributes:
        column: Of the table; a date or a time.
        first: The first day.
        last: The last one.
    """

    column: str
    first: dt.date
    last: dt.date

    @property
    def between(self) -> str:
        """The range, in SQL."""
        return f"DATE {literal(self.first.isoformat())} AND DATE {literal(self.last.isoformat())}"


@dataclass(frozen=True)
class Scope:
    """What a pass computes.

    Attributes:
        by: The columns of the keys whose rows it computes.
        after: The table's version before it; -1 if it does not exist.
        why_full: Why all rows are computed; empty where only those of affected keys are.
        record: For the commit.
        last: The record that the table has; None where it is not known to be as one says.
        keys: How many keys are affected; 0 where that is not known.
        within: Returns a condition that holds for the affected keys of a relation (see `KeyRanges`).
        shown: Metadata of the materialization.
    """

    by: tuple[str, ...]
    after: int
    why_full: str
    record: ComputedInputs
    last: ComputedInputs | None = None
    keys: int = 0
    within: Callable[[str], str] = lambda _: "true"
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def nothing(self) -> bool:
        """Whether no row of the table can differ."""
        return not self.why_full and not self.keys

    def rows_of(self, text: str) -> str:
        """Return the query for those rows of a query that are computed."""
        if not self.keys:
            return text if self.why_full else f"SELECT * FROM (\n{text}\n) WHERE false"
        on = same_keys(self.by, "q", "a")
        return f"SELECT q.* FROM (\n{text}\n) AS q LEFT SEMI JOIN {AFFECTED} AS a ON {on} WHERE {self.within('q')}"
