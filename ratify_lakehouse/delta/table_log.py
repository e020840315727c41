"""What a table's log says of its newest versions, read by this process: an engine needs a second for the same.

Not every table's log can be read here: its storage may be one that only Spark reaches, or the catalog may not manage it.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol
from urllib.parse import unquote

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import CHANGE_DATA_FEED, Engine, records_changes
from ratify_lakehouse.delta.commit_history import COLUMNS_MOVED, Commit, commit_from_actions
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.log_checkpoints import checkpoint_actions, newest_checkpoint
from ratify_lakehouse.delta.row_changes import adds_rows, appended_files, removes_rows
from ratify_lakehouse.delta.snapshot import Json, LiveFile, Snapshot, committed_at
from ratify_lakehouse.errors import ChangesNotRecorded, LogUnreadable, StorageUnsupported, UnsafeTable


class Commits(Protocol):
    """What reads the commits of tables: Spark, or `LogCommits`."""

    def recent_commits(self, full_name: str, limit: int) -> Iterator[Commit]:
        """Yield as many of a table's newest commits, newest first."""
        ...


@dataclass(frozen=True)
class LogCommits:
    """Reads the commits of tables from their logs.

    Attributes:
        log: Returns the log of a table by its full name; what was read of it before is not read again.
    """

    log: Callable[[str], DeltaLog]

    def recent_commits(self, full_name: str, limit: int) -> Iterator[Commit]:
        """Yield as many of a table's newest commits, newest first.

        Raises:
            StorageUnavailable, and what `DeltaLog.refresh` raises.
        """
        yield from islice(self.opened(full_name).commits(), limit)

    def opened(self, full_name: str) -> "TableLog":
        """Return a table's log as of now.

        Raises:
            As `DeltaLog.refresh`.
        """
        log = self.log(full_name)
        return TableLog(log, log.refresh())


