"""What the commits of a table added and removed, by the actions in its log: not by what their operations are called."""

import datetime as dt
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote

from components.checks.check_state import Position
from resources.delta.delta_log import DeltaLog
from resources.duckdb.duckdb_engine import DuckDBSession
from resources.sql.duckdb_sql import literal

_MAX_FILES = 500
"""More data files than that are not read one by one: to read the whole table costs less."""


def position(log: DeltaLog) -> Position:
    """Return the latest version of a table.

    Raises:
        As `DeltaLog.refresh`.
    """
    snapshot = log.refresh()
    return Position(snapshot.uuid, snapshot.version)


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
        if count := sum(_removes_rows(action) for action in actions):
            removed[version] = count
    return removed


def appended_files(log: DeltaLog, since: Position | None, now: Position) -> list[str] | None:
    """Return the data files, by their paths in the table, that were added from one version to another.

    Returns:
        None where that does not describe the difference: rows were removed, the log no longer has a version, `since` is no
        earlier version of the table, or there are too many files.
    """
    if since is None or not now.reaches(since):
        return None
    added = list[str]()
    for version in range(since.version + 1, now.version + 1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            return None
        if any(_removes_rows(action) for action in actions):
            return None
        added += [unquote(add["path"]) for action in actions if (add := action.get("add")) and add.get("dataChange", True)]
    return added if len(added) <= _MAX_FILES else None


def last_new_rows(log: DeltaLog, latest: int) -> dt.datetime | None:
    """Return when the last version that added rows was committed (UTC, in-commit timestamp); None if there is none."""
    for version in range(latest, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            return None
        if any((add := action.get("add")) and add.get("dataChange", True) for action in actions):
            info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            return dt.datetime.fromtimestamp((info.get("inCommitTimestamp") or info["timestamp"]) / 1000, dt.UTC)
    return None


def rows_of_files(
    session: DuckDBSession, log: DeltaLog, files: Sequence[str], query: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a query in which `{rows}` stands for the rows of some data files of a table.

    Raises:
        StorageUnavailable, FileNotFoundError: a file cannot be read.
    """
    if not files:
        return []
    with ExitStack() as stack:
        local = [stack.enter_context(log.storage.downloaded(file)) for file in files]
        names = ", ".join(literal(str(path)) for path in local)
        # Not through the attached catalog: a catalog's table has no way to name its files.
        relation = f"read_parquet([{names}], union_by_name = true)"
        return session.con.execute(query.format(rows=relation), list(parameters)).fetchall()


def _removes_rows(action: dict[str, Any]) -> bool:
    remove = action.get("remove")
    # A file whose rows are deleted by a deletion vector is removed and added again.
    return bool(remove) and bool(remove.get("dataChange", True))
