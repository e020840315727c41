"""Files that no version of a table names: writers that were killed, and commits that lost, leave them in its storage.

A file is one of these if it is older than what the table keeps deleted files for (`delta.deletedFileRetentionDuration`, a
week unless it says otherwise) and if it is

- a staged commit of a version that is published, and that the catalog does not list any more: readers get the path of a
  staged commit from that list;
- a data file, change file or deletion vector that no commit, checkpoint or staged commit in the log names;
- a commit request (`resources.delta.commit_requests`), which is valid for minutes;
- a partly written file of ours, or the checksum that Hadoop wrote beside a file that is gone.

Files of old versions stay as long as the log has these versions. Other files are not of Delta, and stay.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from posixpath import basename, dirname, join
from typing import cast
from urllib.parse import unquote, urlsplit
from uuid import UUID

from resources.catalog.unity_catalog import UnityCatalog
from resources.delta.commit_requests import REQUESTS
from resources.delta.delta_log import STAGED, DeltaLog
from resources.delta.log_checkpoints import LOG, SIDECARS, checkpoint_actions, newest_checkpoint
from resources.delta.snapshot import Json, Snapshot, retention_seconds
from resources.delta.table_storage import StoredFile, TableStorage
from resources.errors import LogUnreadable, UnsafeTable

_RETENTION = "delta.deletedFileRetentionDuration"
_WEEK_S = 7 * 86_400
_STAGED_COMMIT = re.compile(r"^(\d{20})\.[0-9a-f-]{36}\.json$")
# Files are written under such names first: by `resources.durable_files`, and by Delta in Spark.
_PARTIAL = re.compile(r"^\.([a-z0-9_]{8}|.+\.tmp)$")
_DATA = re.compile(r"(\.parquet|^deletion_vector_[0-9a-f-]{36}\.bin)$")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True)
class UnneededFile:
    """A file that no version needs.

    Attributes:
        path: Relative to the table's location.
        kind: "staged commit", "data file", "commit request" or "partial file".
        size: Bytes.
    """

    path: str
    kind: str
    size: int


def unneeded_files(catalog: UnityCatalog, log: DeltaLog) -> list[UnneededFile]:
    """Return the files of a table that no version needs, sorted by path.

    Args:
        catalog: The table's catalog.
        log: The table's log.

    Raises:
        UnsafeTable: the catalog, which manages the table, does not permit its clients to remove files; the log names files
            outside of the table's folder; or its retention cannot be understood.
        StorageUnavailable, LogUnreadable, and what `DeltaLog.refresh` raises.
    """
    # The files before the log: whatever is committed while this runs is among the newer files, or in the log.
    stored = log.storage.files()
    snapshot = log.refresh()
    if "clean" not in (catalog.permitted_maintenance(snapshot.full_name) or ()):
        raise UnsafeTable(
            f"{snapshot.full_name}: the catalog at {catalog.connection.host} does not permit its clients to remove files of "
            "the tables that it manages. Databricks does so itself (predictive optimization); ask who runs another one."
        )
    # Their age at the newest file: a clock that is ahead must not make files old that a writer is about to commit.
    now = min(time.time(), max((file.modified for file in stored), default=0))
    old = [file for file in stored if now - file.modified > _retained_seconds(snapshot)]
    commits: list[Json] = catalog.load_table(snapshot.full_name).get("commits") or []
    listed: set[str] = {commit["file-name"] for commit in commits}
    unneeded = _unneeded_staged(log.storage, snapshot.version, old, listed)
    named = _named_files(snapshot, log.storage, {file.path for file in unneeded})
    for file in old:
        name = basename(file.path)
        if file.path.startswith(f"{REQUESTS}/"):
            unneeded.append(UnneededFile(file.path, "commit request", file.size))
        elif _PARTIAL.match(name):
            unneeded.append(UnneededFile(file.path, "partial file", file.size))
        elif _DATA.search(name) and file.path not in named and not file.path.startswith(f"{LOG}/"):
            unneeded.append(UnneededFile(file.path, "data file", file.size))
    return sorted([*unneeded, *_checksums(stored, old, unneeded)], key=lambda file: file.path)


def clean(catalog: UnityCatalog, log: DeltaLog) -> list[UnneededFile]:
    """Remove the files that no version needs, and return them. Whatever a kill leaves, the next clean removes.

    Raises:
        What `unneeded_files` raises.
    """
    files = unneeded_files(catalog, log)
    for file in files:
        log.storage.remove(file.path)
    return files


def _retained_seconds(snapshot: Snapshot) -> int:
    declared = snapshot.properties.get(_RETENTION)
    if declared is None:
        return _WEEK_S
    if (seconds := retention_seconds(declared)) == 0:
        raise UnsafeTable(
            f"{snapshot.full_name}: {_RETENTION} is {declared!r}; set it to a number of one unit, as 'interval 7 days'."
        )
    return seconds


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
        for action in _actions(storage, path) if path not in except_for else ():
            for kind in ("add", "remove", "cdc"):
                if entry := action.get(kind):
                    named.update(_paths(snapshot, entry))
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
        raise LogUnreadable(f"{path} was removed from the log while it was read: call again.") from error


def _paths(snapshot: Snapshot, entry: Mapping[str, object]) -> Iterable[str]:
    path = unquote(cast("str", entry["path"]))
    if path.startswith("/") or urlsplit(path).scheme:
        raise UnsafeTable(f"{snapshot.full_name} names a file outside of its folder, {path}: clean it with its own engine.")
    yield path
    vector = cast("dict[str, str]", entry.get("deletionVector") or {})
    if vector.get("storageType") == "u":
        folder, encoded = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
        yield join(folder, f"deletion_vector_{_uuid(encoded)}.bin")


def _uuid(encoded: str) -> UUID:
    """The UUID that 20 characters of Z85 are (PROTOCOL.md, "Deletion Vector Descriptor Schema")."""
    words = (encoded[at : at + 5] for at in range(0, 20, 5))
    numbers = (sum(_Z85.index(digit) * 85 ** (4 - at) for at, digit in enumerate(word)) for word in words)
    return UUID(bytes=b"".join(number.to_bytes(4, "big") for number in numbers))


def _checksums(
    stored: Iterable[StoredFile], old: Iterable[StoredFile], unneeded: Iterable[UnneededFile]
) -> Iterable[UnneededFile]:
    """Hadoop's checksum of a file `a` is `.a.crc`."""
    stay = {file.path for file in stored} - {file.path for file in unneeded}
    for file in old:
        folder, name = dirname(file.path), basename(file.path)
        if name.startswith(".") and name.endswith(".crc") and join(folder, name[1:-4]) not in stay:
            yield UnneededFile(file.path, "partial file", file.size)
