"""Repair of a table with missing files: what is missing, and the commit that makes the table readable again.

A table is unreadable for every engine once its log names a file that its storage does not have. DuckDB's own INSERT
causes this: it deletes its file if it never learns the outcome of a commit, even of one that the catalog accepted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname

from ratify_lakehouse.declarations import Engine, is_append_only, records_changes
from ratify_lakehouse.delta.commit_actions import NothingToCommit, Proposal
from ratify_lakehouse.delta.commit_history import engine_of
from ratify_lakehouse.delta.computed_inputs import COMPUTED
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.load_ids import as_withdrawn, loaded_ids
from ratify_lakehouse.delta.snapshot import LiveFile, Snapshot
from ratify_lakehouse.errors import UnsafeTable


@dataclass(frozen=True)
class Missing:
    """A file of the snapshot that is not in storage.

    Attributes:
        path: Relative to the table's location.
        rows: How many it had, or None if its writer did not store the number.
        version: The commit that wrote it, or None if the log no longer has it.
        writer: The `engineInfo` of that commit; empty if the log no longer has it.
    """

    path: str
    rows: int | None
    version: int | None
    writer: str


@dataclass(frozen=True)
class Repaired:
    """A repair.

    Attributes:
        version: The version that the repair committed; None for a dry run.
        missing: The missing files.
        removed: Paths of the files removed from the snapshot: the missing ones, and the others of their commit if its loads
            can be loaded again.
        loads: Loads that can be loaded again: none of their rows is left in the table.
        lost: Missing files whose rows no load can restore.
    """

    version: int | None
    missing: tuple[Missing, ...]
    removed: tuple[str, ...]
    loads: tuple[str, ...]
    lost: tuple[Missing, ...]


def missing_files(log: DeltaLog, files: Iterable[LiveFile]) -> list[LiveFile]:
    """Return those of the files that are not in the table's storage.

    Raises:
        StorageUnavailable.
    """
    folders = dict[str, set[str]]()
    missing = list[LiveFile]()
    for file in files:
        folder = dirname(file.path)
        existing = folders.get(folder)
        if existing is None:
            existing = folders[folder] = set(log.storage.names(folder))
        if file.path.removeprefix(f"{folder}/") not in existing:
            missing.append(file)
    # A listing may be older than the log; a file that the repair removes must really be missing.
    return [file for file in missing if not log.storage.exists(file.path)]


def planned_repair(log: DeltaLog) -> Repaired | None:
    """Return what `repair` would do now, if the table allows it; None if no file is missing.

    Raises:
        StorageUnavailable, LogUnreadable, and what `DeltaLog.refresh` raises.
    """
    found = _Damage.of(log, log.refresh())
    return found.repaired(None) if found else None


def repair(log: DeltaLog) -> Repaired | None:
    """Remove the missing files from a table's snapshot, in one version; None if no file is missing.

    If all files that a commit of loads added are still unchanged in the snapshot, all of them are removed and the loads are
    marked as withdrawn: the same loads can then be loaded again, exactly once. If some of their rows were changed or deleted
    since, if the commit had no load ids, or if the log no longer has it, only the missing files are removed, and their rows
    are lost.

    Raises:
        UnsafeTable: the table is append-only, or has a change data feed.
        StorageUnavailable, LogUnreadable, and what `DeltaLog.commit` raises.
    """
    planned = list[_Damage]()

    def plan(snapshot: Snapshot) -> Proposal:
        found = _Damage.of(log, snapshot)
        if found is None:
            raise NothingToCommit
        refuse_removes(snapshot, found.removed)
        planned.append(found)
        return found.proposal()

    if planned_repair(log) is None:
        return None
    try:
        committed = log.commit(plan)
    except NothingToCommit:
        # Another process repaired it at the same time.
        return None
    return planned[-1].repaired(committed.version)


@dataclass(frozen=True)
class _Damage:
    """The missing files of one version of a table, and their repair."""

    missing: tuple[Missing, ...]
    removed: tuple[LiveFile, ...]
    txns: Mapping[str, int]
    lost: tuple[Missing, ...]

    @classmethod
    def of(cls, log: DeltaLog, snapshot: Snapshot) -> "_Damage | None":
        files = log.files(snapshot)
        absent = missing_files(log, files)
        if not absent:
            return None
        live = {file.key: file for file in files}
        removed = {file.key: file for file in absent}
        missing, lost, txns = list[Missing](), list[Missing](), dict[str, int]()
        origins = {version: _Origin.of(log, snapshot, version) for version in {file.version for file in absent}}
        for file in absent:
            origin = origins[file.version]
            found = Missing(file.path, file.rows, file.version, origin.writer)
            missing.append(found)
            if origin.txns and origin.added <= live.keys() and file.key in origin.added:
                removed |= {key: live[key] for key in origin.added}
                txns |= as_withdrawn(origin.txns, origin.txns)
            else:
                lost.append(found)
        return cls(tuple(missing), tuple(removed.values()), txns, tuple(lost))

    def proposal(self) -> Proposal:
        return Proposal(removes=self.removed, txns=self.txns, operation="FSCK", parameters={"dryRun": "false"})

    def repaired(self, version: int | None) -> Repaired:
        removed = tuple(file.path for file in self.removed)
        return Repaired(version, self.missing, removed, tuple(sorted(self.txns)), self.lost)


@dataclass(frozen=True)
class _Origin:
    """The commit that wrote a file.

    Attributes:
        added: Keys of all files that it added.
        txns: Loads whose rows are exactly these files, with their `txn` versions; empty if that is not certain.
    """

    writer: str = ""
    added: frozenset[tuple[str, str]] = frozenset()
    txns: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, log: DeltaLog, snapshot: Snapshot, version: int | None) -> "_Origin":
        try:
            actions = log.actions(version) if version is not None else []
        except FileNotFoundError:
            return cls()
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        writer: str = (infos[0].get("engineInfo") if infos else None) or ""
        # Other engines number their batches by it: Spark would skip a batch if we changed the number. And a commit that also
        # removes files has rewritten rows of other loads. One that was computed from the table loads nothing.
        if engine_of(writer) is not Engine.DUCKDB or any("remove" in action for action in actions):
            return cls(writer)
        txns = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
        if COMPUTED in txns:
            return cls(writer)
        loads = {load: txns[load] for load in loaded_ids(txns)}
        # Loads that were withdrawn or replaced since must not change; those that the log forgot may be loaded again anyway.
        if any(now != loads[load] for load, now in snapshot.txn_versions(loads).items()):
            return cls(writer)
        adds = (LiveFile(action["add"], version) for action in actions if "add" in action)
        return cls(writer, frozenset(file.key for file in adds), loads)


def refuse_removes(snapshot: Snapshot, files: Sequence[LiveFile]) -> None:
    """Refuse to remove files from a table that forbids it, or whose change data feed would report false deletes.

    Raises:
        UnsafeTable: it is append-only, or has a change data feed.
    """
    shown = f"{len(files):,} of its files" if len(files) > 1 else files[0].path
    if is_append_only(snapshot.properties):
        raise UnsafeTable(
            f"{snapshot.full_name} is append-only, so {shown} may not be removed from it. Run ALTER TABLE "
            f"{snapshot.full_name} SET TBLPROPERTIES ('delta.appendOnly' = 'false') in Spark, try again, and set it back."
        )
    if records_changes(snapshot.properties):
        raise UnsafeTable(
            f"{snapshot.full_name} keeps a change data feed, and its readers would take every row of {shown} as deleted, "
            "by reading a missing file or one whose rows are only moved. RESTORE the table in Spark to the version "
            f"before, or run ALTER TABLE {snapshot.full_name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false') "
            "there, and try again."
        )
