"""The check of the offsets in a table of records.

Kafka's offsets are not dense: a transaction leaves a mark at its end, a reader of committed records gets none of an aborted
one, and compaction removes records. So offsets that no row has are looked up in the topic (`topic_comparison`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.ingest.records.record_source import SOURCE
from ratify_lakehouse.wording import counted

PARTITIONS = f"""
SELECT
  IF(sound, source, topic) AS topic, IF(sound, 0, partition) AS partition, sum(rows) AS rows, sum(offsets) AS offsets,
  min(first) AS first, min(first) + sum(last - first) + count(*) - 1 AS last, count(*) AS count, source = 'kafka' AS kafka
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
        kafka: Whether it is one of Kafka.
    """

    topic: str
    partition: int
    rows: int
    offsets: int
    first: int
    last: int
    count: int = 1
    kafka: bool = True

    @property
    def name(self) -> str:
        """Its topic and number."""
        return f"{self.topic}/{self.partition}"

    @property
    def doubled(self) -> int:
        """Rows beyond one for each offset."""
        return self.rows - self.offsets

    @property
    def missing(self) -> int:
        """Offsets between the first and the last that no row has."""
        return self.last - self.first + 1 - self.offsets


@dataclass(frozen=True)
class Accounted:
    """The findings of an evaluation in a partition, from offset `first` to `end` - 1.

    Attributes:
        empty: Offsets that no row has, without a loss.
        removed: Records that acknowledged commits had removed by then.
    """

    first: int
    end: int
    empty: int
    removed: int


@dataclass(frozen=True)
class Compared:
    """Offsets of a partition that no row has, compared with the topic where no earlier evaluation has done so.

    Attributes:
        first: The table's first offset.
        end: The offset after the last that could be compared: the topic does not give what follows an open transaction.
        before: Offsets without a row that an earlier evaluation has looked at.
        expired: Others, before the offset where the topic begins now. What they were cannot be known any more.
        empty: Others, of which the topic gives no record.
        unread: Others, of which it does.
    """

    first: int
    end: int
    before: int
    expired: int
    empty: int
    unread: int

    def lost(self, earlier: Accounted | None, removed: int) -> int:
        """Return how many records were lost, given the earlier evaluation and what acknowledged commits have removed.

        What was compared once is only counted from then on, because the topic forgets its records, by age or by compaction.
        """
        empty, known = (earlier.empty, earlier.removed) if earlier else (0, 0)
        return max(0, max(0, self.before - empty) + self.expired + self.unread - (removed - known))

    def accounted(self, earlier: Accounted | None, removed: int) -> Accounted:
        """Return what the next evaluation has to know."""
        missing = self.before + self.expired + self.empty + self.unread
        return Accounted(self.first, self.end, missing - min(missing, self.lost(earlier, removed)), removed)


def each_offset_once(
    partitions: Sequence[Partition], removed: Mapping[str, int] | None = None, lost: Mapping[str, int] | None = None
) -> Finding:
    """Check that each offset from the first to the last is in the table, and once.

    Args:
        partitions: Those of the table.
        removed: How many records acknowledged commits have removed, by topic/partition.
        lost: How many records were lost of partitions that were compared with their topics. Of others it is every offset
            that is missing, as where a record of an erased subject came again in a file.
    """
    known, compared = removed or {}, lost or {}
    gone = {p: compared.get(p.name, max(0, p.missing - known.get(p.name, 0))) for p in partitions}
    doubled, missing = sum(p.doubled for p in partitions), sum(gone.values())
    empty = sum(max(0, p.missing - gone[p]) for p in partitions if p.name in compared)
    numbers = {
        "partitions": sum(partition.count for partition in partitions),
        "rows": sum(partition.rows for partition in partitions),
        "doubled": doubled,
        "missing": missing,
        **({"without a record": empty} if compared else {}),
    }
    if not doubled and not missing:
        erased = sum(p.missing for p in partitions if p.name not in compared)
        but = [
            *([f"{counted(empty, 'offset')} without a record in the topic"] if empty else []),
            *([f"{counted(erased, 'record')} that acknowledged commits removed"] if erased else []),
        ]
        return Finding(True, f"Every offset is in the table once{', but ' if but else ''}{' and '.join(but)}.", numbers)
    wrong = [
        f"{p.name}: {p.rows:,} rows, {p.offsets:,} offsets of {p.first} to {p.last}"
        + (f", {counted(gone[p], 'record')} lost" if p.name in compared else "")
        for p in partitions
        if p.doubled or gone[p]
    ]
    text = f"Offsets are duplicated or missing: {', '.join(wrong[:_SHOWN])}."
    # Silver leaves out what bronze holds twice, but not what was never there.
    return Finding(False, text, numbers, warns=not doubled)
