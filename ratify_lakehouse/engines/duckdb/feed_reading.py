"""The change data feed of a table, read by DuckDB from the log and the data files.

Which files have the changes of a version is in PROTOCOL.md, "Add CDC File": if a version has change files, they have all of
its changes; otherwise its added files are inserts, and its removed files are deletes. A file that is removed and added with
another deletion vector has changed in the rows by which the two vectors differ.
"""

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from ratify_lakehouse.column_types import SqlType
from ratify_lakehouse.delta.commit_history import Commit, commit_from_actions
from ratify_lakehouse.delta.deletion_vectors import deleted_rows
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.feed_parts import values_readable_since
from ratify_lakehouse.delta.row_changes import adds_rows, removes_rows
from ratify_lakehouse.delta.snapshot import Json, Snapshot
from ratify_lakehouse.delta.table_features import Use, refuse
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.duckdb_errors import all_translated
from ratify_lakehouse.errors import ChangesNotRecorded, LogUnreadable, UnsafeTable
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

_CHANGE_TYPE = "_change_type"
_FEED_COLUMNS = f"{_CHANGE_TYPE}, _commit_version, _commit_timestamp"
_ROW_NUMBER = "file_row_number"
_IS_CHANGE = "__is_cdc"
"""By this column Spark tells change files from data files; a change file may have it."""
_ROW_IDS = ("_row-id-col-", "_row-commit-version-col-")
"""How the columns begin in which moved rows keep their ids (PROTOCOL.md, "Row Tracking")."""


def read_changes(
    session: DuckDBSession, log: DeltaLog, first: int | None = None, last: int | None = None
) -> "DuckDBPyRelation":
    """Return the rows that a range of versions changed, as `read_changes` of Spark does.

    Args:
        session: Holds the rows in a temporary table, beyond its memory limit on disk, until it ends.
        log: The log of a managed table.
        first: The first version; by default the earliest that has the feed.
        last: The last version; by default the latest.

    Returns:
        The columns that the table has now, and Delta's: `_change_type` (insert, delete, update_preimage, update_postimage),
        `_commit_version` and `_commit_timestamp`. In no order.

    Raises:
        ChangesNotRecorded: one of the versions has no feed, or does not exist, or its files are gone; or the table had
            columns of other types before.
        UnsafeTable: it has column mapping, a file outside of its folder, or one with a column that the table lacks.
        TableMissing, LogUnreadable, StorageUnavailable.
    """
    snapshot = log.refresh()
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, Use.FILES)
    table_log = TableLog(log, snapshot)
    first, last = table_log.recorded_range(first, last)
    # A version that the log has lost meanwhile is not found below, either.
    with suppress(LogUnreadable):
        if (since := values_readable_since(table_log, first)) > first:
            raise ChangesNotRecorded(
                f"{snapshot.full_name} has other columns since version {since}, which cannot have the values that rows "
                f"had before: read from version {since} on."
            )
    reader = _FeedReader(session, log, snapshot)
    for version in range(first, last + 1):
        reader.add(version)
    return session.con.table(reader.table)


def read_changes_since(session: DuckDBSession, log: DeltaLog, version: int, last: int | None = None) -> "DuckDBPyRelation":
    """Return the rows that later versions than one changed: as `read_changes`, but none where that is the last of all.

    Raises:
        As `read_changes`.
    """
    if (snapshot := log.refresh()).version != version:
        return read_changes(session, log, version + 1, last)
    # `read_changes` refuses the same tables and versions.
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, Use.FILES)
    TableLog(log, snapshot).recorded_range(version, version)
    return session.con.table(_FeedReader(session, log, snapshot).table)


