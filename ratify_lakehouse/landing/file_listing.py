"""Listing of a store's files in pages, sorted by path, so that a listing can continue where an earlier one stopped.

The order is that of an object store's keys, by code point, folders as if their names ended with `/`.

A name on a disk may be any bytes. In a path, which goes into tables as text, each byte that is not UTF-8 is a character of
the private use area, U+EF00 and the byte. So is each byte of such a character that a name has itself: no two names are one
path.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

PAGE = 1000
"""Files in a page: what S3 gives at once."""

SUFFIXES = tuple(
    f".{kind}{packed}" for kind in ("csv", "tsv", "json", "jsonl", "ndjson", "parquet") for packed in ("", ".gz", ".zst")
)
"""Names of files that can hold rows end so; others, such as `1.csv.part`, are files in the making."""


_BYTES, _HALF = 0xEF00, 0xDC00
_PRIVATE = re.compile("[\uef80-\uefff]")
_NO_FILE = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


class Listed(NamedTuple):
    """A file as its store shows it.

    Attributes:
        path: Relative to the root, with `/`.
        size: Bytes.
        stamp: The store's ETag, else the modification time (seconds since 1970): differs when the file differs.
        changed: Beside an ETag, when the file last changed (seconds since 1970), if the store reports it.
    """

    path: str
    size: int
    stamp: str | float
    changed: float | None = None

    @property
    def modified(self) -> float | None:
        """When the file last changed (seconds since 1970), if the store reports it."""
        return self.stamp if isinstance(self.stamp, float) else self.changed


def is_data(path: str) -> bool:
    """Whether a file of this path can hold rows: of a known suffix, in no hidden folder, under no hidden name.

    Hidden is what begins with `.` or `_`, as for Spark.
    """
    return not path.startswith((".", "_")) and "/." not in path and "/_" not in path and path.lower().endswith(SUFFIXES)


def pages(fs: Any, root: str, folder: str = "", after: str = "", size: int = PAGE) -> Iterator[list[Listed]]:
    """List the files below a folder, sorted by path, in pages of at most `size`; which are data, the caller validates.

    Args:
        fs: fsspec's file system; listings of local disks and S3 skip what comes before `after`.
        root: What paths are relative to, in the form that `fs` knows it in.
        folder: Relative to the root, empty or ending with `/`; a missing folder has no files.
        after: Only paths that sort after this one.
    """
    if "s3" in _protocols(fs):
        yield from _of_s3(fs, root, folder, after, size)
        return
    walked = _walk_local(root, folder, after) if is_local(fs) else _walk(fs, root, folder, after)
    page = list[Listed]()
    for run in walked:
        if not page and len(run) == size:
            yield run
            continue
        page += run
        while len(page) >= size:
            yield page[:size]
            del page[:size]
    if page:
        yield page


def located(fs: Any, root: str, path: str) -> str:
    """Return where a file system has a path below a root; an empty one is the root."""
    full = f"{root}/{path}" if path else root
    return name_on_disk(full) if is_local(fs) else full


def path_of_name(name: str) -> str:
    """Return the path, which is text, of a name on a disk, as Python has it: a byte that is not UTF-8 is half of one."""
    if name.isascii() or (is_text(name) and not _PRIVATE.search(name)):
        return name
    text = _PRIVATE.sub(lambda found: "".join(chr(_BYTES + byte) for byte in found.group().encode()), name)
    return "".join(chr(_BYTES + ord(each) - _HALF) if _HALF <= ord(each) < _HALF + 256 else each for each in text)


def name_on_disk(path: str) -> str:
    """Return the name on a disk, as Python has it, of a path: the inverse of `path_of_name`."""
    if path.isascii() or not _PRIVATE.search(path):
        return path
    parts = (bytes([ord(each) - _BYTES]) if _PRIVATE.match(each) else each.encode() for each in path)
    return os.fsdecode(b"".join(parts))


def look(fs: Any, root: str, path: str) -> Listed | None:
    """Return a file as a listing would show it now; None if there is none."""
    try:
        found = _stated(root, "", [path]) if is_local(fs) else [_shown(fs.info(f"{root}/{path}"), path)]
        return found[0] if found else None
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in _NO_FILE:
            return None
        raise


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def is_local(fs: Any) -> bool:
    """Whether the file system is this machine's."""
    return "file" in _protocols(fs)


