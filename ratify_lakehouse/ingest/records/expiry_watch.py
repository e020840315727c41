"""Offsets that may have expired before a stream came to them, which tell a gap from a hole that the topic itself has."""

from dataclasses import dataclass

from ratify_lakehouse.kafka.kafka_client import Offsets


@dataclass(frozen=True)
class OvertakenOffsets:
    """Offsets of a partition, `first` to `end` - 1, that may have expired before a stream came to them."""

    topic: str
    partition: int
    first: int
    end: int


class ExpiryWatch:
    """Finds out which offsets may have expired before a stream came to them.

    A hole among those is a gap. A hole that the topic still had after the stream had passed it is none: it is the mark of a
    transaction, or aborted, or compacted, even if it has expired since.
    """

    def __init__(self) -> None:
        # Where the stream was after its first batches, and where the topics began then.
        self._first: tuple[Offsets, Offsets] | None = None
        self._at: Offsets = {}
        self._overtaken = list[OvertakenOffsets]()

    def step(self, at: Offsets, earliest: Offsets) -> None:
        """Take in where the stream is, and where the topics begin now."""
        self._overtaken += _overtaken(self._at, at, earliest)
        self._first, self._at = self._first or (at, earliest), at

    def found(self, began: Offsets, at: Offsets, earliest: Offsets) -> list[OvertakenOffsets]:
        """Return them, given where the stream began, and the last step, which is its end."""
        first = _overtaken(began, *(self._first or (at, earliest)))
        return [*first, *self._overtaken, *_overtaken(self._at, at, earliest)]


def _overtaken(start: Offsets, end: Offsets, earliest: Offsets) -> list[OvertakenOffsets]:
    """The offsets from one position to another that were not in the topics any more after the stream had passed them."""
    found = list[OvertakenOffsets]()
    for topic, by in start.items():
        for partition, first in by.items():
            until = min(earliest.get(topic, {}).get(partition, first), end.get(topic, {}).get(partition, first))
            if first < until:
                found.append(OvertakenOffsets(topic, partition, first, until))
    return found
