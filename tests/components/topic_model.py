"""A partition of a topic, a table of its records, and what the check of the offsets has to say of them, in plain Python."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ratify_lakehouse.components.checks.offset_checks import Accounted, Compared, Partition
from ratify_lakehouse.components.checks.topic_comparison import LookedUp
from ratify_lakehouse.kafka.kafka_client import OffsetRange


@dataclass
class TopicModel:
    """One partition.

    Attributes:
        log: For each offset whether it has a record: not so that of an aborted transaction, and the mark at the end of one.
        gone: Offsets of records that compaction has removed.
        pending: The first offset of a transaction that is open.
        earliest: Where the topic begins.
        position: Where the stream of the table is.
        table: The offsets in the table.
        first: The smallest one that it ever had.
        empty: Offsets that an evaluation has found to be without a record.
        end: Up to where an evaluation has looked.
        deleted: Whether there is no such topic any more.
    """

    log: list[bool] = field(default_factory=list[bool])
    gone: set[int] = field(default_factory=set[int])
    pending: int | None = None
    earliest: int = 0
    position: int = 0
    table: set[int] = field(default_factory=set[int])
    empty: set[int] = field(default_factory=set[int])
    end: int = 0
    deleted: bool = False

    @property
    def stable(self) -> int:
        """The offset up to which a reader of committed records is given any."""
        return len(self.log) if self.pending is None else self.pending

    def readable(self) -> set[int]:
        """The offsets of the records that such a reader is given now."""
        offsets = range(0) if self.deleted else range(self.earliest, self.stable)
        return {at for at in offsets if self.log[at] and at not in self.gone}

    # What producers, the broker, and the stream do.

    def plain(self, count: int) -> None:
        if self.pending is None:
            self.log += [True] * count

    def commit(self, count: int) -> None:
        if self.pending is None:
            self.log += [*[True] * count, False]

    def abort(self, count: int) -> None:
        if self.pending is None:
            self.log += [False] * (count + 1)

    def open(self, count: int) -> None:
        if self.pending is None:
            self.pending = len(self.log)
            self.log += [True] * count

    def close(self, count: int) -> None:
        """Commit or abort the open transaction."""
        if self.pending is not None:
            if count % 2:
                self.log[self.pending :] = [False] * (len(self.log) - self.pending)
            self.log.append(False)
            self.pending = None

    def compact(self, count: int) -> None:
        self.gone |= {at for at in self.readable() if at % (count + 1)}

    def expire(self, count: int) -> None:
        self.earliest = min(self.stable, self.earliest + 3 * count)

    def ingest(self, _: int = 0) -> None:
        self.table |= {at for at in self.readable() if at >= self.position}
        self.position = max(self.position, self.stable)

    def ingest_open(self, _: int) -> None:
        """Ingest, as a stream of uncommitted records does."""
        self.ingest()
        self.table |= set(range(self.position, len(self.log)))
        self.position = len(self.log)

    def lose(self, count: int) -> None:
        """Remove rows, but not the first one: what is before it is not looked at."""
        self.table -= set(sorted(self.table)[1:][:: count + 1][:count])

    def refresh(self, _: int) -> None:
        """Empty the table, and read the topic from its start; the evaluation notices that by the table's history."""
        self.table, self.empty, self.end, self.position = set(), set(), 0, 0
        self.ingest()

    # What the check has to say.

    def lost(self) -> int:
        """Evaluate: return how many records were lost, as far as anybody can know."""
        if not self.table:
            return 0
        first, next_ = min(self.table), max(self.table) + 1
        end = max(self.end, next_ if self.deleted else min(next_, self.stable))
        missing = set(range(first, end)) - self.table
        # Compaction may have removed a record before the first look, which nobody notices; what expired is counted.
        lost = {at for at in missing if (at < self.end and at not in self.empty) or self._is_lost(at)}
        self.empty |= missing - lost
        self.end = end
        return len(lost)

    def _is_lost(self, at: int) -> bool:
        return at >= self.end and (at < self.earliest or at in self.readable() or self.deleted)

    # What the check says.

    def partition(self, topic: str, number: int) -> Partition:
        first, last, rows = min(self.table), max(self.table), len(self.table)
        return Partition(topic, number, rows, rows, first, last)

    def compared(self, known: Accounted | None) -> Compared:
        """What the queries of the check give, by counting."""
        p = self.partition("t", 0)
        earliest, whole = {"t": {0: self.earliest}}, {"t": {0: len(self.log)}}
        given = OffsetRange(earliest, {"t": {0: self.stable}})
        found = LookedUp.of(p, known, *((None, None) if self.deleted else (given, OffsetRange(earliest, whole))))

        def missing(start: int, until: int) -> int:
            return until - start - len(self.table & set(range(start, until)))

        unread = len((set(range(found.begin, found.end)) & self.readable()) - self.table)
        return Compared(
            first=p.first,
            end=found.end,
            before=missing(p.first, found.since),
            expired=missing(found.since, found.begin),
            empty=missing(found.begin, found.end) - unread,
            unread=unread,
        )


STEPS: dict[str, Callable[[TopicModel, int], None]] = {
    name: getattr(TopicModel, name)
    for name in ("plain", "commit", "abort", "open", "close", "compact", "expire", "ingest", "ingest_open", "lose")
}
