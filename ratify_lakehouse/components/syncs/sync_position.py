"""What a sync has read of its source before, from its destination alone: its commits record it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from uuid import uuid4

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.syncs.source_rows import SourceRows
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncStrategy
from ratify_lakehouse.delta.commit_history import EVERY_COMMIT, SAME_ROWS, Commit
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from ratify_lakehouse.delta.erasure_fence import refuse_written
from ratify_lakehouse.delta.load_ids import loaded_ids
from ratify_lakehouse.delta.snapshot import RETENTION
from ratify_lakehouse.delta.table_log import Commits, TableLog
from ratify_lakehouse.errors import Overtaken, SyncRefused, TableMissing

COMMITS_READ = 200
_PREFIX = "ratify:sync:"


@dataclass(frozen=True)
class Insertions:
    """Rows of a sync of the strategy append that a destination has, whichever engine inserted them.

    Delta's `txn` says so; but where the table lets it expire, and where its log cannot be read, its commits are asked, too.

    Attributes:
        sync: The sync.
        full_name: The destination's name, with the catalog's.
        log: Its log; None if it cannot be read here, or there is no such table.
        commits: All that are known of it, newest first, if its log cannot be read.
    """

    sync: SyncDeclaration
    full_name: str
    log: TableLog | None
    commits: Iterable[Commit]

    def until(self, app_id: str, not_before: float = 0) -> int | None:
        """Return up to which version of a source its rows were inserted; None if none were.

        Args:
            app_id: See `insert_app_id`.
            not_before: The time, in seconds since 1970, before which there was no such source.

        Raises:
            SyncRefused: it is not known any more.
        """
        if self.log is None:
            versions, since, at = self._recorded
            if app_id not in versions and since > 0 and not_before < at:
                raise history_cut(self.sync, self.full_name, since)
            return versions.get(app_id)
        found = _until(self.log.txn_versions(app_id), app_id)
        if found is not None or RETENTION not in self.log.properties:
            return found
        txns, since, at = self._committed
        found = _until({id_: version for id_, version in txns.items() if id_.startswith(app_id)}, app_id)
        if found is None and since > 0 and not_before < at:
            raise _forgotten(self.sync, self.full_name, since)
        return found

    def of(self, inputs: Mapping[str, InputVersion], not_before: float = 0) -> int | None:
        """Return as `until`, given a source of such inputs: see `Inserted`."""
        return self.until(insert_app_id(self.sync, inputs), not_before)

    def has_load(self, load: str) -> bool:
        """Return whether a commit has a load id of the sync."""
        if self.log is None:
            return False
        return load in self.log.txn_versions(load) or (RETENTION in self.log.properties and load in self._committed[0])

    @cached_property
    def _recorded(self) -> tuple[dict[str, int], int, float]:
        """Versions by application, as the records of the commits have them; the oldest commit, and its time."""
        versions, oldest, at = dict[str, int](), 0, 0.0
        for commit in self.commits:
            oldest, at = commit.version, commit.timestamp.timestamp()
            if record := ComputedInputs.of(commit):
                app_id, version = insertion_of(self.sync, record)
                versions.setdefault(app_id, version)
        return versions, oldest, at

    @cached_property
    def _committed(self) -> tuple[dict[str, int], int, float]:
        """The `txn` versions of the sync in the commits that the log still has; the oldest of these, and its time."""
        return self.log.committed_txns(f"{_PREFIX}{self.sync.name}:") if self.log else ({}, 0, 0.0)


@dataclass(frozen=True)
class SyncPosition:
    """What a sync has read before.

    Attributes:
        catalog: The destination's.
        commits: Reads the commits of the destination.
        sync: The sync.
        opened: Returns the log of a table by its full name; None if it cannot be read here.
        unsettled: Whether rows of the last pass did not fit, which may fit now.
    """

    catalog: UnityCatalog
    commits: Commits
    sync: SyncDeclaration
    opened: Callable[[str], TableLog | None]
    unsettled: Callable[[], bool]

    @property
    def full_name(self) -> str:
        """The destination's name, with the catalog's."""
        return self.sync.destination.full_name(self.catalog.connection.name)

    @property
    def _query(self) -> str:
        """What the records of the sync have as their query."""
        return f"sync {self.sync.name} {self.sync.code_version}"

    def record(self, source: SourceRows, after: int) -> ComputedInputs:
        """Return the record for a commit.

        Args:
            source: What the pass has read.
            after: The version of the destination that it is computed against.
        """
        return ComputedInputs(self._query, after, source.inputs, uuid4().hex)

    def is_current(self, source: SourceRows) -> bool:
        """Return whether a pass would change nothing: its source and the destination are as the last one left them.

        Raises:
            Overtaken: another pass has read newer versions of the source, and committed: this one would undo that.
        """
        if self.sync.strategy is SyncStrategy.APPEND:
            if source.files or not source.versioned:
                return False
            until = source.inserted_until
            if until is None and not source.of_new_rows:
                until = self.insertions().of(source.inputs)
            return until is not None and until >= source.version
        last = self.last_record() if source.versioned else None
        if last and last.read_newer(source.inputs):
            raise Overtaken(f"Another pass of the sync {self.sync.name} has read a newer version of its source.")
        found = self.undisturbed() if last else None
        return found is not None and found[0].inputs == source.inputs

    def undisturbed(self) -> tuple[ComputedInputs, int] | None:
        """Return the record of the last commit of this sync, and the destination's version, which has all that it read.

        None if nobody knows that: others have changed rows since the version that the commit was computed against.
        """
        sync, last = self.sync, self.last_record()
        if last is None or last.query != self._query or self.unsettled():
            return None
        newest = -1
        for commit in self.commits.recent_commits(self.full_name, COMMITS_READ):
            newest = max(newest, commit.version)
            if commit.version <= last.after:
                return last, newest
            own = (found := ComputedInputs.of(commit)) and found.id == last.id
            # Events that were applied before change nothing, whatever others have written.
            if not own and commit.operation not in SAME_ROWS and sync.strategy is not SyncStrategy.CDC:
                return None
        return None

    def last_record(self) -> ComputedInputs | None:
        """Return the record of the last commit of this sync; None if none of the newest commits has one."""
        try:
            self.catalog.table(self.full_name)
        except TableMissing:
            return None
        name = f"sync {self.sync.name} "
        for commit in self.commits.recent_commits(self.full_name, COMMITS_READ):
            if commit.operation == "RESTORE":
                return None
            if (found := ComputedInputs.of(commit)) and found.query.startswith(name):
                return found
        return None

    def refuse_written(self) -> None:
        """Refuse to go on where the last insertion came after an erasure which its rows were read before.

        Raises:
            WrittenAfterErasure: see there.
        """
        name = f"sync {self.sync.name} "

        def planned(commit: Commit) -> int | None:
            record = ComputedInputs.of(commit)
            return record.after if record and record.query.startswith(name) else None

        with suppress(TableMissing):
            refuse_written(self.full_name, self.commits.recent_commits(self.full_name, COMMITS_READ), planned)

    def has_record(self, record_id: str, after: int) -> bool:
        """Return whether a commit after a version of the destination has a record; also where it is not known any more."""
        if self.insertions().has_load(pass_load(self.sync, record_id)):
            return True
        try:
            for commit in self.commits.recent_commits(self.full_name, EVERY_COMMIT):
                if commit.version <= after:
                    return False
                if (found := ComputedInputs.of(commit)) and found.id == record_id:
                    return True
        except TableMissing:
            return False
        return True

    def records_after(self, version: int) -> set[str]:
        """Return the ids of the records that the commits after a version of the destination have."""
        commits = self.commits.recent_commits(self.full_name, EVERY_COMMIT)
        newer = takewhile(lambda commit: commit.version > version, commits)
        return {record.id for commit in newer if (record := ComputedInputs.of(commit))}

    def inserted_until(self, app_id: str) -> int | None:
        """Return the version of the source up to which its rows were inserted; None if none were.

        Raises:
            SyncRefused: it is not known any more.
        """
        return self.insertions().until(app_id)

    def insertions(self) -> Insertions:
        """Return what the sync has inserted, as its destination says now."""
        try:
            log = self.opened(self.full_name)
        except TableMissing:
            return Insertions(self.sync, self.full_name, None, ())
        return Insertions(self.sync, self.full_name, log, self.commits.recent_commits(self.full_name, EVERY_COMMIT))


def history_cut(sync: SyncDeclaration, full_name: str, oldest: int) -> SyncRefused:
    """Return the error of a sync of the strategy append whose destination's history does not go back far enough."""
    return SyncRefused(
        f"The history of {full_name} begins at version {oldest}, so it does not show which rows the sync {sync.name} has "
        "inserted before. Use the strategy merge, or `engine: spark` where it can read the table's log."
    )


