"""Judgement on the offsets of a table of Kafka's records."""

from collections.abc import Sequence
from dataclasses import dataclass

from assets.checks.history import Finding

PARTITIONS = """
SELECT topic, partition, count(*) AS rows, min(offset) AS first, max(offset) AS last FROM {raw} GROUP BY topic, partition
"""
"""The query, over the table {raw}, whose rows are `Partition`s. It reads no record, only three narrow columns."""

_SHOWN = 5


@dataclass(frozen=True)
class Partition:
    """What a table holds of one partition: the number of its rows, and their first and last offset."""

    topic: str
    partition: int
    rows: int
    first: int
    last: int

    @property
    def surplus(self) -> int:
        """Rows beyond one for each offset; negative where offsets are missing."""
        return self.rows - (self.last - self.first + 1)


def each_offset_once(partitions: Sequence[Partition]) -> Finding:
    """Judge whether each offset from the first to the last is in the table, and once.

    Offsets are missing also where a topic is compacted or written in transactions.
    """
    doubled = sum(max(0, partition.surplus) for partition in partitions)
    missing = sum(max(0, -partition.surplus) for partition in partitions)
    numbers = {
        "partitions": len(partitions),
        "rows": sum(partition.rows for partition in partitions),
        "doubled": doubled,
        "missing": missing,
    }
    if not doubled and not missing:
        return Finding(True, "Every offset is there once.", numbers)
    wrong = [f"{p.topic}/{p.partition}: {p.rows:,} rows for {p.first} to {p.last}" for p in partitions if p.surplus]
    return Finding(False, f"Offsets are doubled or missing: {', '.join(wrong[:_SHOWN])}.", numbers)
