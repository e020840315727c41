"""What a RESTORE of a table would do, from its log alone: versions that are undone, rows and files that go and come back.

A version can be restored as long as the log can tell it, and all of its files are there.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.column_types import type_of_delta
from ratify_lakehouse.declarations import Engine, is_append_only, records_changes
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import COMPUTED
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.load_ids import loaded_ids, withdrawn_ids
from ratify_lakehouse.delta.retained_versions import paths_of
from ratify_lakehouse.delta.snapshot import LiveFile, Snapshot, apply_to_files
from ratify_lakehouse.delta.table_version import Files, commits_since, first_version, table_version, version_at
from ratify_lakehouse.errors import LogUnreadable, VersionMissing
from ratify_lakehouse.wording import counted

_SHOWN = 5


@dataclass(frozen=True)
class FileTotals:
    """Data files that a RESTORE removes, or brings back.

    Attributes:
        files: How many.
        size: Bytes.
        rows: Rows of them that are not deleted, and those of files that stay with other deleted rows; None where a writer
            did not count them. Rows that were only moved are counted, too.
    """

    files: int
    size: int
    rows: int | None


@dataclass(frozen=True)
class RestorePlan:
    """What a RESTORE would do.

    Attributes:
        full_name: The table.
        version: The version to restore.
        committed_at: When that was committed (UTC).
        latest: The latest version, which the plan is for.
        undone: The commits after it, newest first.
        removed: What goes.
        added: What comes back.
        rows: Rows in the table before and after; None where a writer did not count them.
        metadata: Each difference in columns and properties.
        loads: Loads whose rows go, and that the log still counts as loaded: they are not loaded again.
        withdrawn: Loads whose rows come back, and that the log counts as withdrawn: another load of them doubles the rows.
        append_only: Whether the table only allows appends now, which a RESTORE does not heed.
        change_feed: Whether it records its changes now, so that readers of the feed get those of the RESTORE.
    """

    full_name: str
    version: int
    committed_at: dt.datetime
    latest: int
    undone: tuple[Commit, ...]
    removed: FileTotals
    added: FileTotals
    rows: tuple[int | None, int | None]
    metadata: tuple[str, ...]
    loads: tuple[str, ...]
    withdrawn: tuple[str, ...]
    append_only: bool
    change_feed: bool

    @property
    def changes_rows(self) -> bool:
        """Whether another file, or another deleted row, is in the table afterwards."""
        return any((self.removed.files, self.added.files, self.removed.rows, self.added.rows))

    @property
    def changes(self) -> bool:
        """Whether the table is another one afterwards."""
        return self.changes_rows or bool(self.metadata)


def planned_restore(log: DeltaLog, version: int | None = None, time: dt.datetime | None = None) -> RestorePlan:
    """Return what it would do to restore a table to a version, or to the one that it had at a time (with a time zone).

    Raises:
        VersionMissing: the table has no such version, its log cannot tell it any more, or files of it are gone. The message
            names the earliest version that can be restored.
        UnsafeTable: the table is not managed, or names files outside of its folder.
        TableMissing, StorageUnavailable, LogUnreadable, CatalogUnavailable, CatalogDenied.
    """
    snapshot = log.refresh()
    try:
        if version is None:
            if time is None:
                raise ValueError("neither a version nor a time is given")
            version = version_at(log, snapshot, time)
        _check_exists(log, snapshot, version)
        return _planned(log, snapshot, version)
    except FileNotFoundError as error:
        raise LogUnreadable(f"The log of {snapshot.full_name} lacks {error.filename or error}: try again.") from error


def _check_exists(log: DeltaLog, snapshot: Snapshot, version: int) -> None:
    name, latest = snapshot.full_name, snapshot.version
    if not 0 <= version <= latest:
        raise VersionMissing(f"{name} has no version {version}, only 0 to {latest}: `ratify history {name}` shows them.")
    if version < (first := first_version(log, latest)):
        raise VersionMissing(
            f"The log of {name} no longer reaches back to version {version}: it begins with version {first}. "
            f"{_earliest(log, snapshot)}"
        )


def _planned(log: DeltaLog, snapshot: Snapshot, version: int) -> RestorePlan:
    now, then = table_version(log, snapshot.version), table_version(log, version)
    _check_present(log, snapshot, version, then.files.values())
    commits = [*commits_since(log, snapshot, version)]
    if not commits or commits[-1].version != version:
        raise LogUnreadable(f"Version {version} of {snapshot.full_name} does not say when it was committed.")
    *undone, made = commits
    removed, added = _difference(now.files, then.files)
    before, after = (loaded_ids(_load_versions(each.state.txns)) for each in (now, then))
    touched = _touched_loads(log, undone)
    known = withdrawn_ids(_load_versions(now.state.txns))
    properties = snapshot.properties
    return RestorePlan(
        full_name=snapshot.full_name,
        version=version,
        committed_at=made.timestamp,
        latest=snapshot.version,
        undone=tuple(undone),
        removed=removed,
        added=added,
        rows=(_rows(now.files.values()), _rows(then.files.values())),
        metadata=tuple(_metadata_differences(now.state.metadata, then.state.metadata)),
        loads=tuple(sorted(touched & before - after)),
        withdrawn=tuple(sorted(touched & after & known)),
        append_only=is_append_only(properties),
        change_feed=records_changes(properties),
    )


def _load_versions(txns: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {app_id: version for app_id, (version, _) in txns.items()}


def _touched_loads(log: DeltaLog, undone: Iterable[Commit]) -> set[str]:
    """The app ids of loads in undone commits: other engines number their batches by theirs."""
    found = set[str]()
    for commit in undone:
        if commit.engine is Engine.DUCKDB:
            ids = {action["txn"]["appId"] for action in log.actions(commit.version) if "txn" in action}
            found |= set() if COMPUTED in ids else ids
    return found


def _difference(now: Files, then: Files) -> tuple[FileTotals, FileTotals]:
    """What goes, and what comes back. Files that stay count with the rows that are deleted in one version only."""
    before, after = ({file.path: file for file in files.values()} for files in (now, then))
    gone = [file for path, file in before.items() if path not in after]
    back = [file for path, file in after.items() if path not in before]
    fewer, more = list[int | None](), list[int | None]()
    for path in before.keys() & after.keys():
        if before[path].key != after[path].key:
            had, has = before[path].rows, after[path].rows
            difference = None if had is None or has is None else has - had
            fewer.append(None if difference is None else max(0, -difference))
            more.append(None if difference is None else max(0, difference))
    return _totals(gone, fewer), _totals(back, more)


def _totals(files: Sequence[LiveFile], more: Iterable[int | None]) -> FileTotals:
    rows = [_rows(files), *more]
    known = [number for number in rows if number is not None]
    return FileTotals(len(files), sum(file.add["size"] for file in files), sum(known) if len(known) == len(rows) else None)


def _rows(files: Iterable[LiveFile]) -> int | None:
    rows = [file.rows for file in files]
    known = [number for number in rows if number is not None]
    return sum(known) if len(known) == len(rows) else None


def _check_present(log: DeltaLog, snapshot: Snapshot, version: int, files: Iterable[LiveFile]) -> None:
    needed = {path for file in files for path in paths_of(snapshot, file.add)}
    absent = needed - {file.path for file in log.storage.files()}
    # A listing may be older than the log.
    if missing := sorted(path for path in absent if not log.storage.exists(path)):
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise VersionMissing(
            f"{snapshot.full_name} cannot be restored to version {version}: {counted(len(missing), 'file')} of it "
            f"{'is' if len(missing) == 1 else 'are'} gone, {', '.join(missing[:_SHOWN])}{more}. {_earliest(log, snapshot)}"
        )


def _earliest(log: DeltaLog, snapshot: Snapshot) -> str:
    """A sentence with the earliest version that can be restored."""
    stored = {file.path for file in log.storage.files()}

    def is_whole(file: LiveFile) -> bool:
        return stored.issuperset(paths_of(snapshot, file.add))

    first = first_version(log, snapshot.version)
    live = dict(table_version(log, first).files)
    broken = {key for key, file in live.items() if not is_whole(file)}
    for version in range(first, snapshot.version):
        for action in log.actions(version) if version > first else ():
            apply_to_files(live, action, version)
            if add := action.get("add"):
                file = LiveFile(add, version)
                broken |= set() if is_whole(file) else {file.key}
        if broken.isdisjoint(live):
            return f"The earliest version that can be restored is {version}."
    return "No version before the latest can be restored."


def _metadata_differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    had, has = (_columns(metadata) for metadata in (now, then))
    found = [f"column {name} goes" for name in had if name not in has]
    found += [f"column {name} comes back" for name in has if name not in had]
    found += [f"column {n} is {has[n]}, in place of {had[n]}" for n in has if n in had and has[n] != had[n]]
    properties = [dict(metadata.get("configuration") or {}) for metadata in (then, now)]
    for key in sorted({*properties[0], *properties[1]}):
        wanted, present = (each.get(key, "not set") for each in properties)
        found += [f"{key} is {wanted}, in place of {present}"] if wanted != present else []
    if (now.get("description") or "") != (then.get("description") or ""):
        found.append(f"the comment is {then.get('description') or ''!r}, in place of {now.get('description') or ''!r}")
    return found


def _columns(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The columns, each with what is said of it."""
    schema: dict[str, Any] = json.loads(metadata.get("schemaString") or "{}")
    found = dict[str, str]()
    for field in schema.get("fields", ()):
        null = "" if field["nullable"] else " NOT NULL"
        more: Mapping[str, str] = field.get("metadata") or {}
        comment = f" ({more['comment']})" if more.get("comment") else ""
        found[field["name"]] = f"{type_of_delta(field['type']).spark}{null}{comment}"
    return found
