"""How far the tables that are computed from another one are behind it, by the records in their own commits."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.computed_inputs import COMMITS_READ, ComputedInputs, InputVersion
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import Snapshot
from ratify_lakehouse.errors import TableMissing


@dataclass(frozen=True)
class ReaderLag:
    """A table that is computed from another one.

    Attributes:
        reader: Its full name.
        seconds: Age of the oldest version of the other one that it has not read; 0 if it has read all.
    """

    reader: str
    seconds: float


def longest_lag(log: DeltaLog, snapshot: Snapshot, readers: Mapping[str, DeltaLog]) -> ReaderLag | None:
    """Return the reader of a table that is furthest behind; None if none says up to where it has read.

    Streams of Spark keep that in their checkpoints, and say nothing here.

    Args:
        log: The table's.
        snapshot: Its latest version, which the log returned last.
        readers: The logs of tables that may be computed from it, by their full names.

    Raises:
        CatalogUnavailable, CatalogDenied, StorageUnavailable, LogUnreadable, UnsafeTable.
    """
    lags = list[ReaderLag]()
    for name, reader in readers.items():
        read = _last_read(reader, snapshot.full_name)
        if read and read.table_id == snapshot.uuid:
            lags.append(ReaderLag(name, _age(log, read.version + 1, snapshot.version)))
    return max(lags, key=lambda lag: lag.seconds, default=None)


def _last_read(reader: DeltaLog, full_name: str) -> InputVersion | None:
    """The version of a table that another one was computed from last, by its newest commits."""
    try:
        latest = reader.refresh().version
    except TableMissing:
        return None
    for version in range(latest, max(-1, latest - COMMITS_READ), -1):
        try:
            commit = commit_from_actions(version, reader.actions(version))
        except FileNotFoundError:
            return None
        if commit and (record := ComputedInputs.of(commit)):
            return record.inputs.get(full_name)
    return None


def _age(log: DeltaLog, first: int, latest: int) -> float:
    """Seconds since a version was committed, or since the first one after it that the log still has."""
    for version in range(first, latest + 1):
        try:
            commit = commit_from_actions(version, log.actions(version))
        except FileNotFoundError:
            continue
        if commit:
            return max(0.0, time.time() - commit.timestamp.timestamp())
    return 0.0
