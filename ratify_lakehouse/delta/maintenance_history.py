"""Changes of a table since its last maintenance, which is the last OPTIMIZE of ours in its log."""

import datetime as dt
from dataclasses import dataclass

from ratify_lakehouse.delta.commit_actions import OUR_WRITER
from ratify_lakehouse.delta.commit_history import commit_from_actions
from ratify_lakehouse.delta.delta_log import DeltaLog

_LOOKED_AT = 1000


@dataclass(frozen=True)
class ChangesSinceMaintenance:
    """The versions of a table after its last maintenance, or, where there is none, the newest ones that its log has.

    Attributes:
        version: Of the last maintenance; -1 if there is none among the newest thousand versions.
        at: When that was (UTC).
        versions: How many are newer.
        files: That these added.
        bytes: Of these files.
        deletion_vectors: Files among them with deleted rows.
    """

    version: int
    at: dt.datetime | None
    versions: int
    files: int
    bytes: int
    deletion_vectors: int


def changes_since_maintenance(log: DeltaLog, latest: int) -> ChangesSinceMaintenance:
    """Return what has changed since a table's last maintenance.

    Args:
        log: The table's.
        latest: Its latest version, no newer than the last that the log has seen.

    Raises:
        StorageUnavailable.
    """
    versions = files = size = vectors = 0
    for version in range(latest, max(-1, latest - _LOOKED_AT), -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            break
        commit = commit_from_actions(version, actions)
        if commit and commit.operation == "OPTIMIZE" and OUR_WRITER in commit.engine_info:
            return ChangesSinceMaintenance(version, commit.timestamp, versions, files, size, vectors)
        added = [action["add"] for action in actions if "add" in action]
        versions += 1
        files += len(added)
        size += sum(add["size"] for add in added)
        vectors += sum(bool(add.get("deletionVector")) for add in added)
    return ChangesSinceMaintenance(-1, None, versions, files, size, vectors)
