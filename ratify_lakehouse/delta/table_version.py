"""A table as it was at one of its versions, from its log, and which versions the log can still tell.

PROTOCOL.md, "Action Reconciliation": a version is made of a checkpoint up to it, and of each later commit.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ratify_lakehouse.delta.commit_history import Commit, commit_from_actions
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.log_checkpoints import LOG, complete_checkpoints, replayed_actions
from ratify_lakehouse.delta.snapshot import STATE_ACTIONS, LiveFile, Snapshot, SnapshotState, apply_to_files
from ratify_lakehouse.errors import VersionMissing

_PUBLISHED = re.compile(r"^(\d{20})\.json$")

Files = Mapping[tuple[str, str], LiveFile]
"""Data files, by their keys."""


@dataclass(frozen=True)
class ReplayedVersion:
    """A table at one of its versions.

    Attributes:
        version: The version.
        files: Its data files.
        state: Its metadata and the Delta `txn` app ids.
    """

    version: int
    files: Files
    state: SnapshotState


def table_version(log: DeltaLog, version: int) -> ReplayedVersion:
    """Return a table as it was at a version, no newer than the last that its log has seen.

    Raises:
        FileNotFoundError: the log cannot tell that version any more.
        StorageUnavailable.
    """
    files, state = dict[tuple[str, str], LiveFile](), SnapshotState()
    for action, number in replayed_actions(log.storage, log.actions, version, ("add", *STATE_ACTIONS)):
        state.version = state.version if number is None else number
        state.apply(action)
        apply_to_files(files, action, number)
    return ReplayedVersion(version, files, state)


def first_version(log: DeltaLog, latest: int) -> int:
    """Return the first version that the log can still tell, as all that follow it: what it lacks was removed after a time.

    Raises:
        StorageUnavailable.
    """
    published = {int(match[1]) for name in log.storage.names(LOG) if (match := _PUBLISHED.match(name))}
    oldest = latest
    while oldest - 1 in published:
        oldest -= 1
    if oldest == 0:
        return 0
    found = (version for version, _ in complete_checkpoints(log.storage, latest) if version >= oldest)
    return min(found, default=latest)


def commits_since(log: DeltaLog, snapshot: Snapshot, version: int) -> Iterator[Commit]:
    """Yield the commits of a table from its latest version down to one, as far as they say who made them and when.

    Raises:
        StorageUnavailable.
        FileNotFoundError: the log lacks one.
    """
    for number in range(snapshot.version, version - 1, -1):
        if commit := commit_from_actions(number, log.actions(number)):
            yield commit


def version_at(log: DeltaLog, snapshot: Snapshot, time: dt.datetime) -> int:
    """Return the version that a table had at a time, by the timestamps of its commits.

    Args:
        log: The table's.
        snapshot: Its latest version.
        time: With a time zone.

    Raises:
        VersionMissing: it is before the first version that the log can still tell, or after the latest.
        StorageUnavailable.
    """
    first, oldest = first_version(log, snapshot.version), None
    for commit in commits_since(log, snapshot, first):
        if commit.timestamp <= time:
            if commit.version == snapshot.version and commit.timestamp < time:
                raise VersionMissing(
                    f"{_shown(time)} is after the latest version of {snapshot.full_name}, {commit.version} of "
                    f"{_shown(commit.timestamp)}: it is as it was then."
                )
            return commit.version
        oldest = commit
    since = f", {oldest.version} of {_shown(oldest.timestamp)}" if oldest else ""
    raise VersionMissing(
        f"{_shown(time)} is before the first version of {snapshot.full_name} that its log can still tell{since}."
    )


def version_of_load(log: DeltaLog, load_id: str) -> int:
    """Return the version that loaded an id; where the log does not have it any more, the latest, which has its rows too.

    Raises:
        StorageUnavailable.
    """
    latest = log.refresh().version
    with suppress(FileNotFoundError):
        for version in range(latest, -1, -1):
            if any(action["txn"]["appId"] == load_id for action in log.actions(version) if "txn" in action):
                return version
    return latest


def _shown(time: dt.datetime) -> str:
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
