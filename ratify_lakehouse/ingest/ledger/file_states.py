"""The ledger's rules as pure functions: what a bronze table holds, what follows for a file, and which files are settled."""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from ratify_lakehouse.ingest.file_source import Rewrite
from ratify_lakehouse.ingest.ledger.file_ledger import LedgerEntry, Status


class HeldContents:
    """The contents whose rows are in a bronze table, each held by one path."""

    def __init__(self, entries: Iterable[LedgerEntry]) -> None:
        """`entries`: the LOADED ones that no later version withdrew."""
        self._by_content = {entry.sha256: entry for entry in entries}

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._by_content.values())

    def holder(self, sha256: str) -> LedgerEntry | None:
        """Return the entry whose rows these bytes are."""
        return self._by_content.get(sha256)

    def of_path(self, path: str) -> list[LedgerEntry]:
        """Return the entries of a path, in the order of their versions."""
        return sorted((held for held in self._by_content.values() if held.path == path), key=lambda held: held.version)

    def others_of(self, path: str, sha256: str) -> list[LedgerEntry]:
        """Return the entries of a path with other bytes than these."""
        return [held for held in self.of_path(path) if held.sha256 != sha256]


class FileStep(Enum):
    """What is to be done with a file next.

    APPEND: its rows. REPLACE: the rows of its path, by its own. REMOVE: the rows of its path, because another path holds its
    bytes. The other three are final: its path holds its bytes, another path does, or its name has other content.
    """

    APPEND = "append"
    REPLACE = "replace"
    REMOVE = "remove"
    KNOWN = "known"
    REPEATED = "repeated"
    REFUSED = "refused"


def next_step(policy: Rewrite, path: str, sha256: str, held: HeldContents) -> FileStep:
    """Return what is to be done with a readable file."""
    holder, others = held.holder(sha256), held.others_of(path, sha256)
    replaces = policy is Rewrite.REPLACE and bool(others)
    if holder is None and others and policy is Rewrite.REFUSE:
        return FileStep.REFUSED
    if holder is None:
        return FileStep.REPLACE if replaces else FileStep.APPEND
    if replaces:
        return FileStep.REMOVE
    return FileStep.KNOWN if holder.path == path else FileStep.REPEATED


def settled_entry(
    policy: Rewrite, declaration: str, entries: Sequence[LedgerEntry], held: HeldContents
) -> LedgerEntry | None:
    """Return the entry that settles a version of a file; None if that version is waiting.

    Args:
        policy: The source's, for rewritten files.
        declaration: Digest of the source's declaration.
        entries: Those of this version: of its table, path and fingerprint.
        held: What the table holds of the entries' contents and of their path.
    """
    settling = (entry for entry in entries if _settles(policy, declaration, entry, held))
    return max(settling, key=lambda entry: (entry.version, entry.status is Status.LOADED), default=None)


def _settles(policy: Rewrite, declaration: str, entry: LedgerEntry, held: HeldContents) -> bool:
    if entry.status is Status.REWRITTEN:
        return False
    if held.holder(entry.sha256):
        replaces = policy is Rewrite.REPLACE and held.others_of(entry.path, entry.sha256)
        return entry.status is not Status.WITHDRAWN and not replaces
    if entry.status is not Status.REFUSED or entry.declaration != declaration:
        return False
    conflict = held.holder(entry.conflicts_with) if entry.conflicts_with else None
    return not entry.conflicts_with or (conflict is not None and conflict.path == entry.path)