def read_added(
    session: DuckDBSession, log: DeltaLog, snapshot: Snapshot, since: int, deletions: Collection[int] = ()
) -> "DuckDBPyRelation":
    """Return the rows that a table got after a version and still has, where the others of its versions only added rows.

    Args:
        session: As in `read_changes`.
        log: As in `read_changes`.
        snapshot: The table, up to whose version they are read.
        since: The version.
        deletions: The versions that only deleted rows (see `TableLog.rewrites`).

    Raises:
        As `read_changes`.
    """
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, Use.FILES)
    reader = _FeedReader(session, log, snapshot)
    for version in range(since + 1, snapshot.version + 1):
        reader.add(version)
    rows, columns = f"SELECT * EXCLUDE ({_FEED_COLUMNS}) FROM {reader.table}", [field["name"] for field in snapshot.fields]
    if not deletions:
        return session.con.sql(rows)
    listed = ", ".join(str(version) for version in deletions)
    # A file that a deletion wrote again has the rows that were not deleted. Of equal rows it deletes all.
    changed = f"SELECT * EXCLUDE ({_CHANGE_TYPE}, _commit_timestamp) FROM {reader.table} WHERE _commit_version IN ({listed})"
    deleted = f"{changed} AND {_CHANGE_TYPE} = 'delete' EXCEPT ALL {changed} AND {_CHANGE_TYPE} = 'insert'"
    equal = "".join(f" AND a.{identifier(name)} IS NOT DISTINCT FROM d.{identifier(name)}" for name in columns)
    return session.con.sql(
        f"SELECT a.* EXCLUDE ({_FEED_COLUMNS}) FROM {reader.table} AS a ANTI JOIN ({deleted}) AS d "
        f"ON d._commit_version > a._commit_version{equal} WHERE a._commit_version NOT IN ({listed})"
    )


def read_net_changes(session: DuckDBSession, log: DeltaLog, since: int, until: int) -> str:
    """Return the query for the rows by which two versions of a table differ: as they were, and as they are.

    It needs no change data feed. A file that was written again has the same rows twice, which are left out.

    Args:
        session: As in `read_changes`.
        log: As in `read_changes`.
        since: The earlier version.
        until: The later version.

    Raises:
        As `read_changes`.
    """
    snapshot = log.refresh()
    refuse(snapshot.full_name, snapshot.properties, snapshot.partition_columns, Use.FILES)
    if (readable := values_readable_since(TableLog(log, snapshot), since + 1)) > since + 1:
        raise ChangesNotRecorded(f"{snapshot.full_name} has other columns since version {readable}.")
    reader = _FeedReader(session, log, snapshot)
    for version in range(since + 1, until + 1):
        reader.add(version)
    rows = f"SELECT * EXCLUDE ({_FEED_COLUMNS}) FROM {reader.table} WHERE {_CHANGE_TYPE}"
    now, before = f"{rows} IN ('insert', 'update_postimage')", f"{rows} IN ('delete', 'update_preimage')"
    return f"({now} EXCEPT ALL {before}) UNION ALL ({before} EXCEPT ALL {now})"


@dataclass(frozen=True)
class _ChangedFile:
    """A file with changed rows.

    Attributes:
        action: Of the log, with its path and partition values.
        change: What was done to its rows; empty for a change file, whose rows say so themselves.
        only: The numbers of the rows that changed; None for all but those `without`.
        without: The numbers of rows that were deleted before.
    """

    action: Json
    change: str = ""
    only: Sequence[int] | None = None
    without: Sequence[int] = ()


def changed_files(storage: TableStorage, commit: Commit, actions: Sequence[Json]) -> Iterator[_ChangedFile]:
    """Yield the files that have the changed rows of one version, given its commit and its actions.

    Raises:
        FileNotFoundError, LogUnreadable, StorageUnavailable: as `deleted_rows`.
    """
    if changes := [action["cdc"] for action in actions if "cdc" in action]:
        yield from map(_ChangedFile, changes)
        return
    # As Delta's own reader: a MERGE that finds nothing to do may write files again.
    if commit.merged_nothing:
        return
    added = {action["add"]["path"]: action["add"] for action in actions if adds_rows(action)}
    removed = {action["remove"]["path"]: action["remove"] for action in actions if removes_rows(action)}
    for path, add in added.items():
        if path not in removed:
            yield _ChangedFile(add, "insert", without=deleted_rows(storage, add))
            continue
        before, after = (set(deleted_rows(storage, action)) for action in (removed[path], add))
        if deleted := after - before:
            yield _ChangedFile(add, "delete", only=sorted(deleted))
        if back := before - after:
            yield _ChangedFile(add, "insert", only=sorted(back))
    for path, remove in removed.items():
        if path not in added:
            yield _ChangedFile(remove, "delete", without=deleted_rows(storage, remove))


