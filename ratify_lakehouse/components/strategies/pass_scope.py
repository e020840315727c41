"""What a pass over an incremental table computes."""

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratify_lakehouse.components.expectations.rule_dialects import RuleDialect
from ratify_lakehouse.components.strategies.rows_of_keys import AFFECTED
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.delta.snapshot import committed_at
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.key_ranges import NO_KEYS, KeyRanges
from ratify_lakehouse.sql.spark_sql import literal

VERSIONS_READ_AGAIN = 20
"""So many versions of the inputs are read in each pass until one changes a row of the table. Then a commit that changes none
says up to which versions it was computed."""

READ_AGAIN_SECONDS = 86400
"""So long a version that gave no row is read again by what goes on from one version to the next."""


def is_far_behind(log: TableLog | None, first: int, last: int) -> bool:
    """Return whether it is time to record that versions were read which gave no row: a table loses its oldest ones.

    Args:
        log: The table's, if it can be read here.
        first: The first of the versions.
        last: The last one.
    """
    if last - first + 1 >= VERSIONS_READ_AGAIN:
        return True
    return log is not None and first <= last and committed_at(log.actions(first)) < (time.time() - READ_AGAIN_SECONDS) * 1000


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
        keys: The affected keys; none where they are not known.
        changed: By input, how many of its rows changed; None where that is not counted.
        shown: Metadata of the materialization.
    """

    by: tuple[str, ...]
    why_full: str
    record: ComputedInputs
    last: ComputedInputs | None = None
    recorded: bool = False
    keys: KeyRanges = NO_KEYS
    changed: Mapping[str, int] | None = None
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def nothing(self) -> bool:
        """Whether no row of the table can differ."""
        return not self.why_full and not self.keys.number

    def rows_of(self, text: str, sql: RuleDialect) -> str:
        """Return the query for those rows of a query that are computed, if any are; `sql`: the words of its engine."""
        if not self.keys.number:
            return text
        on = sql.same(self.by, "q", "a")
        return f"SELECT q.* FROM (\n{text}\n) AS q SEMI JOIN {AFFECTED} AS a ON {on} WHERE {self.keys.among('q')}"