def _forgotten(sync: SyncDeclaration, full_name: str, oldest: int) -> SyncRefused:
    return SyncRefused(
        f"{full_name} forgets past inserts after a while ({RETENTION}), and its log begins at version {oldest}, so it is "
        f"unknown which rows the sync {sync.name} has inserted before. Use the strategy merge; or, if it has inserted "
        f"none, run ALTER TABLE {full_name} UNSET TBLPROPERTIES ('{RETENTION}')."
    )


def insert_app_id(sync: SyncDeclaration, inputs: Mapping[str, InputVersion]) -> str:
    """Return the Delta application whose `txn` says up to which version of a source its rows were inserted."""
    ids = repr(sorted((name, found.table_id) for name, found in inputs.items()))
    # Where a source has no versions, each run inserts.
    ids += "" if all(found.version >= 0 for found in inputs.values()) else uuid4().hex
    return f"{_PREFIX}{sync.name}:{hashlib.sha256(ids.encode()).hexdigest()[:32]}"


def insertion_of(sync: SyncDeclaration, record: ComputedInputs) -> tuple[str, int]:
    """Return the Delta application and the version by which the rows of a pass are inserted, each once.

    Where a source has no versions, that is the version of the destination: of two runs at once the later one begins again,
    and one that was killed is known to insert nothing once another one has.
    """
    versions = [found.version for found in record.inputs.values()]
    if min(versions, default=0) >= 0:
        return insert_app_id(sync, record.inputs), sum(versions)
    return f"{_PREFIX}{sync.name}:every run", record.after


def insert_loads(app_id: str, after: int, until: int) -> list[str]:
    """Return the load ids of rows that DuckDB inserts: of the versions of a source after one, up to another.

    Only one such append can follow a version, because the ids of two that did would be the same.
    """
    return [f"{app_id}:after:{after}", f"{app_id}:until:{until}"]


def pass_load(sync: SyncDeclaration, record_id: str) -> str:
    """Return the load id by which DuckDB's append tells of which pass it is, given the id of the pass's record."""
    return f"{_PREFIX}{sync.name}:pass:{record_id}"


def _until(txns: Mapping[str, int], app_id: str) -> int | None:
    """The greatest version that `txn` of an application says: its own of Spark, and those of `insert_loads`."""
    prefix = f"{app_id}:until:"
    found = [int(load.removeprefix(prefix)) for load in loaded_ids(txns) if load.startswith(prefix)]
    return max([*found, *([txns[app_id] - 1] if app_id in txns else [])], default=None)
