"""Partitions of a table that are not as its inputs are now, and the finding of its check about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.strategies.table_partitions import named
from ratify_lakehouse.wording import counted

_SHOWN = 5


@dataclass(frozen=True)
class StalePartitions:
    """The partitions that are not as the inputs are now.

    Attributes:
        changed: Of each partition, by input: how many changed rows, as they were and as they are, may affect it, and since
            which version of the input.
        uncomputed: Those that were never computed.
        forgotten: Those of which no record says from which versions of the inputs they were computed.
        why_all: Why it is not known which ones are stale; empty if it is.
        lasting: Whether every pass will have that reason.
        hidden: Whether the column of the partitions has personal data, so that none is shown.
    """

    changed: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict[str, dict[str, tuple[int, int]]])
    uncomputed: Sequence[str] = ()
    forgotten: Sequence[str] = ()
    why_all: str = ""
    lasting: bool = False
    hidden: bool = False

    def finding(self) -> Finding:
        """Return whether no partition with changed rows is stale, and for people what is stale."""
        numbers = {
            "stale partitions": len(self.changed),
            "changed rows": sum(rows for inputs in self.changed.values() for rows, _ in inputs.values()),
            "partitions not computed": len(self.uncomputed),
            "partitions not known to be up to date": len(self.forgotten),
        }
        if self.why_all:
            text = f"The next run without chosen partitions computes all of them: {self.why_all}."
            return Finding(False, text, numbers, warns=True)
        return Finding(not self.changed and not self.forgotten, self._described(), numbers, warns=True)

    def _described(self) -> str:
        texts = list[str]()
        for key in sorted(self.changed)[:_SHOWN]:
            inputs = self.changed[key].items()
            late = (f"{counted(rows, 'changed row')} of {name} since version {since}" for name, (rows, since) in inputs)
            texts.append(f"{'…' if self.hidden else key} is stale: {', '.join(late)}")
        if more := len(self.changed) - len(texts):
            texts.append(f"{more:,} more are stale")
        if self.forgotten:
            then = "computed by the next run without chosen ones"
            texts.append(f"not known to be up to date, and {then}: {self._named(self.forgotten)}")
        if self.uncomputed:
            texts.append(f"never computed: {self._named(self.uncomputed)}")
        return "; ".join(texts) + "." if texts else "Every partition is computed from the inputs as they are."

    def _named(self, keys: Sequence[str]) -> str:
        return counted(len(keys), "partition") if self.hidden else named(keys)


def outside_described(found: Mapping[str, Any], column: str, *, hidden: bool) -> str:
    """Return how many rows of a query are in no partition, and from which value of the column to which.

    Args:
        found: `rows`, `nulls`, `least` and `greatest` of them.
        column: Of the partitions.
        hidden: As of `StalePartitions`.
    """
    texts = [f"{found['nulls']:,} without a {column}"] if found["nulls"] else []
    if found["least"] is not None:
        values = "" if hidden else f" from {found['least']} to {found['greatest']}"
        texts.append(f"{found['rows'] - found['nulls']:,} with a {column}{values}")
    return (
        f"{counted(found['rows'], 'row')} of the query {'belongs' if found['rows'] == 1 else 'belong'} to no partition, "
        f"so not to the table: {', '.join(texts)}."
    )