class TableLog:
    """A table's log, as of one version."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot) -> None:
        self._log, self._snapshot = log, snapshot

    @classmethod
    def opened(cls, catalog: UnityCatalog, full_name: str) -> "TableLog | None":
        """Return the log as of the latest version; None if it cannot be read here.

        Raises:
            TableMissing, CatalogUnavailable, CatalogDenied.
            StorageUnavailable: it can be read here, but not at the moment.
        """
        try:
            return cls.read(catalog, full_name)
        except (LogUnreadable, StorageUnsupported, UnsafeTable):
            return None

    @classmethod
    def read(cls, catalog: UnityCatalog, full_name: str) -> "TableLog":
        """Return the log as of the latest version.

        Raises:
            LogUnreadable, StorageUnavailable, UnsafeTable: it cannot be read here; and as `opened`.
        """
        log = DeltaLog(catalog, full_name, attempts=1, patience=0)
        return cls(log, log.refresh())

    @property
    def version(self) -> int:
        """The version."""
        return self._snapshot.version

    @property
    def full_name(self) -> str:
        """The table."""
        return self._snapshot.full_name

    @property
    def table_id(self) -> str:
        """Id of the table in the catalog; another one after it was dropped and created again."""
        return self._snapshot.uuid

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the table."""
        return self._snapshot.properties

    def actions(self, version: int) -> list[Json]:
        """Return the actions of a version.

        Raises:
            LogUnreadable: the log no longer has it.
            StorageUnavailable.
        """
        try:
            return self._log.actions(version)
        except FileNotFoundError:
            raise LogUnreadable(f"The log of {self.full_name} no longer has version {version}.") from None

    def has_files_of_changes(self, version: int) -> bool:
        """Return whether the files are in storage from which the change data feed of a version is read.

        Raises:
            LogUnreadable: the log no longer has it.
            StorageUnavailable.
        """
        actions = self.actions(version)
        changes = [action["cdc"] for action in actions if "cdc" in action]
        moved = [action.get("add") or action["remove"] for action in actions if adds_rows(action) or removes_rows(action)]
        return all(self._log.storage.exists(unquote(file["path"])) for file in changes or moved)

    def txn_versions(self, prefix: str) -> dict[str, int]:
        """Return the greatest `txn` versions of the Delta applications whose ids begin with a text, by these ids."""
        return self._snapshot.txn_versions([app_id for app_id in self._snapshot.state.txns if app_id.startswith(prefix)])

    def committed_txns(self, prefix: str) -> tuple[dict[str, int], int, float]:
        """Return the greatest `txn` versions, also expired ones, that the commits of the log have; and its oldest commit.

        With the time of that, in seconds since 1970.

        Args:
            prefix: What the ids of the Delta applications begin with.

        Raises:
            StorageUnavailable.
        """
        found, oldest, at = dict[str, int](), self.version + 1, float("inf")
        for version in range(self.version, -1, -1):
            try:
                actions = self._log.actions(version)
            except FileNotFoundError:
                break
            oldest, at = version, committed_at(actions) / 1000
            for txn in (action["txn"] for action in actions if "txn" in action):
                if txn["appId"].startswith(prefix):
                    found[txn["appId"]] = max(txn["version"], found.get(txn["appId"], 0))
        return found, oldest, at

    def commits(self) -> Iterator[Commit]:
        """Yield the commits, newest first, each as DESCRIBE HISTORY has it, as far back as the log has them.

        Raises:
            StorageUnavailable.
        """
        for version in range(self.version, -1, -1):
            try:
                actions = self._log.actions(version)
            except FileNotFoundError:
                return
            yield commit_from_actions(version, actions) or _unknown(version)

    def feed_since(self) -> int | None:
        """Return the first version from which on the change data feed is recorded; None if that of the latest is not.

        Raises:
            StorageUnavailable.
        """
        if not records_changes(self._snapshot.properties):
            return None
        since = self.version
        found = self.metadata(since)
        while found and records_changes(found[1]["configuration"]):
            since = found[0]
            found = self.metadata(since - 1)
        return since

    def metadata(self, version: int) -> tuple[int, Json] | None:
        """Return the `metaData` of a version, and since when the log knows that it is so; None if it does not know it.

        Raises:
            StorageUnavailable.
        """
        earliest = version + 1
        for number in range(version, -1, -1):
            try:
                actions = self._log.actions(number)
            except FileNotFoundError:
                break
            earliest = number
            if found := [action["metaData"] for action in actions if "metaData" in action]:
                return number, found[-1]
        if earliest > version:
            return None
        # What was set before the earliest version that the log has, is in a checkpoint.
        metadata = self._snapshot.metadata if version == self.version else self._summed_up(version, earliest)
        return (earliest, metadata) if metadata else None

    def _summed_up(self, version: int, earliest: int) -> Json | None:
        """The `metaData` in the newest checkpoint up to a version; None if commits between it and `earliest` are gone."""
        storage = self._log.storage
        checkpoint, paths = newest_checkpoint(storage, version)
        if checkpoint < earliest - 1:
            return None
        # One that was removed meanwhile says nothing.
        with suppress(FileNotFoundError):
            for path in paths:
                for action in checkpoint_actions(storage, path, ("metaData",)):
                    if "metaData" in action:
                        return action["metaData"]
        return None

    def recorded_range(self, first: int | None, last: int | None) -> tuple[int, int]:
        """Return the range of versions of which the change data feed is asked for.

        Args:
            first: By default the earliest version that has the feed.
            last: By default the latest version.

        Raises:
            ChangesNotRecorded: one of the versions has no feed, or does not exist. The message names the earliest that has.
            StorageUnavailable.
        """
        full_name, since, latest = self._snapshot.full_name, self.feed_since(), self.version
        if since is None:
            raise ChangesNotRecorded(
                f"{full_name} records no changes. Set {CHANGE_DATA_FEED} = true in its properties (`change_data_feed: true` "
                "in its declaration, for a new table): later versions have them then."
            )
        first, last = since if first is None else first, latest if last is None else last
        if first < since:
            raise ChangesNotRecorded(f"{full_name} has recorded its changes since version {since}: read from there on.")
        if (none := max(first, last)) > latest:
            raise ChangesNotRecorded(f"The latest version of {full_name} is {latest}, so version {none} has no changes yet.")
        if first > last:
            raise ChangesNotRecorded(f"Version {first} of {full_name} is not before version {last}: swap them.")
        return first, last

    def appended(self, since: int) -> list[LiveFile] | None:
        """Return the files that the versions after one added, where they only added rows.

        Returns:
            None where they did other than that, or too much, and where the log no longer has one of them.

        Raises:
            StorageUnavailable.
        """
        return appended_files(self._log, since, self.version)

    def rewrites(self, since: int, until: int) -> Iterator[Commit]:
        """Yield the versions of a range that did other than add rows that the table never had, oldest first.

        Those that move values between the names of columns are among them.

        Args:
            since: The version before the range.
            until: Its last version.

        Raises:
            StorageUnavailable.
            LogUnreadable: the log no longer has one of the versions.
        """
        for version in range(since + 1, until + 1):
            actions = self.actions(version)
            commit = commit_from_actions(version, actions)
            # A RESTORE that only takes back a removal brings rows that the table had before.
            other = commit is not None and commit.operation in {"RESTORE", *COLUMNS_MOVED}
            if other or any(map(removes_rows, actions)):
                yield commit or _unknown(version)

    def rows(self) -> int | None:
        """Return how many rows the table has, by the statistics of its files; None if one has none.

        Raises:
            StorageUnavailable.
        """
        try:
            rows = [file.rows for file in self._log.files(self._snapshot)]
        except (LogUnreadable, UnsafeTable):
            return None
        known = [number for number in rows if number is not None]
        return sum(known) if len(known) == len(rows) else None


def _unknown(version: int) -> Commit:
    return Commit(version, dt.datetime.fromtimestamp(0, dt.UTC), "unknown", Engine.OTHER, "")
