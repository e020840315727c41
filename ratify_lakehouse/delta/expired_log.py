"""Files of a table's log that have expired: no version needs them which the table has had within its log's retention.

A version is read from the newest checkpoint up to it and the commits after that. So of the checkpoints up to the version
that the table had when the retention began, the newest stays with all that follows, and what is before it has expired.

A table that goes on from its last commit, such as one of the strategy `append`, keeps that commit, however old it is: it
says up to which versions of the inputs the table has their rows (`computed_inputs`).
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from posixpath import basename, dirname

from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.log_checkpoints import (
    LOG,
    SIDECARS,
    checkpoint_actions,
    complete_checkpoints,
    newest_checkpoint,
    replayed_actions,
)
from ratify_lakehouse.delta.retained_versions import retention_of
from ratify_lakehouse.delta.snapshot import Json, Snapshot, committed_at
from ratify_lakehouse.delta.table_storage import StoredFile, TableStorage
from ratify_lakehouse.errors import LogUnreadable

LOG_RETENTION = "delta.logRetentionDuration"
"""Table property: how long versions stay in the log, as `interval 30 days`."""

_CLEANUP = "delta.enableExpiredLogCleanup"
_MONTH_S = 30 * 86_400
# Of a commit, a checkpoint, a compacted part of the log or Delta's checksum, by the first version that it is of.
_VERSIONED = re.compile(r"^(\d{20})\.")
_COMMIT = re.compile(r"^(\d{20})\.json$")


def log_seconds(snapshot: Snapshot) -> int | None:
    """Return how long a table keeps its versions in the log; None: for ever (`delta.enableExpiredLogCleanup` is false).

    Raises:
        UnsafeTable: its property cannot be understood.
    """
    if snapshot.properties.get(_CLEANUP, "").lower() == "false":
        return None
    return retention_of(snapshot, LOG_RETENTION, _MONTH_S)


def expired_log_files(log: DeltaLog, snapshot: Snapshot, old: Iterable[StoredFile], since_ms: float) -> list[StoredFile]:
    """Return the files of the log that have expired.

    Args:
        log: The table's.
        snapshot: Its latest version, which the log returned last.
        old: The files of the table that are older than the retention; others stay, whatever they are of.
        since_ms: When the retention began, milliseconds since 1970.

    Raises:
        LogUnreadable: the checkpoint that would be the first cannot be read.
        StorageUnavailable.
    """
    first = _first_checkpoint(log, snapshot, since_ms)
    if first < 0:
        return []
    listed = [file for file in old if dirname(file.path) in (LOG, SIDECARS)]
    sidecars = frozenset[str]()
    if any(dirname(file.path) == SIDECARS for file in listed):
        sidecars = _named_sidecars(log.storage, snapshot.version, first)
    return [file for file in listed if _has_expired(file.path, first, sidecars)]


def _first_checkpoint(log: DeltaLog, snapshot: Snapshot, since_ms: float) -> int:
    """The version of the newest checkpoint up to the version that the table had then; -1: nothing has expired."""
    commits = {int(match[1]) for name in log.storage.names(LOG) if (match := _COMMIT.match(name))}
    earliest = max(commits, default=snapshot.version + 1)
    while earliest - 1 in commits:
        earliest -= 1
    versions = range(earliest, snapshot.version + 1)
    then = earliest + bisect_right(versions, since_ms, key=lambda version: committed_at(log.actions(version))) - 1
    if then < earliest:
        return -1
    version, _ = newest_checkpoint(log.storage, then)
    # Only where something would expire is the log read for it.
    if version >= 0 and (record := _newest_record(log, versions)) < version:
        version, _ = newest_checkpoint(log.storage, record)
    if version < 0:
        return -1
    try:
        # Read to its end, with its sidecars: what it replaces can be read no more afterwards.
        for _ in replayed_actions(log.storage, log.actions, version, ("metaData", "add")):
            pass
    except FileNotFoundError as error:
        raise LogUnreadable(
            f"{snapshot.full_name}: the checkpoint of version {version} lacks a file ({error}): nothing before it is "
            "removed. Let Spark write another one, then remove this one."
        ) from error
    return version


def _newest_record(log: DeltaLog, versions: range) -> int:
    """The newest of these versions that says from what the table was computed; the last one if none does.

    What a RESTORE has taken away says nothing of the table any more, as `last_position` has it.
    """
    until = versions[-1]
    for version in reversed(versions):
        commit = commit_from_actions(version, log.actions(version)) if version <= until else None
        if commit and ComputedInputs.of(commit):
            return version
        if commit and commit.operation == "RESTORE" and (restored := str(commit.parameters.get("version"))).isdigit():
            until = int(restored)
    return versions[-1]


def _named_sidecars(storage: TableStorage, latest: int, first: int) -> frozenset[str]:
    """Names of the sidecars of the checkpoints that stay."""
    actions: list[Json] = [
        action
        for version, paths in complete_checkpoints(storage, latest)
        if version >= first
        for path in paths
        for action in checkpoint_actions(storage, path, ("sidecar",))
    ]
    return frozenset(basename(action["sidecar"]["path"]) for action in actions if "sidecar" in action)


def _has_expired(path: str, first: int, sidecars: Collection[str]) -> bool:
    name = basename(path)
    if dirname(path) == SIDECARS:
        return name.endswith(".parquet") and name not in sidecars
    return bool((match := _VERSIONED.match(name)) and int(match[1]) < first)
