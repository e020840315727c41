"""Writes of ours to a table, as its commits and properties record them, whatever is declared now."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from ratify_lakehouse.delta.commit_author import author_of
from ratify_lakehouse.delta.commit_history import OURS, SAME_ROWS, Commit
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.delta.table_log import TableLog


@dataclass(frozen=True)
class RecordedWrites:
    """The record of our writes to a table, in its log.

    Attributes:
        last: The newest one that changed rows, or else the newest; None where the log has none any more.
        inputs: Full names of the tables that rows of it were computed from.
    """

    last: Commit | None = None
    inputs: Collection[str] = ()

    def __str__(self) -> str:
        if self.last is None:
            return "Ratify created it, or wrote it in versions that its log has no more"
        principal, run = author_of(self.last.record)
        by, in_run = f" by {principal}" if principal else "", f" in the run {run}" if run else ""
        read = f" from {', '.join(sorted(self.inputs))}" if self.inputs else ""
        return f"Ratify wrote it{read}, last version {self.last.version}{by}{in_run}"


def recorded_writes(log: DeltaLog, snapshot: Snapshot) -> RecordedWrites | None:
    """Return what a table's log records of our writes; None if the table was never one of ours, as far as its log says.

    Args:
        log: The table's.
        snapshot: Its latest version, which the log returned last.

    Raises:
        StorageUnavailable.
    """
    ours = [commit for commit in TableLog(log, snapshot).commits() if commit.is_ours]
    if not ours and not any(name.startswith(OURS) for name in (*snapshot.properties, *snapshot.state.txns)):
        return None
    changing = (commit for commit in ours if commit.operation not in SAME_ROWS)
    inputs = {name for commit in ours for name in _inputs(commit.record)}
    return RecordedWrites(next(changing, ours[0] if ours else None), inputs)


def _inputs(record: dict[str, Any]) -> Collection[str]:
    found = record.get("inputs")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else ()
