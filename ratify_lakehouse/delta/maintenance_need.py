"""Maintenance that a table needs: its figures against its thresholds. Nothing is remembered: the table says it all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ratify_lakehouse.delta.compaction_bins import DELETED_RATIO, TARGET_BYTES
from ratify_lakehouse.delta.table_figures import TableFigures
from ratify_lakehouse.wording import counted


class MaintenanceStep(StrEnum):
    """Steps of the maintenance of a table."""

    COMPACT = "compact"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class TableMaintenance:
    """Thresholds from which on a table is maintained, and how.

    Attributes:
        enabled: Whether it is at all.
        small_files: Compact from so many small files on that can become fewer, if they are also
        small_ratio: at least this part of all files.
        deleted_rows: Compact from so many deleted rows on that can be dropped, if they are also
        deleted_ratio: at least this part of the rows in the files.
        log_versions: Write a checkpoint after so many versions without one.
        target_bytes: Size of the files that a compaction makes.
        sort: Columns to order the rows of each new file by.
        z_order: Whether by all of them alike, along a Z-order curve.
    """

    enabled: bool = True
    # As Delta's autoCompact.minNumFiles.
    small_files: int = 50
    small_ratio: float = 0.2
    # Each MERGE into a small table deletes a large part of it, which costs nobody anything.
    deleted_rows: int = 10_000
    deleted_ratio: float = DELETED_RATIO
    log_versions: int = 100
    target_bytes: int = TARGET_BYTES
    sort: tuple[str, ...] = ()
    z_order: bool = False


@dataclass(frozen=True)
class MaintenanceNeed:
    """Maintenance that is due.

    Attributes:
        due: The steps that are due, each with the reason.
        times_over: The figure that is highest for its threshold, in thresholds: from 1 on something is due.
    """

    due: Mapping[MaintenanceStep, str] = field(default_factory=dict[MaintenanceStep, str])
    times_over: float = 0.0

    @property
    def reason(self) -> str:
        """Why maintenance is due; empty if none is."""
        return "; ".join(self.due.values())


def maintenance_need(figures: TableFigures, maintenance: TableMaintenance) -> MaintenanceNeed:
    """Return what maintenance a table needs by its thresholds, whether or not it is to be maintained.

    Args:
        figures: Of the table, for its target size and deleted ratio.
        maintenance: Its thresholds.
    """
    merged = min(
        figures.mergeable_files / maintenance.small_files,
        _part(figures.mergeable_files, figures.files) / maintenance.small_ratio,
    )
    deleted_part = _part(figures.droppable_rows, figures.rows + figures.deleted_rows)
    deleted = min(figures.droppable_rows / maintenance.deleted_rows, deleted_part / maintenance.deleted_ratio)
    log = figures.since_checkpoint / maintenance.log_versions
    compact, due = list[str](), dict[MaintenanceStep, str]()
    if merged >= 1:
        limit = f"{maintenance.small_files:,} and {maintenance.small_ratio:.0%}"
        compact.append(f"{figures.mergeable_files:,} of {counted(figures.files, 'file')} can become fewer (limit {limit})")
    if deleted >= 1:
        limit = f"{maintenance.deleted_rows:,} and {maintenance.deleted_ratio:.1%}"
        compact.append(f"{figures.droppable_rows:,} rows in its files are deleted, {deleted_part:.1%} (limit {limit})")
    if compact:
        due[MaintenanceStep.COMPACT] = "; ".join(compact)
    if log >= 1:
        versions = (
            f"{counted(figures.since_checkpoint, 'version')} since the last checkpoint (limit {maintenance.log_versions:,})"
        )
        only = f", {figures.unpublished:,} of them not published" if figures.unpublished else ""
        due[MaintenanceStep.CHECKPOINT] = versions + only
    return MaintenanceNeed(due, max(merged, deleted, log))


def _part(number: int, of: int) -> float:
    return number / of if of else 0.0
