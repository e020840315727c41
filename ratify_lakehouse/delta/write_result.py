"""The result of a write to a table, by whichever engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratify_lakehouse.delta.commit_history import Commit


@dataclass(frozen=True)
class WriteResult:
    """The result of a write to a table.

    Attributes:
        commit: The commit, or None if nothing differed and no version was committed.
        version: The table's version after the write.
        rows: Rows in the table after the write.
        counted: How many rows were `inserted`, `updated` and `deleted`, where the commit's metrics do not say so.
        earlier: The versions that the write committed before the commit.
    """

    commit: Commit | None
    version: int
    rows: int
    counted: Mapping[str, int] | None = None
    earlier: Sequence[int] = ()

    @property
    def versions(self) -> list[int]:
        """The versions that the write committed."""
        return [*self.earlier, *([self.commit.version] if self.commit else [])]

    @property
    def inserted(self) -> int:
        """Rows that the table did not have before."""
        return self._changed("inserted")

    @property
    def updated(self) -> int:
        """Rows that have other values than before."""
        return self._changed("updated")

    @property
    def deleted(self) -> int:
        """Rows that the table has no more."""
        return self._changed("deleted")

    def _changed(self, did: str) -> int:
        if self.counted is not None:
            return self.counted.get(did, 0)
        if self.commit is None:
            return 0
        if did == "inserted" and "numTargetRowsInserted" not in self.commit.metrics:
            # Of an INSERT.
            return self.commit.metrics.get("numOutputRows", 0)
        return self.commit.metrics.get(f"numTargetRows{did.capitalize()}", 0)
