"""Where a streaming job of Flink begins: at which checkpoint or savepoint, so that each row is in its table once.

The state of a table's job is in a folder of its own, one folder below that for each generation: a number, and a digest of
the query. A generation begins with an empty table and the first record of the topics. Flink numbers the checkpoints of a
generation on, from one job to the next that restores its state. The table's log has the number of each checkpoint that was
committed, as the version of a `txn` whose app id is the generation's uid and the id of a job. So the log says how new the
state has to be that a job may begin with: an older one would write rows a second time.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ratify_lakehouse.errors import FlinkStateLost, QueryChanged

_METADATA = "_metadata"
_MAGIC = 0x4960672D
# A magic number, the format's version, and the number of the checkpoint.
_HEADER = struct.Struct(">iiq")
_SAVEPOINT = "savepoint-"


@dataclass(frozen=True, order=True)
class SavedState:
    """A complete checkpoint or savepoint: its number, and its folder."""

    number: int
    folder: Path

    @property
    def is_savepoint(self) -> bool:
        """Whether a job wrote it that was stopped: it committed all that came before."""
        return self.folder.name.startswith(_SAVEPOINT)


@dataclass(frozen=True)
class Generation:
    """The jobs since a table was empty.

    Attributes:
        number: From 1 on.
        query: A digest of the query and of the columns.
    """

    number: int
    query: str

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.number}-{self.query}"

    def uid(self, table: str) -> str:
        """Return the uid of the sink into a table, named as schema.table; it is also Kafka's consumer group."""
        return f"ratify-{table}-{self.number}"


@dataclass(frozen=True)
class Beginning:
    """How a job begins: in which generation, and at which state; without one, at the start of the topics."""

    generation: Generation
    state: SavedState | None


def digest(*texts: str) -> str:
    """Return a short digest of what a job's state depends on."""
    return sha256("\n".join(texts).encode()).hexdigest()[:12]


def beginning(name: str, folder: Path, committed: Mapping[str, int], query: str, *, refresh: bool = False) -> Beginning:
    """Return how the next job of a table begins.

    Args:
        name: The table's, as schema.table.
        folder: Of the table's states; a table that is dropped and created again has another one.
        committed: The `txn` versions in the table's log by their app ids.
        query: The digest of its query as it is now.
        refresh: Whether to begin again, with an empty table.

    Raises:
        FlinkStateLost: the log has rows of a newer checkpoint than any in the folder.
        QueryChanged: the query is another one than that of the newest generation.
    """
    numbers = _committed(name, committed)
    known = {each.number: each for each in generations(folder)}
    last = max([0, *numbers, *known])
    newest = known.get(last)
    again = Beginning(Generation(last + 1, query), None)
    if refresh or not last:
        return again
    state = newest_state(folder / newest.name) if newest else None
    if numbers.get(last, 0) > (state.number if state else 0):
        raise FlinkStateLost(
            f"{name} has the rows of Flink's checkpoint {numbers[last]}, but {folder} has "
            f"{f'none after {state.number}' if state else 'no state of it'}. Starting there would write rows twice: "
            "restore the folder, or run the table with `full_refresh: true`, which empties it and reads the topics from "
            "their start."
        )
    if newest is None or state is None:
        # Nothing was written yet.
        return again
    if newest.query != query:
        raise QueryChanged(
            f"The query or the columns of {name} have changed since the state of its job was saved. Run it with "
            "`full_refresh: true`, which empties the table and reads the topics from their start, or undo the change."
        )
    return Beginning(newest, state)


def generations(folder: Path) -> list[Generation]:
    """Return the generations that a folder has."""
    found = [re.fullmatch(r"(\d+)-(\w+)", path.name) for path in folder.glob("*-*")]
    return [Generation(int(name[1]), name[2]) for name in found if name]


def newest_state(folder: Path) -> SavedState | None:
    """Return the newest complete state below a folder; None where there is none."""
    states = [SavedState(number, path.parent) for path in folder.glob(f"**/{_METADATA}") if (number := _number(path))]
    return max(states, default=None)


def _committed(name: str, versions: Mapping[str, int]) -> dict[int, int]:
    """The greatest number of a committed checkpoint, by the number of its generation."""
    found = dict[int, int]()
    for app_id, version in versions.items():
        if match := re.fullmatch(rf"{re.escape(f'ratify-{name}-')}(\d+)-[0-9a-f]{{32}}", app_id):
            found[int(match[1])] = max(version, found.get(int(match[1]), 0))
    return found


def _number(metadata: Path) -> int | None:
    """The number of a checkpoint; None where the file is not complete."""
    head = metadata.read_bytes()[: _HEADER.size]
    if len(head) < _HEADER.size:
        return None
    magic, _, number = _HEADER.unpack(head)
    return number if magic == _MAGIC else None
