"""What a pass over an incremental table computes."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.strategies.rows_of_keys import AFFECTED
from resources.delta.computed_inputs import ComputedInputs
from resources.sql.spark_sql import literal, same_keys

VERSIONS_READ_AGAIN = 20
"""So many versions of the inputs are read in each pass until one changes a row of the table. Then a commit that changes none
says up to which versions it was computed."""


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
        why_full: Why all rows are computed; empty where only those of affected keys are.
        record: For the commit.
        last: The record that the table has; None where it is not known to be as one says.
        recorded: Whether the pass commits its record also if no row differs. Otherwise the next one would have to compute
            all rows again, or to read ever more changes.
        keys: How many keys are affected; 0 where that is not known.
        changed: By input, how many of its rows changed; None where that is not counted.
        within: Returns a condition that holds for the affected keys of a relation (see `KeyRanges`).
        shown: Metadata of the materialization.
    """

    by: tuple[str, ...]
    why_full: str
    record: ComputedInputs
    last: ComputedInputs | None = None
    recorded: bool = False
    keys: int = 0
    changed: Mapping[str, int] | None = None
    within: Callable[[str], str] = lambda _: "true"
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def nothing(self) -> bool:
        """Whether no row of the table can differ."""
        return not self.why_full and not self.keys

    def rows_of(self, text: str) -> str:
        """Return the query for those rows of a query that are computed, if any are."""
        if not self.keys:
            return text
        on = same_keys(self.by, "q", "a")
        return f"SELECT q.* FROM (\n{text}\n) AS q LEFT SEMI JOIN {AFFECTED} AS a ON {on} WHERE {self.within('q')}"
