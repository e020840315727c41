"""Offsets of Kafka that no row of a table has, compared with the topic: a lost record, or none that a reader is given.

Each evaluation of the check compares what is new, and records what it found: the broker may have forgotten it by the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from ratify_lakehouse.components.checks.offset_checks import Accounted, Compared, Partition
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.commit_history import FULL_REFRESH
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import failure
from ratify_lakehouse.errors import NotConfigured, TopicMissing
from ratify_lakehouse.ingest.records.erased_records import without_erased
from ratify_lakehouse.ingest.records.kafka_records import records_between
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka, OffsetRange, Offsets
from ratify_lakehouse.sql.spark_sql import literal

ACCOUNTED = "accounted"
"""Metadata key of an evaluation: an `Accounting`."""

# Different offsets of each partition in three ranges, which {bounds} gives.
_ROWS = """
SELECT
  b.topic, b.partition, count(DISTINCT IF(r.offset < b.since, r.offset, NULL)) AS before,
  count(DISTINCT IF(r.offset >= b.since AND r.offset < b.begins, r.offset, NULL)) AS expired,
  count(DISTINCT IF(r.offset >= b.begins AND r.offset < b.ends, r.offset, NULL)) AS present
FROM (SELECT * FROM VALUES {bounds} AS v(topic, partition, since, begins, ends)) AS b
LEFT JOIN {{raw}} AS r ON r.topic = b.topic AND r.partition = b.partition
GROUP BY b.topic, b.partition
"""
_UNREAD = """
SELECT k.topic, k.partition, count(*) AS n FROM {records} AS k
LEFT ANTI JOIN {raw} AS r ON r.topic = k.topic AND r.partition = k.partition AND r.offset = k.offset
GROUP BY k.topic, k.partition
"""


@dataclass(frozen=True)
class Accounting:
    """The findings of an evaluation.

    Attributes:
        table: The table's id.
        version: A version of it, no newer than the one that was compared.
        partitions: By topic/partition.
    """

    table: str
    version: int
    partitions: Mapping[str, Accounted] = field(default_factory=dict[str, Accounted])

    @classmethod
    def read(cls, value: Any) -> "Accounting":
        """Return what `json` wrote."""
        partitions = {name: Accounted(*numbers) for name, numbers in value["partitions"].items()}
        return cls(value["table"], value["version"], partitions)

    @property
    def json(self) -> dict[str, Any]:
        """It as JSON."""
        partitions = {name: astuple(each) for name, each in self.partitions.items()}
        return {"table": self.table, "version": self.version, "partitions": partitions}


@dataclass(frozen=True)
class LookedUp:
    """The offsets of a partition that are looked up in its topic.

    Attributes:
        since: The first that no earlier evaluation has compared.
        begin: The first of these that the topic still has.
        end: The one after the last that a reader is given, or that the table has.
    """

    since: int
    begin: int
    end: int

    @classmethod
    def of(cls, p: Partition, known: Accounted | None, given: OffsetRange | None, whole: OffsetRange | None) -> "LookedUp":
        """Return them.

        Args:
            p: The partition, as the table has it.
            known: What the last evaluation has found.
            given: The offsets of the topic that a reader is given; None if there is no topic.
            whole: Those that the topic has. If it ends before the table, it is another one, created under the same name.
        """
        since = known.end if known else p.first
        end = max(since, p.last + 1)
        if given is None or whole is None or _at(whole.latest, p, 0) < p.last + 1:
            return cls(since, end, end)
        end = max(since, min(end, _at(given.latest, p, end)))
        return cls(since, min(max(since, _at(given.earliest, p, end)), end), end)


@dataclass(frozen=True)
class TopicComparison:
    """Compares a table of records with its topics.

    Attributes:
        table: The table.
        isolation: Which records of transactions it is declared to have.
    """

    kafka: Kafka
    spark: Spark
    table: TableDeclaration
    isolation: Isolation

    def lost(
        self, partitions: Sequence[Partition], removed: Mapping[str, int], earlier: Accounting | None, now: Accounting
    ) -> tuple[dict[str, int], Accounting]:
        """Return how many records were lost, of the partitions that were compared, and what the next evaluation has to know.

        Args:
            partitions: Those of the table.
            removed: How many records acknowledged commits have removed, by topic/partition.
            earlier: What the last evaluation has found; None if there is none.
            now: The table's id and version.

        Raises:
            BrokerUnavailable, BrokerDenied: there are offsets without a row, and nobody knows why.
        """
        of_kafka = {p.name: p for p in partitions if p.kafka}
        known = dict(earlier.partitions) if earlier and earlier.table == now.table else {}
        suspect = {name: p for name, p in of_kafka.items() if p.missing or (name in known and known[name].end > p.last + 1)}
        if suspect and earlier and known and self._refreshed(earlier.version, now.version):
            known = {}
        # A table that has rows before those is compared from its start.
        known = {name: each for name, each in known.items() if name in of_kafka and each.first <= of_kafka[name].first}
        lost, found = dict[str, int](), dict[str, Accounted]()
        for name, compared in self._compared(suspect, known).items():
            lost[name] = compared.lost(known.get(name), removed.get(name, 0))
            found[name] = compared.accounted(known.get(name), removed.get(name, 0))
        whole = {name: Accounted(p.first, p.last + 1, 0, removed.get(name, 0)) for name, p in of_kafka.items()}
        return lost, Accounting(now.table, now.version, {**whole, **found})

    def _refreshed(self, after: int, version: int) -> bool:
        """Return whether the table was emptied after a version."""
        if version <= after:
            return False
        history = self.spark.recent_commits(self.spark.full_name(self.table), version - after)
        return any((commit.user_metadata or "").startswith(FULL_REFRESH) for commit in history)

    def _compared(self, suspect: Mapping[str, Partition], known: Mapping[str, Accounted]) -> dict[str, Compared]:
        if not suspect:
            return {}
        topics = {p.topic: self._topic(p.topic) for p in suspect.values()}
        ranges = {name: LookedUp.of(p, known.get(name), *topics[p.topic]) for name, p in suspect.items()}
        shown = (
            f"({literal(suspect[name].topic)}, {suspect[name].partition}, {each.since}L, {each.begin}L, {each.end}L)"
            for name, each in ranges.items()
        )
        query = self.spark.sql(_ROWS.format(bounds=", ".join(shown)), raw=self.spark.table(self.table))
        rows = {f"{row['topic']}/{row['partition']}": row for row in self.spark.rows(query)}
        holes = {name: each.end - each.begin - rows[name]["present"] for name, each in ranges.items()}
        unread = self._unread({name: (suspect[name], ranges[name]) for name, count in holes.items() if count})
        return {
            name: Compared(
                first=suspect[name].first,
                end=each.end,
                before=each.since - suspect[name].first - rows[name]["before"],
                expired=each.begin - each.since - rows[name]["expired"],
                empty=holes[name] - unread.get(name, 0),
                unread=unread.get(name, 0),
            )
            for name, each in ranges.items()
        }

    def _topic(self, topic: str) -> tuple[OffsetRange | None, OffsetRange | None]:
        """Return the offsets that a reader is given, and those that the topic has; None if there is no such topic now."""
        try:
            return self.kafka.offset_range([topic], self.isolation), self.kafka.offset_range([topic])
        except (NotConfigured, TopicMissing):
            return None, None

    def _unread(self, holed: Mapping[str, tuple[Partition, LookedUp]]) -> dict[str, int]:
        """How many records Kafka gives that no row has, but those of erased subjects."""
        from pyspark.errors import PySparkException

        if not holed:
            return {}
        first, ends = dict[str, dict[int, int]](), dict[str, dict[int, int]]()
        for p, each in holed.values():
            first.setdefault(p.topic, {})[p.partition] = each.begin
            ends.setdefault(p.topic, {})[p.partition] = each.end
        records = records_between(self.kafka, self.spark, first, ends, self.isolation)
        left = without_erased(self.spark, self.table, records)
        query = self.spark.sql(_UNREAD, records=left, raw=self.spark.table(self.table))
        try:
            return {f"{row['topic']}/{row['partition']}": row["n"] for row in self.spark.rows(query)}
        except PySparkException as error:
            # Not chained: the foreign error repeats what it was given.
            raise failure(self.kafka.redacted(str(error))) from None


def _at(offsets: Offsets, p: Partition, default: int) -> int:
    return offsets.get(p.topic, {}).get(p.partition, default)
