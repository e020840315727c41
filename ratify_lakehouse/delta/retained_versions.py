"""The files of a table that its retained versions need: those that stay readable when files of older ones are removed."""

from collections.abc import Iterable, Iterator
from posixpath import join
from typing import cast
from urllib.parse import unquote, urlsplit
from uuid import UUID

from ratify_lakehouse.delta.deletion_vectors import decode_z85
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.snapshot import Json, Snapshot, committed_at, retention_seconds
from ratify_lakehouse.errors import UnsafeTable


def retained_files(log: DeltaLog, snapshot: Snapshot, since_ms: float) -> set[str] | None:
    """Return the paths of the data files, change files and deletion vectors that versions need which a table has had since.

    None if its log does not go back that far.

    Args:
        log: The table's.
        snapshot: Its latest version, which the log returned last.
        since_ms: The time, milliseconds since 1970; the version that the table had then is one of them.

    Raises:
        UnsafeTable: the log names files outside of the table's folder.
        StorageUnavailable, LogUnreadable.
    """
    files = {path for file in log.files(snapshot) for path in paths_of(snapshot, file.add)}
    for version in range(snapshot.version, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            return None
        if committed_at(actions) <= since_ms:
            # What this version had, and later ones have not, was removed by one of these.
            break
        files.update(named_in(snapshot, actions))
    return files


def retention_of(snapshot: Snapshot, name: str, default_s: int) -> int:
    """Return the seconds of a table's property that is an interval.

    Raises:
        UnsafeTable: it cannot be understood.
    """
    declared = snapshot.properties.get(name)
    if declared is None:
        return default_s
    if (seconds := retention_seconds(declared)) == 0:
        example = f"'interval {default_s // 86_400} days'"
        raise UnsafeTable(f"{snapshot.full_name}: {name} is {declared!r}; set it to a number of one unit, as {example}.")
    return seconds


def named_in(snapshot: Snapshot, actions: Iterable[Json]) -> Iterator[str]:
    """Yield the paths of the files that actions name.

    Raises:
        UnsafeTable: one is outside of the table's folder.
    """
    for action in actions:
        for kind in ("add", "remove", "cdc"):
            if entry := action.get(kind):
                yield from paths_of(snapshot, entry)


def paths_of(snapshot: Snapshot, entry: Json) -> Iterator[str]:
    """Yield the paths of the files of an `add`, `remove` or `cdc`, relative to the table: the file, and its deletion vector.

    Raises:
        UnsafeTable: it is outside of the table's folder.
    """
    path = unquote(cast("str", entry["path"]))
    if path.startswith("/") or urlsplit(path).scheme:
        raise UnsafeTable(f"{snapshot.full_name} names a file outside of its folder, {path}: use its own engine.")
    yield path
    vector = cast("dict[str, str]", entry.get("deletionVector") or {})
    if vector.get("storageType") == "u":
        folder, encoded = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
        yield join(folder, f"deletion_vector_{UUID(bytes=decode_z85(encoded))}.bin")
