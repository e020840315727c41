"""What a store holds, in pages: in the order of the paths, so that a listing goes on where an earlier one stopped.

The order is that of an object store's keys, by code point, folders as if their names ended with `/`.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

PAGE = 1000
"""Files in a page: what S3 gives at once."""

SUFFIXES = tuple(
    f".{kind}{packed}" for kind in ("csv", "tsv", "json", "jsonl", "ndjson", "parquet") for packed in ("", ".gz", ".zst")
)
"""Names of files that can hold rows end so; others, such as `1.csv.part`, are files in the making."""


_NO_FILE = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


class Listed(NamedTuple):
    """A file as its store shows it.

    Attributes:
        path: Relative to the root, with `/`.
        size: Bytes.
        stamp: The store's ETag, else the modification time: differs when the file differs.
        modified: Seconds since 1970 at which the store last saw it change, where the store says.
    """

    path: str
    size: int
    stamp: str | float
    modified: float | None


def is_data(path: str) -> bool:
    """Whether a file of this path is listed: one that can hold rows, in no hidden folder, under no hidden name.

    Hidden is what begins with `.` or `_`, as for Spark.
    """
    return not path.startswith((".", "_")) and "/." not in path and "/_" not in path and path.lower().endswith(SUFFIXES)


def pages(fs: Any, root: str, folder: str = "", after: str = "", size: int = PAGE) -> Iterator[list[Listed]]:
    """List the data files below a folder, sorted by path, in pages of at most `size`.

    Args:
        fs: fsspec's file system; local disks and S3 are listed without a look at what comes before `after`.
        root: What paths are relative to, in the form that `fs` knows it in.
        folder: Relative to the root, empty or ending with `/`; one that is not there has no files.
        after: Only paths that sort after this one.
    """
    if "s3" in _protocols(fs):
        yield from _of_s3(fs, root, folder, after, size)
        return
    files = (file for file in _walk(fs, root, folder, after) if is_data(file.path))
    while page := list(islice(files, size)):
        yield page


def look(fs: Any, root: str, path: str) -> Listed | None:
    """Return a file as a listing would show it at this moment; None where there is none."""
    try:
        return _local(f"{root}/{path}", path) if is_local(fs) else _shown(fs.info(f"{root}/{path}"), path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in _NO_FILE:
            return None
        raise


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def is_local(fs: Any) -> bool:
    """Whether the file system is this machine's."""
    return "file" in _protocols(fs)


def _walk(fs: Any, root: str, folder: str, after: str) -> Iterator[Listed]:
    for name, file in _entries(fs, root, folder):
        path = folder + name
        if name.startswith((".", "_")) or (path <= after and not (file is None and after.startswith(path))):
            continue
        if file is None:
            yield from _walk(fs, root, path, after)
        elif listed := _local(file, path) if isinstance(file, str) else _shown(file, path):
            yield listed


def _entries(fs: Any, root: str, folder: str) -> list[tuple[str, str | dict[str, Any] | None]]:
    """The names in a folder, sorted, each with the place or fsspec's info of the file; folders end with `/`, with None."""
    try:
        found = _scanned(f"{root}/{folder}") if is_local(fs) else _named(fs.ls(f"{root}/{folder}".rstrip("/"), detail=True))
        return sorted(found, key=lambda entry: entry[0])
    except FileNotFoundError:
        # It may have gone since its parent was read. Were the whole zone gone, that would be no empty folder.
        if not fs.exists(root):
            raise
        return []


def _scanned(folder: str) -> Iterable[tuple[str, str | None]]:
    with os.scandir(folder) as entries:
        readable = (entry for entry in entries if entry.name.isascii() or is_text(entry.name))
        return [
            (entry.name + "/", None) if entry.is_dir(follow_symlinks=False) else (entry.name, entry.path)
            for entry in readable
        ]


def is_text(name: str) -> bool:
    """Whether a name can be kept as text: on Linux it may be any bytes, and in JSON half a character."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(infos: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for info in infos:
        name = str(info["name"]).rstrip("/").rpartition("/")[2]
        yield (name + "/", None) if info["type"] == "directory" else (name, info)


def _local(place: str, path: str) -> Listed | None:
    try:
        seen = os.stat(place)  # noqa: PTH116 half the time of Path.stat, for each of a million files
    except FileNotFoundError:
        return None
    return Listed(path, seen.st_size, seen.st_mtime, seen.st_mtime) if stat.S_ISREG(seen.st_mode) else None


def _of_s3(fs: Any, root: str, folder: str, after: str, size: int) -> Iterator[list[Listed]]:
    bucket, _, base = root.partition("/")
    base = f"{base}/" if base else ""
    # fsspec's own listing is of a whole folder at once; S3's gives a page, from any key on.
    more = {"StartAfter": base + after} if after else {}
    while True:
        answer = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=base + folder, MaxKeys=min(size, PAGE), **more)
        listed = (_shown(item, item["Key"][len(base) :]) for item in answer.get("Contents", ()))
        if page := [file for file in listed if file and is_data(file.path)]:
            yield page
        if not answer.get("IsTruncated"):
            return
        more = {"ContinuationToken": answer["NextContinuationToken"]}


def _shown(info: dict[str, Any], path: str) -> Listed | None:
    if info.get("type") == "directory":
        return None
    stamp = info.get("ETag") or info.get("etag") or info.get("mtime") or info.get("LastModified") or ""
    modified = info.get("LastModified") or info.get("mtime") or info.get("created")
    if isinstance(modified, datetime):
        modified = (modified if modified.tzinfo else modified.replace(tzinfo=UTC)).timestamp()
    size = info.get("size", info.get("Size")) or 0
    return Listed(
        path, int(size), stamp if isinstance(stamp, float) else str(stamp), float(modified) if modified is not None else None
    )
