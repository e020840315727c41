"""What the commits of a table did to its rows, by the actions in its log: not by what their operations are called."""

from typing import Any

from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import LiveFile

_MAX_FILES = 500
"""More data files than that are not read one by one: to read the whole table costs less."""


def adds_rows(action: dict[str, Any]) -> bool:
    """Return whether an action of the log adds a file with rows that are new, not only moved."""
    add = action.get("add")
    return bool(add) and bool(add.get("dataChange", True))


def removes_rows(action: dict[str, Any]) -> bool:
    """Return whether an action of the log removes rows."""
    remove = action.get("remove")
    # A file whose rows are deleted by a deletion vector is removed and added again.
    return bool(remove) and bool(remove.get("dataChange", True))


def appended_files(log: DeltaLog, after: int, latest: int) -> list[LiveFile] | None:
    """Return the data files that the versions after `after` have added, up to `latest`.

    `latest` is no newer than the last version that the log has seen.

    Returns:
        None where that does not describe the difference: rows were removed, the log no longer has a version, or there are
        too many files.
    """
    added = list[LiveFile]()
    for version in range(after + 1, latest + 1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            return None
        if any(removes_rows(action) for action in actions):
            return None
        added += [LiveFile(action["add"], version) for action in actions if adds_rows(action)]
    return added if len(added) <= _MAX_FILES else None
