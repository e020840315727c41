"""Files that no version of a table needs: writers that were killed, commits that lost, and old versions leave them.

A file is one of these if it is older than what the table keeps deleted files for (`delta.deletedFileRetentionDuration`, a
week unless it says otherwise) and if it is

- a staged commit of a version that is published, and that the catalog does not list any more: readers get the path of a
  staged commit from that list;
- a data file, change file or deletion vector that no commit, checkpoint or staged commit in the log names;
- a commit request (`ratify_lakehouse.delta.commit_requests`), which is valid for minutes;
- a partly written file of ours, or the checksum that Hadoop wrote beside a file that is gone;
- where that is asked for: a file of old versions, that no version needs which the table has had in that time. These old
  versions cannot be read any more;
- likewise, a file of the log that has expired (`ratify_lakehouse.delta.expired_log`).

Other files are not of Delta, and stay.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import basename, dirname, join

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.commit_requests import REQUESTS
from ratify_lakehouse.delta.delta_log import STAGED, DeltaLog
from ratify_lakehouse.delta.expired_log import expired_log_files, log_seconds
from ratify_lakehouse.delta.log_checkpoints import LOG, SIDECARS, checkpoint_actions, newest_checkpoint
from ratify_lakehouse.delta.retained_versions import named_in, retained_files, retention_of
from ratify_lakehouse.delta.snapshot import Json, Snapshot
from ratify_lakehouse.delta.table_storage import StoredFile, TableStorage
from ratify_lakehouse.errors import LogUnreadable, UnsafeTable

RETENTION = "delta.deletedFileRetentionDuration"
"""Table property: how long files stay that no version names any more, as `interval 7 days`."""

_WEEK_S = 7 * 86_400
# Shorter than that, a slow load could lose its files before it commits.
_SHORTEST_S = 3600
_STAGED_COMMIT = re.compile(r"^(\d{20})\.[0-9a-f-]{36}\.json$")
# Files are written under such names first: by `ratify_lakehouse.durable_files`, and by Delta in Spark.
_PARTIAL = re.compile(r"^\.([a-z0-9_]{8}|.+\.tmp)$")
_DATA = re.compile(r"(\.parquet|^deletion_vector_[0-9a-f-]{36}\.bin)$")


@dataclass(frozen=True)
class UnneededFile:
    """A file that no version needs.

    Attributes:
        path: Relative to the table's location.
        kind: "staged commit", "data file", "old version", "commit request", "partial file" or "log file".
        size: Bytes.
    """

    path: str
    kind: str
    size: int


def unneeded_files(
    catalog: UnityCatalog, log: DeltaLog, *, old_versions: bool = False, old_log: bool = False
) -> list[UnneededFile]:
    """Return the files of a table that no version needs, sorted by path.

    Args:
        catalog: The table's catalog.
        log: The table's log.
        old_versions: Also those that only versions need that are older than what the table keeps deleted files for.
        old_log: Also those of its log that have expired.

    Raises:
        UnsafeTable: the catalog, which manages the table, does not permit its clients to remove files, or those of the log;
            the log names files outside of the table's folder, or does not go back far enough to know what old versions need;
            or the retention cannot be understood, or is too short.
        StorageUnavailable, LogUnreadable, and what `DeltaLog.refresh` raises.
    """
    # The files before the log: whatever is committed while this runs is among the newer files, or in the log.
    stored = log.storage.files()
    snapshot = log.refresh()
    _require_permission(catalog, snapshot.full_name, "clean", *(["clean_log"] if old_log else []))
    # Their age at the newest file: a clock that is ahead must not make files old that a writer is about to commit.
    now = min(time.time(), max((file.modified for file in stored), default=0))
    retained_s = deleted_file_seconds(snapshot)
    old = [file for file in stored if now - file.modified > retained_s]
    commits: list[Json] = catalog.load_table(snapshot.full_name).get("commits") or []
    listed: set[str] = {commit["file-name"] for commit in commits}
    unneeded = _unneeded_staged(log.storage, snapshot.version, old, listed)
    named = _named_files(snapshot, log.storage, {file.path for file in unneeded})
    needed = _needed_files(log, snapshot, (now - retained_s) * 1000) if old_versions else named
    for file in old:
        name = basename(file.path)
        if file.path.startswith(f"{REQUESTS}/"):
            unneeded.append(UnneededFile(file.path, "commit request", file.size))
        elif _PARTIAL.match(name):
            unneeded.append(UnneededFile(file.path, "partial file", file.size))
        elif _DATA.search(name) and file.path not in named and not file.path.startswith(f"{LOG}/"):
            unneeded.append(UnneededFile(file.path, "data file", file.size))
        elif file.path in named and file.path not in needed:
            unneeded.append(UnneededFile(file.path, "old version", file.size))
    if old_log and (log_s := log_seconds(snapshot)) is not None:
        # What old versions need is read from the log, as far back as deleted files are retained.
        since_s = now - max(log_s, retained_s)
        expired = expired_log_files(log, snapshot, [file for file in stored if file.modified < since_s], since_s * 1000)
        unneeded += [UnneededFile(file.path, "log file", file.size) for file in expired]
    # In the order of their names a log loses its first versions first, whenever the clean is killed.
    return sorted([*unneeded, *_checksums(stored, old, unneeded)], key=lambda file: file.path)


def clean(catalog: UnityCatalog, log: DeltaLog, *, old_versions: bool = False, old_log: bool = False) -> list[UnneededFile]:
    """Remove the files that no version needs, and return them. Whatever a kill leaves, the next clean removes.

    Args:
        catalog: As for `unneeded_files`.
        log: Likewise.
        old_versions: Likewise.
        old_log: Likewise.

    Raises:
        What `unneeded_files` raises.
    """
    files = unneeded_files(catalog, log, old_versions=old_versions, old_log=old_log)
    for file in files:
        log.storage.remove(file.path)
    return files


def _require_permission(catalog: UnityCatalog, full_name: str, *operations: str) -> None:
    permitted = catalog.permitted_maintenance(full_name) or ()
    if missing := [operation for operation in operations if operation not in permitted]:
        what = "files" if "clean" in missing else "expired files of the log"
        raise UnsafeTable(
            f"{full_name}: the catalog at {catalog.connection.host} does not permit its clients to remove {what} of the "
            "tables that it manages. Databricks does so itself (predictive optimization); ask whoever runs another "
            "catalog."
        )


def may_clean_log(catalog: UnityCatalog, full_name: str) -> bool:
    """Return whether the catalog permits its clients to remove expired files of a table's log.

    Raises:
        TableMissing, CatalogDenied, CatalogUnavailable.
    """
    return "clean_log" in (catalog.permitted_maintenance(full_name) or ())


def deleted_file_seconds(snapshot: Snapshot) -> int:
    """Return how long a table keeps deleted files.

    Raises:
        UnsafeTable: its property cannot be understood, or is shorter than an hour.
    """
    seconds = retention_of(snapshot, RETENTION, _WEEK_S)
    if seconds < _SHORTEST_S:
        raise UnsafeTable(
            f"{snapshot.full_name}: {RETENTION} is {snapshot.properties[RETENTION]!r}, in which a load or a query may not "
            "be done: set it to an hour or more."
        )
    return seconds


def _needed_files(log: DeltaLog, snapshot: Snapshot, since_ms: float) -> set[str]:
    """Paths of the files of the versions that are retained, and of those that may be ratified yet."""
    needed = retained_files(log, snapshot, since_ms)
    if needed is None:
        raise UnsafeTable(
            f"The log of {snapshot.full_name} does not reach back as far as its deleted files are retained, so it is "
            f"unknown what its versions need: set {RETENTION} to less, or clean it without old versions."
        )
    for name in log.storage.names(STAGED):
        if (match := _STAGED_COMMIT.match(name)) and int(match[1]) > snapshot.version:
            needed.update(named_in(snapshot, _actions(log.storage, join(STAGED, name))))
    return needed


def _unneeded_staged(storage: TableStorage, latest: int, old: Iterable[StoredFile], listed: set[str]) -> list[UnneededFile]:
    published = set(storage.names(LOG))
    checkpoint, _ = newest_checkpoint(storage, latest)
    found = list[UnneededFile]()
    for file in old:
        name = basename(file.path)
        if dirname(file.path) != STAGED or not (match := _STAGED_COMMIT.match(name)) or name in listed:
            continue
        # A version above the latest may still be ratified.
        if int(match[1]) <= checkpoint or (int(match[1]) <= latest and f"{match[1]}.json" in published):
            found.append(UnneededFile(file.path, "staged commit", file.size))
    return found


def _named_files(snapshot: Snapshot, storage: TableStorage, except_for: set[str]) -> set[str]:
    """Paths of the files that anything in the log names."""
    named = set[str]()
    paths = (join(folder, name) for folder in (LOG, SIDECARS, STAGED) for name in storage.names(folder))
    for path in paths:
        if path not in except_for:
            named.update(named_in(snapshot, _actions(storage, path)))
    return named


def _actions(storage: TableStorage, path: str) -> list[Json]:
    name = basename(path)
    if name.startswith(".") or not name.endswith((".json", ".parquet")):
        return []
    try:
        return checkpoint_actions(storage, path, ("add", "remove"))
    except FileNotFoundError as error:
        if dirname(path) == STAGED:
            # Its writer lost the version.
            return []
        raise LogUnreadable(f"{path} was removed from the log while it was read: try again.") from error


def _checksums(
    stored: Iterable[StoredFile], old: Iterable[StoredFile], unneeded: Iterable[UnneededFile]
) -> Iterable[UnneededFile]:
    """Hadoop's checksum of a file `a` is `.a.crc`."""
    stay = {file.path for file in stored} - {file.path for file in unneeded}
    for file in old:
        folder, name = dirname(file.path), basename(file.path)
        if name.startswith(".") and name.endswith(".crc") and join(folder, name[1:-4]) not in stay:
            yield UnneededFile(file.path, "partial file", file.size)
