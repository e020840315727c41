"""What is done to landed files: archive, delete, overwrite, or move to the dead-letter folder with the reason.

A move is a copy, a comparison of the copy, and a deletion. After a crash in between both files exist, and the same call
completes the move. A file that was rewritten since its load is not moved. Between the last check and the deletion are
milliseconds, in which not every store can block writers: files should land under new names.
"""

import hashlib
import json
import shutil
import time
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from ratify_lakehouse.durable_files import sync
from ratify_lakehouse.landing.file_listing import Listed, is_local, located, look
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone, landed

_CHUNK = 1 << 20
_NOTE = ".reason.json"
# A copy of a file takes less.
_ABANDONED_S = 3600


class Moved(StrEnum):
    """Outcome of a move."""

    DONE = "done"
    MISSING = "already missing"
    CHANGED = "changed since"


def archive(landing: LandingZone, path: str, fingerprint: str, folder: str) -> Moved:
    """Move a file into a folder of the landing zone.

    It keeps its path in that folder; if another version of that path exists there, the fingerprint is added to its name.

    Args:
        landing: The landing zone.
        path: Of the file, in the landing zone.
        fingerprint: Of the version to move; any other version stays.
        folder: In the landing zone; hidden (see `file_listing.is_data`), so that the file is not found again.

    Raises:
        LandingUnavailable: the file cannot be moved.
    """
    with landing.opened() as (fs, root):
        return _move(fs, root, path, fingerprint, folder, None)


def dead_letter(landing: LandingZone, path: str, fingerprint: str, folder: str, reason: str) -> Moved:
    """Move a file as `archive` does, with the reason in `<name>.reason.json` beside it.

    Raises:
        LandingUnavailable: the file cannot be moved.
    """
    with landing.opened() as (fs, root):
        return _move(fs, root, path, fingerprint, folder, reason)


def bring_back(landing: LandingZone, path: str, fingerprint: str, folder: str) -> Moved:
    """Move a file that `dead_letter` has moved to where it landed, which is done, too, if it is there already.

    Where another version has landed meanwhile, both stay.

    Args:
        landing: The landing zone.
        path: Where it landed.
        fingerprint: Of the version that was moved.
        folder: That it was moved to; empty: refused files are not moved.

    Raises:
        LandingUnavailable: the file cannot be moved.
    """
    with landing.opened() as (fs, root):
        present = look(fs, root, path)
        targets = reversed(_targets(path, fingerprint, folder)) if folder else ()
        letter = next((each for each in targets if look(fs, root, each)), None)
        if letter is None:
            return Moved.DONE if present else Moved.MISSING
        if present is None and not _copy(fs, root, letter, path):
            raise OSError(f"the copy of {letter} in {path} differs from it")
        if present is not None and not _same_bytes(fs, root, letter, path):
            return Moved.CHANGED
        fs.rm_file(located(fs, root, letter))
    remove_note(landing, letter)
    return Moved.DONE


def delete(landing: LandingZone, path: str, fingerprint: str) -> Moved:
    """Delete a file, if it is still the version with this fingerprint.

    Raises:
        LandingUnavailable: the file cannot be deleted.
    """
    with landing.opened() as (fs, root):
        return _deleted(fs, root, path, fingerprint)


def overwrite(landing: LandingZone, path: str, fingerprint: str, local: Path) -> Moved:
    """Write the bytes of a local file in place of a landed one, in one step, if that still has this fingerprint.

    An object store gets them by one upload. On a disk they are in a hidden file beside it until they are whole.

    Raises:
        LandingUnavailable: the file cannot be written.
    """
    with landing.opened() as (fs, root):
        present = _version(fs, root, path)
        if present is None or present.fingerprint != fingerprint:
            return Moved.MISSING if present is None else Moved.CHANGED
        if not is_local(fs):
            fs.put_file(str(local), located(fs, root, path))
            return Moved.DONE
        target = Path(located(fs, root, path))
        partial = target.with_name(f".{target.name}.part")
        shutil.copyfile(local, partial)
        shutil.copymode(target, partial)
        sync(partial)
        partial.replace(target)
        sync(target.parent)
        return Moved.DONE


