"""A plain model of landed files: what a bronze table and the ledger hold after any sequence of loads.

It knows nothing of tables, logs, load ids or times: contents are names, and a table is a dict from content to path.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ratify_lakehouse.ingest.file_source import Rewrite


@dataclass(frozen=True)
class LandedVersion:
    """A version of a file as the landing zone shows it. `stamp` stands for the time and size in a listing."""

    path: str
    content: str
    stamp: int


@dataclass(frozen=True)
class Note:
    """The ledger's entry for a version that added nothing. `conflict`: the content that the name had."""

    content: str
    refused_by: str = ""
    conflict: str = ""


@dataclass
class ModelTable:
    """A bronze table.

    Attributes:
        held: Each content whose rows are in the table, with the path that they belong to.
        seen: The contents by version (path, stamp) that the ledger has an entry for.
        landings: The last landing of each content: the number of its batch, its place there, and a number of its own. A
            batch has the number of its first commit; one that commits nothing comes last of all with that of the latest.
        known: The versions of files that have landed with a content since its rows were loaded.
    """

    policy: Rewrite
    held: dict[str, str] = field(default_factory=dict[str, str])
    seen: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    notes: dict[tuple[str, int], list[Note]] = field(default_factory=dict[tuple[str, int], list[Note]])
    landings: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    known: dict[str, set[tuple[str, int]]] = field(default_factory=dict[str, set[tuple[str, int]]])
    batches: dict[str, tuple[frozenset[LandedVersion], int]] = field(
        default_factory=dict[str, tuple[frozenset[LandedVersion], int]]
    )
    commits: int = 0
    noted: int = 0

    def of(self, path: str) -> set[str]:
        return {content for content, holder in self.held.items() if holder == path}

    def loading(self, files: Iterable[LandedVersion], readable: Mapping[str, bool], dialect: str) -> Iterator[None]:
        """Load a batch; yields after each commit of the table, and notes the rest at the end."""
        left = list(files)
        batch, places = frozenset(left), {file: place for place, file in enumerate(left)}
        # Of a batch that was killed, the rest lands with what it has committed.
        first = min((number for each, number in self.batches.values() if each == batch), default=0)

        def hold(file: LandedVersion) -> None:
            self.held[file.content] = file.path
            self.seen[file.path, file.stamp] = file.content
            self.batches[file.content] = batch, self.commits
            self.known[file.content] = set()
            self.lands(file, first, places[file])

        while left:
            appends = dict[str, LandedVersion]()
            for file in left:
                free = file.content not in self.held and not (self.of(file.path) and self.policy is not Rewrite.APPEND)
                if free and readable[file.content]:
                    appends.setdefault(file.content, file)
            if appends:
                self.commits += 1
                first = first or self.commits
                for file in appends.values():
                    hold(file)
                left = [file for file in left if file not in appends.values()]
                yield
                continue
            rewritten = (file for file in left if self.policy is Rewrite.REPLACE and self.of(file.path) - {file.content})
            usable = (file for file in rewritten if file.content in self.held or readable[file.content])
            if file := next(usable, None):
                self.lose(self.of(file.path) - {file.content})
                self.commits += 1
                first = first or self.commits
                if file.content not in self.held:
                    hold(file)
                    left.remove(file)
                yield
                continue
            break
        for file in left:
            self.note(file, readable[file.content], dialect)
            self.repeats(file, *((first, places[file]) if first else (self.commits, math.inf)))

    def repeats(self, file: LandedVersion, number: int, place: float) -> None:
        """A version that the ledger knows does not land again."""
        if file.content in self.held and (file.path, file.stamp) not in self.known[file.content]:
            self.lands(file, number, place)

    def lands(self, file: LandedVersion, number: int, place: float) -> None:
        self.noted += 1
        self.known[file.content].add((file.path, file.stamp))
        landing = (number, place, self.noted)
        self.landings[file.content] = max(self.landings.get(file.content, landing), landing)

    def note(self, file: LandedVersion, readable: bool, dialect: str) -> None:
        if file.content in self.held:
            note = Note(file.content)
        else:
            # The content that the name has had longest.
            conflict = next((content for content, holder in self.held.items() if holder == file.path), "")
            note = Note(file.content, dialect, conflict if readable else "")
        self.seen[file.path, file.stamp] = file.content
        self.notes.setdefault((file.path, file.stamp), []).append(note)

    def in_order(self) -> list[str]:
        return sorted(self.held, key=lambda content: self.landings[content])

    def lose(self, contents: Iterable[str]) -> None:
        """A repair withdrew these."""
        for content in contents:
            del self.held[content], self.batches[content]

    def waits(self, file: LandedVersion, dialect: str) -> bool:
        content = self.seen.get((file.path, file.stamp))
        if content is None:
            return True
        if content in self.held:
            return self.policy is Rewrite.REPLACE and bool(self.of(file.path) - {content})
        return not any(
            note.refused_by == dialect and (not note.conflict or self.held.get(note.conflict) == file.path)
            for note in self.notes.get((file.path, file.stamp), [])
        )
