"""What the commits of a table added and removed, by the actions in its log: not by what their operations are called."""

import datetime as dt

from ratify_lakehouse.components.checks.check_state import Position
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT, Commit
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.row_changes import adds_rows, appended_files, removes_rows
from ratify_lakehouse.engines.spark.spark_engine import Spark


def position(log: DeltaLog) -> Position:
    """Return the latest version of a table.

    Raises:
        As `DeltaLog.refresh`.
    """
    snapshot = log.refresh()
    return Position(snapshot.uuid, snapshot.version)


def commits_after(spark: Spark, full_name: str, after: int, latest: int) -> list[Commit]:
    """Return a table's commits after a version, newest first; where there is none, the last one.

    `latest`: the version that was the latest a moment ago.
    """
    if after < 0:
        return list(spark.recent_commits(full_name, EVERY_COMMIT))
    # At least one, which names the present version.
    history = list(spark.recent_commits(full_name, max(1, latest - after)))
    if history and history[-1].version > after + 1:
        # Others have committed since the latest version was asked for.
        history = list(spark.recent_commits(full_name, EVERY_COMMIT))
    return [commit for commit in history if commit.version > after] or history[:1]


def removed_files(log: DeltaLog, after: int, latest: int) -> dict[int, int]:
    """Return the versions after `after` that removed rows, each with the number of data files that it removed or rewrote.

    Versions that the log no longer has are left out. `latest` is no newer than the last version that the log has seen.
    """
    removed = dict[int, int]()
    for version in range(after + 1, latest + 1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            continue
        if count := sum(removes_rows(action) for action in actions):
            removed[version] = count
    return removed


def appended_since(log: DeltaLog, since: Position | None, now: Position) -> list[str] | None:
    """Return the data files, by their paths in the table, that were added from one version to another.

    Returns:
        None as `appended_files`, and where `since` is no earlier version of the table.
    """
    files = appended_files(log, since.version, now.version) if since and now.reaches(since) else None
    return None if files is None else [file.path for file in files]


def last_new_rows(log: DeltaLog, latest: int) -> dt.datetime | None:
    """Return when the last version that added rows was committed (UTC, in-commit timestamp); None if there is none."""
    for version in range(latest, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            return None
        if any(adds_rows(action) for action in actions):
            info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            return dt.datetime.fromtimestamp((info.get("inCommitTimestamp") or info["timestamp"]) / 1000, dt.UTC)
    return None
