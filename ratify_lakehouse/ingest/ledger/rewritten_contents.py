"""Contents that an erasure has rewritten: bytes without the rows of a subject, which count as those that landed.

The rows of others in them are the same, so that a load of them adds nothing where the content that landed is loaded, and
adds them under its name where it is not, as after a repair.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ratify_lakehouse.ingest.ledger.file_ledger import LedgerEntry, Status


@dataclass(frozen=True)
class LandedContent:
    """A content as it landed.

    Attributes:
        sha256: Of its bytes.
        removed: How many rows of it the present bytes lack.
    """

    sha256: str
    removed: int = 0


def landed_content(path: str, sha256: str, entries: Sequence[LedgerEntry], held: Collection[str]) -> LandedContent:
    """Return what the bytes of a file count as.

    Args:
        path: Of the file.
        sha256: Of its bytes.
        entries: Those of the bytes.
        held: SHA-256 of contents whose rows are in the table.
    """
    rewritten = [entry for entry in entries if entry.status is Status.REWRITTEN]
    if of_path := [entry for entry in rewritten if entry.path == path]:
        found = max(of_path, key=lambda entry: (entry.version, entry.conflicts_with in held, entry.conflicts_with))
        return LandedContent(found.conflicts_with, found.rows)
    # Bytes that an erasure has made may have landed by themselves, too, under another name.
    if not rewritten or any(entry.status is Status.LOADED for entry in entries):
        return LandedContent(sha256)
    # Two contents may differ in the removed rows alone: then rather one that is loaded, so that nothing is loaded twice.
    found = max(rewritten, key=lambda entry: (entry.conflicts_with in held, entry.conflicts_with))
    return LandedContent(found.conflicts_with, found.rows)
