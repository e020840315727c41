"""A plain model of landed files: what a bronze table and the ledger hold after any sequence of loads.

It knows nothing of tables, logs, load ids or times: contents are names, and a table is a dict from content to path.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ingest.file_source import Rewrite


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
    """

    policy: Rewrite
    held: dict[str, str] = field(default_factory=dict[str, str])
    seen: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    notes: dict[tuple[str, int], list[Note]] = field(default_factory=dict[tuple[str, int], list[Note]])

    def of(self, path: str) -> set[str]:
        return {content for content, holder in self.held.items() if holder == path}

    def loading(self, files: Iterable[LandedVersion], readable: Mapping[str, bool], dialect: str) -> Iterator[None]:
        """Load a batch; yields after each commit of the table, and notes the rest at the end."""
        left = list(files)
        while left:
            appends = dict[str, LandedVersion]()
            for file in left:
                free = file.content not in self.held and not (self.of(file.path) and self.policy is not Rewrite.APPEND)
                if free and readable[file.content]:
                    appends.setdefault(file.content, file)
            if appends:
                for content, file in appends.items():
                    self.held[content] = file.path
                    self.seen[file.path, file.stamp] = content
                left = [file for file in left if file not in appends.values()]
                yield
                continue
            rewritten = (file for file in left if self.policy is Rewrite.REPLACE and self.of(file.path) - {file.content})
            usable = (file for file in rewritten if file.content in self.held or readable[file.content])
            if file := next(usable, None):
                for old in self.of(file.path) - {file.content}:
                    del self.held[old]
                if file.content not in self.held:
                    self.held[file.content] = file.path
                    self.seen[file.path, file.stamp] = file.content
                    left.remove(file)
                yield
                continue
            break
        for file in left:
            self.note(file, readable[file.content], dialect)

    def note(self, file: LandedVersion, readable: bool, dialect: str) -> None:
        if file.content in self.held:
            note = Note(file.content)
        else:
            # The content that the name has had longest.
            conflict = next((content for content, holder in self.held.items() if holder == file.path), "")
            note = Note(file.content, dialect, conflict if readable else "")
        self.seen[file.path, file.stamp] = file.content
        self.notes.setdefault((file.path, file.stamp), []).append(note)

    def lose(self, contents: Iterable[str]) -> None:
        """A repair withdrew these."""
        for content in contents:
            del self.held[content]

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