class _FeedReader:
    """Copies changed rows, file by file, to a temporary table."""

    def __init__(self, session: DuckDBSession, log: DeltaLog, snapshot: Snapshot) -> None:
        self._con, self._log, self._snapshot = session.con, log, snapshot
        self._types = snapshot.column_types
        self.table = f"ratify_changes_{uuid4().hex}"
        columns = [f"{identifier(name)} {type_.sql}" for name, type_ in self._types.items()]
        columns += [f"{_CHANGE_TYPE} VARCHAR", "_commit_version BIGINT", "_commit_timestamp TIMESTAMPTZ"]
        with all_translated(f"make columns like those of {snapshot.full_name}", "Read its changes with Spark."):
            self._con.execute(f"CREATE TEMP TABLE {self.table} ({', '.join(columns)})")

    def add(self, version: int) -> None:
        try:
            actions = self._log.actions(version)
            commit = commit_from_actions(version, actions)
            if commit is None:
                raise LogUnreadable(f"Version {version} of {self._snapshot.full_name} does not say when it was committed.")
            for file in changed_files(self._log.storage, commit, actions):
                self._copy(file, version, commit.timestamp)
        except FileNotFoundError as error:
            raise ChangesNotRecorded(
                f"Files with the changes of version {version} of {self._snapshot.full_name} were removed since ({error}): "
                f"read from version {version + 1} on."
            ) from error

    def _copy(self, file: _ChangedFile, version: int, time: dt.datetime) -> None:
        path = unquote(file.action["path"])
        if path.startswith("/") or urlsplit(path).scheme:
            raise UnsafeTable(
                f"{self._snapshot.full_name} names a file outside of its folder, {path}: read its changes with Spark."
            )
        what = f"read {path} of {self._snapshot.full_name}, version {version}"
        with (
            all_translated(what, "Read from a later version on, or read its changes with Spark."),
            self._log.storage.downloaded(path) as local,
        ):
            # DuckDB has an error of its own for a file that is missing.
            local.stat()
            source = f"read_parquet({literal(str(local))}, {_ROW_NUMBER} = true, hive_partitioning = false)"
            has = {name.lower(): name for name, *_ in self._con.execute(f"DESCRIBE FROM {source}").fetchall()}
            self._check_columns({*has, *(file.action.get("partitionValues") or {})}, version, path)
            columns = [self._column(name, type_, file.action, has) for name, type_ in self._types.items()]
            change = literal(file.change) if file.change else _CHANGE_TYPE
            select = f"SELECT {', '.join([*columns, change, '$version', '$time'])} FROM {source}"
            given: dict[str, object] = {"version": version, "time": time}
            numbers = file.without if file.only is None else file.only
            if numbers or file.only is not None:
                kind = "ANTI" if file.only is None else "SEMI"
                select += f" AS f {kind} JOIN (SELECT unnest($numbers::BIGINT[]) AS n) AS d ON f.{_ROW_NUMBER} = d.n"
                given["numbers"] = list(numbers)
            self._con.execute(f"INSERT INTO {self.table} {select}", given)

    def _check_columns(self, names: Collection[str], version: int, path: str) -> None:
        known = {_CHANGE_TYPE, _IS_CHANGE, _ROW_NUMBER, *map(str.lower, self._types)}
        for name in sorted(names):
            if name.lower() not in known and not name.startswith(_ROW_IDS):
                raise UnsafeTable(
                    f"{self._snapshot.full_name}, version {version}: {path} has the column {name}, which the table does "
                    "not have now: it had column mapping, or other columns, before. Read from a later version on."
                )

    def _column(self, name: str, type_: SqlType, action: Json, has: dict[str, str]) -> str:
        """What a column has in a file: the value of its partition, or NULL where the column was added later.

        The table may have had other partitions when the file was written.
        """
        values: dict[str, str | None] | None = action.get("partitionValues")
        partition = {key.lower(): value for key, value in (values or {}).items()}
        if name.lower() in partition:
            # PROTOCOL.md, "Partition Value Serialization": an empty text is NULL.
            value = partition[name.lower()]
            return f"CAST({literal(value) if value else 'NULL'} AS {type_.sql})"
        found = has.get(name.lower())
        if not found and values is None and name in self._snapshot.partition_columns:
            raise LogUnreadable(
                f"The log of {self._snapshot.full_name} does not say which {name} the rows of {action['path']} have: "
                "read its changes with Spark."
            )
        # Delta leaves out the value of a partition that is NULL.
        return f"CAST({identifier(found) if found else 'NULL'} AS {type_.sql})"