def _walk(fs: Any, root: str, folder: str, after: str) -> Iterator[list[Listed]]:
    try:
        infos: list[dict[str, Any]] = fs.ls(f"{root}/{folder}".rstrip("/"), detail=True)
    except FileNotFoundError:
        if not fs.exists(root):
            raise
        infos = []
    named = ((_name(info) + ("/" if info["type"] == "directory" else ""), info) for info in infos)
    for name, info in sorted(named, key=lambda one: one[0]):
        if name[0] in "._" or not _wanted(folder + name, after):
            continue
        if name.endswith("/"):
            yield from _walk(fs, root, folder + name, after)
        elif listed := _shown(info, folder + name):
            yield [listed]


def _name(info: dict[str, Any]) -> str:
    return str(info["name"]).rstrip("/").rpartition("/")[2]


def _wanted(path: str, after: str) -> bool:
    """Whether a file sorts after a path, or a folder has files that may."""
    return path > after or (path.endswith("/") and after.startswith(path))


def _walk_local(root: str, folder: str, after: str) -> Iterator[list[Listed]]:
    """Walk in runs of files that no folder is between: for a million files, each step in Python counts."""
    names = _entries(root, folder)
    if after:
        names = [name for name in names if _wanted(folder + name, after)]
    done = 0
    for place in [*(index for index, name in enumerate(names) if name[-1] == "/"), len(names)]:
        for start in range(done, place, PAGE):
            yield _stated(root, folder, names[start : min(start + PAGE, place)])
        if place < len(names):
            yield from _walk_local(root, folder + names[place], after)
        done = place + 1


def _entries(root: str, folder: str) -> list[str]:
    """The names in a folder that are no hidden ones, sorted; those of folders end with `/`."""
    try:
        with os.scandir(name_on_disk(f"{root}/{folder}")) as entries:
            return sorted(
                [
                    name + "/" if entry.is_dir(follow_symlinks=False) else name
                    for entry in entries
                    if (name := path_of_name(entry.name))[0] not in "._"
                ]
            )
    except FileNotFoundError:
        # It may have been removed since its parent was read. A missing landing zone, however, is no empty folder.
        if not Path(name_on_disk(root)).exists():
            raise
        return []


def _stated(root: str, folder: str, names: Iterable[str]) -> list[Listed]:
    at, listed, is_file = name_on_disk(f"{root}/{folder}"), list[Listed](), stat.S_ISREG
    # What Listed() does, without its call.
    new = cast("Callable[[tuple[str, int, float, None]], Listed]", partial(tuple.__new__, Listed))  # pyright: ignore[reportUnknownMemberType]
    for name in names:
        try:
            # Half the time of Path.stat, for each of a million files.
            seen = os.stat(at + (name if name.isascii() else name_on_disk(name)))  # noqa: PTH116
        except FileNotFoundError:
            continue
        if is_file(seen.st_mode):
            listed.append(new((folder + name, seen.st_size, seen.st_mtime, None)))
    return listed


def is_text(name: str) -> bool:
    """Whether a name is valid text: on Linux it may be any bytes, and in JSON half a character."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_s3(fs: Any, root: str, folder: str, after: str, size: int) -> Iterator[list[Listed]]:
    bucket, _, base = root.partition("/")
    base = f"{base}/" if base else ""
    # fsspec's own listing is of a whole folder at once; S3's gives a page, from any key on.
    more = {"StartAfter": base + after} if after else {}
    while True:
        answer = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=base + folder, MaxKeys=min(size, PAGE), **more)
        listed = (_shown(item, item["Key"][len(base) :]) for item in answer.get("Contents", ()))
        if page := [file for file in listed if file]:
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
    size = int(info.get("size", info.get("Size")) or 0)
    return Listed(path, size, stamp if isinstance(stamp, float) else str(stamp), modified)
