"""The check of the offsets in a table of records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.checks.history_findings import Finding
from ingest.records.record_source import SOURCE
from resources.wording import counted

PARTITIONS = f"""
SELECT
  IF(sound, source, topic) AS topic, IF(sound, 0, partition) AS partition, sum(rows) AS rows, sum(offsets) AS offsets,
  min(first) AS first, min(first) + sum(last - first) + count(*) - 1 AS last, count(*) AS count
FROM (
  SELECT *, source <> 'kafka' AND rows = offsets AND offsets = last - first + 1 AS sound
  FROM (
    SELECT
      topic, partition, {SOURCE} AS source, count(*) AS rows, count(DISTINCT offset) AS offsets,
      min(offset) AS first, max(offset) AS last
    FROM {{raw}} GROUP BY topic, partition
  )
)
GROUP BY ALL
"""
"""The query, over the table {raw}, whose rows are `Partition`s. It reads only three narrow columns.

Partitions of sources other than Kafka may be very many (files), so those without a fault are combined into one.
"""

_SHOWN = 5


@dataclass(frozen=True)
class Partition:
    """One partition in a table: the number of its rows, and their first and last offset.

    Attributes:
        offsets: How many different offsets the rows have.
        count: How many partitions it combines, with their offsets as if each continued the one before.
    """

    topic: str
    partition: int
    rows: int
    offsets: int
    first: int
    last: int
    count: int = 1

    @property
    def doubled(self) -> int:
        """Rows beyond one for each offset."""
        return self.rows - self.offsets

    @property
    def missing(self) -> int:
        """Offsets between the first and the last that no row has."""
        return self.last - self.first + 1 - self.offsets


def each_offset_once(partitions: Sequence[Partition], removed: Mapping[str, int] | None = None) -> Finding:
    """Check that each offset from the first to the last is in the table, and once.

    Offsets are missing also where a topic is compacted or written in transactions, and where a record of an erased subject
    came again.

    Args:
        partitions: Those of the table.
        removed: How many records acknowledged commits have removed, by topic/partition.
    """
    known = removed or {}
    lost = {p: max(0, p.missing - known.get(f"{p.topic}/{p.partition}", 0)) for p in partitions}
    doubled, missing = sum(p.doubled for p in partitions), sum(lost.values())
    numbers = {
        "partitions": sum(partition.count for partition in partitions),
        "rows": sum(partition.rows for partition in partitions),
        "doubled": doubled,
        "missing": missing,
    }
    if not doubled and not missing:
        erased = sum(p.missing for p in partitions)
        but = f", but {counted(erased, 'record')} that acknowledged commits removed" if erased else ""
        return Finding(True, f"Every offset is in the table once{but}.", numbers)
    wrong = [
        f"{p.topic}/{p.partition}: {p.rows:,} rows, {p.offsets:,} offsets of {p.first} to {p.last}"
        for p in partitions
        if p.doubled or lost[p]
    ]
    return Finding(False, f"Offsets are doubled or missing: {', '.join(wrong[:_SHOWN])}.", numbers)
