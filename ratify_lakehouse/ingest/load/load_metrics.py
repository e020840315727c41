"""Metrics of loading: for the run's log, and for the plots of the asset pages."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ratify_lakehouse.ingest.ledger.file_ledger import FileOutcome, Status
from ratify_lakehouse.ingest.ledger.ledger_queries import Total
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome
from ratify_lakehouse.landing.landing_zone import LandedFile
from ratify_lakehouse.wording import counted


@dataclass(frozen=True)
class LoadedBatch:
    """A loaded batch: when it ended (UTC), and the seconds that it took."""

    outcome: BatchOutcome
    at: dt.datetime
    seconds: float

    @property
    def lags(self) -> list[float]:
        """Seconds from each file's last change to the commit of its rows, where the store reports that."""
        files = (file for file in self.outcome.files if file.status is Status.LOADED and not file.recovered)
        return [(self.at - file.landed_at).total_seconds() for file in files if file.landed_at]

    def log_line(self, number: int, done: int, total: int) -> str:
        """Return a line for the log: this batch, and the progress of all."""
        outcome = self.outcome
        statuses = ", ".join(f"{count} {status}" for status in Status if (count := outcome.count(status)))
        dropped = f" ({outcome.dropped:,} of erased subjects dropped)" if outcome.dropped else ""
        return (
            f"batch {number} ({outcome.batch_id}) in {self.seconds:.1f} s: {statuses or 'no files'}, "
            f"{counted(outcome.rows, 'row')}{dropped}; {done:,} of {counted(total, 'file')} are done"
        )


def numbers(batches: Sequence[LoadedBatch]) -> dict[str, int | float]:
    """Return what a materialization did, by the names of its plots. Times are in seconds."""
    files = [file for batch in batches for file in batch.outcome.files]
    loaded: dict[str, int | float] = {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        **{f"files {status}": _count(files, status) for status in Status if status is not Status.REWRITTEN},
        # No file ends as withdrawn: another content under its name replaces its rows.
        f"files {Status.WITHDRAWN}": sum(file.replaced > 0 for file in files if not file.recovered),
    }
    if withdrawn := sum(file.replaced for file in files if not file.recovered):
        loaded[f"rows {Status.WITHDRAWN}"] = withdrawn
    if dropped := sum(batch.outcome.dropped for batch in batches):
        loaded["rows of erased subjects dropped"] = dropped
    if batches:
        loaded["seconds per batch"] = round(sum(batch.seconds for batch in batches) / len(batches), 3)
    if lags := [lag for batch in batches for lag in batch.lags]:
        loaded |= {"lag p50 (s)": round(median(lags), 3), "lag max (s)": round(max(lags), 3)}
    return loaded


def ledger_numbers(
    totals: Mapping[Status, Total], table: str, waiting: Sequence[LandedFile], now: dt.datetime
) -> dict[str, int | float]:
    """Return the sums of the ledger, and the files that wait for one table. The oldest one's age is in seconds."""
    ages = [(now - file.modified_at).total_seconds() for file in waiting if file.modified_at]
    return {
        "files": sum(total.files for total in totals.values()),
        **{f"files {status}": total.files for status, total in totals.items()},
        **{
            f"rows {status}": total.rows for status, total in totals.items() if total.rows and status is not Status.REWRITTEN
        },
        "bytes": sum(total.size for total in totals.values()),
        f"files waiting for {table}": len(waiting),
        f"oldest waiting for {table} (s)": round(max(ages, default=0.0), 3),
    }


def _count(files: Sequence[FileOutcome], status: Status) -> int:
    return sum(file.status is status for file in files)
