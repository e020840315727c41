"""What has changed in a table since its last care, which is the last OPTIMIZE of ours in its log."""

import datetime as dt
from dataclasses import dataclass

from resources.delta.commit_actions import OUR_WRITER
from resources.delta.commit_history import commit_from_actions
from resources.delta.delta_log import DeltaLog

_LOOKED_AT = 1000


@dataclass(frozen=True)
class ChangesSinceCare:
    """The versions of a table after its last care, or, where there is none, the newest ones that its log has.

    Attributes:
        version: Of the last care; -1 if there is none among the newest thousand versions.
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


def changes_since_care(log: DeltaLog, latest: int) -> ChangesSinceCare:
    """Return what has changed since a table's last care.

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
            return ChangesSinceCare(version, commit.timestamp, versions, files, size, vectors)
        added = [action["add"] for action in actions if "add" in action]
        versions += 1
        files += len(added)
        size += sum(add["size"] for add in added)
        vectors += sum(bool(add.get("deletionVector")) for add in added)
    return ChangesSinceCare(-1, None, versions, files, size, vectors)