def remove_note(dead_letters: LandingZone, path: str) -> None:
    """Remove the reason beside a file that was moved by `dead_letter`, which may quote a value of it.

    Args:
        dead_letters: The folder that it was moved to, as a landing zone.
        path: Of the file, in that folder.

    Raises:
        LandingUnavailable: it cannot be removed.
    """
    with dead_letters.opened() as (fs, root):
        if fs.exists(located(fs, root, path + _NOTE)):
            fs.rm_file(located(fs, root, path + _NOTE))


def remove_partial_copies(moved: LandingZone) -> None:
    """Remove what moves to a folder left that were killed as they copied a file to it.

    Raises:
        LandingUnavailable: one cannot be removed.
    """
    with moved.opened() as (fs, root):
        # Other stores have a copy whole or not at all.
        for partial in Path(root).rglob(".*.part") if is_local(fs) else ():
            if time.time() - partial.stat().st_mtime > _ABANDONED_S:
                partial.unlink(missing_ok=True)


def _move(fs: Any, root: str, path: str, fingerprint: str, folder: str, reason: str | None) -> Moved:
    present = _version(fs, root, path)
    if present is None or present.fingerprint != fingerprint:
        return Moved.MISSING if present is None else Moved.CHANGED
    target = _copied(fs, root, path, fingerprint, folder)
    if target is None:
        return Moved.CHANGED
    if reason is not None:
        record = {"path": path, "bytes": present.size, "fingerprint": fingerprint, "reason": reason}
        fs.pipe_file(located(fs, root, target + _NOTE), json.dumps(record, indent=2).encode())
    return _deleted(fs, root, path, fingerprint)


def _version(fs: Any, root: str, path: str) -> LandedFile | None:
    seen = look(fs, root, path)
    return landed(seen) if seen else None


def _copied(fs: Any, root: str, path: str, fingerprint: str, folder: str) -> str | None:
    """Copy the file and return the target, None if it changed meanwhile; an existing file of the same bytes is the copy."""
    for target in _targets(path, fingerprint, folder):
        if look(fs, root, target) is not None:
            if _same_bytes(fs, root, path, target):
                return target
        elif _copy(fs, root, path, target):
            return target
        else:
            break
    present = _version(fs, root, path)
    if present and present.fingerprint == fingerprint:
        raise OSError(f"the copy of {path} in {folder} differs from it")
    return None


def _targets(path: str, fingerprint: str, folder: str) -> tuple[str, str]:
    """Where a file is moved to in a folder: under its path, or beside another version of it."""
    name = PurePosixPath(path)
    beside = str(name.with_name(f"{name.name.partition('.')[0]}.{fingerprint}{''.join(name.suffixes)}"))
    return f"{folder}/{path}", f"{folder}/{beside}"


def _copy(fs: Any, root: str, path: str, target: str) -> bool:
    """Copy a file atomically, and return whether the copy has its bytes; otherwise there is no copy."""
    parent, _, name = target.rpartition("/")
    fs.makedirs(located(fs, root, parent), exist_ok=True)
    # On a disk, a copy under its own name would be incomplete for a while, or for ever after a crash.
    partial = f"{parent}/.{name}.part" if is_local(fs) else target
    fs.cp_file(located(fs, root, path), located(fs, root, partial))
    if not _same_bytes(fs, root, path, partial):
        fs.rm_file(located(fs, root, partial))
        return False
    if is_local(fs):
        # Else a power failure after the deletion could lose both.
        sync(Path(located(fs, root, partial)))
        Path(located(fs, root, partial)).replace(located(fs, root, target))
        sync(Path(located(fs, root, parent)))
    return True


def _same_bytes(fs: Any, root: str, one: str, other: str) -> bool:
    seen = [look(fs, root, path) for path in (one, other)]
    first, second = seen
    if not (first and second) or first.size != second.size:
        return False
    return _same_etag(first, second) or _digest(fs, located(fs, root, one)) == _digest(fs, located(fs, root, other))


def _same_etag(one: Listed, other: Listed) -> bool:
    """Whether the ETags are equal: then the bytes are, too, while unequal ETags mean nothing."""
    return isinstance(one.stamp, str) and bool(one.stamp) and one.stamp == other.stamp


def _digest(fs: Any, file: str) -> bytes:
    digest = hashlib.sha256()
    with fs.open(file, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()


def _deleted(fs: Any, root: str, path: str, fingerprint: str) -> Moved:
    present = _version(fs, root, path)
    if present is None or present.fingerprint != fingerprint:
        return Moved.MISSING if present is None else Moved.CHANGED
    fs.rm_file(located(fs, root, path))
    return Moved.DONE
