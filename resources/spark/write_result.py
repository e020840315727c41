"""The result of a write of Spark to a table."""

from dataclasses import dataclass

from resources.delta.commit_history import Commit


@dataclass(frozen=True)
class WriteResult:
    """The result of a write to a table.

    Attributes:
        commit: The commit, or None if nothing differed and no version was committed.
        version: The table's version after the write.
        rows: Rows in the table after the write.
    """

    commit: Commit | None
    version: int
    rows: int
