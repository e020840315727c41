"""Records of the job `maintenance`: the outcome of each table in a run, and how the UI and the log show it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import dagster as dg

from ratify_lakehouse.components.maintenance_metadata import markdown_table, rules_table, shown_figures
from ratify_lakehouse.delta.maintenance_history import ChangesSinceMaintenance
from ratify_lakehouse.delta.maintenance_inspection import Inspection

BEFORE = " before"
"""What the names of a table's figures end with in its observation that it had before; without it, it has them now."""

SCAN = "seconds of a scan"
"""Name of the time that a scan of the whole table takes."""


class MaintenanceOutcome(StrEnum):
    """What became of a table."""

    MAINTAINED = "maintained"
    NOT_DUE = "not due"
    IN_USE = "a run is in progress"
    LEFT = "left to others"
    OFF = "switched off"
    MISSING = "missing"
    FAILED = "failed"


@dataclass(frozen=True)
class MaintenanceRecord:
    """A table in a run of the job.

    Attributes:
        full_name: The table.
        outcome: What became of it.
        why: The reason.
        before: The table before; None where it could not be looked at, or nothing of it is to be known.
        after: The table afterwards, where something was done.
        changes: What had changed in it since its last maintenance.
        scans: Seconds that a scan of the whole table took, before and after a compaction; empty where none was made.
    """

    full_name: str
    outcome: MaintenanceOutcome
    why: str
    before: Inspection | None = None
    after: Inspection | None = None
    changes: ChangesSinceMaintenance | None = None
    scans: tuple[float, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """The record as a row of the tables that are printed and logged."""
        figures = [look.figures if look else None for look in (self.before, self.after or self.before)]
        files, size = ([getattr(found, name) if found else "" for found in figures] for name in ("files", "megabytes"))
        return {
            "table": self.full_name,
            "outcome": str(self.outcome),
            "files before": files[0],
            "files after": files[1],
            "MB before": size[0],
            "MB after": size[1],
            "scan before": shown_seconds(*self.scans[:1]),
            "scan after": shown_seconds(*self.scans[1:]),
            "why": self.why,
        }


def observation(key: dg.AssetKey, record: MaintenanceRecord) -> dg.AssetObservation | None:
    """Return what the page of an asset shows of its table; None if nobody looked at the table.

    Its numbers have the same names each time, so that Dagster plots them.
    """
    if record.before is None:
        return None
    metadata: dict[str, Any] = {"outcome": str(record.outcome), "why": record.why}
    for when, look in ((BEFORE, record.before), ("", record.after or record.before)):
        if look.figures:
            metadata |= {f"{name}{when}": value for name, value in shown_figures(look.figures).items()}
    metadata |= {f"{SCAN}{when}": seconds for when, seconds in zip((BEFORE, ""), record.scans, strict=False)}
    if changes := record.changes:
        since = {"versions": changes.versions, "files": changes.files, "bytes": changes.bytes}
        since["deletion vectors"] = changes.deletion_vectors
        metadata |= {f"{name} since last maintenance": value for name, value in since.items()}
        if changes.at:
            metadata["last maintenance"] = dg.MetadataValue.timestamp(changes.at)
    metadata["maintenance"] = rules_table(record.before.rules)
    return dg.AssetObservation(key, metadata=metadata)


def maintenance_report(records: Sequence[MaintenanceRecord]) -> str:
    """Return the records as a table in Markdown, those of tables that something was done to first."""
    order = list(MaintenanceOutcome)
    return markdown_table([record.row for record in sorted(records, key=lambda each: order.index(each.outcome))])


def shown_seconds(seconds: float | None = None) -> str:
    """Return the seconds of a scan as text; empty where none was made."""
    return "" if seconds is None else f"{seconds:.2f} s"
