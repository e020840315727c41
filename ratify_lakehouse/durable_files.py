"""Files that survive a power failure whole, and files that processes of one machine lock."""

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file in one step, creating its folder if needed: when this returns, the whole file is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    # The name is part of the folder, which needs an fsync of its own.
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold(lock: Path) -> Generator[bool]:
    """Try to hold a lock, and yield whether it is held; the file names its holder's process.

    The kernel releases it when its holder ends, however that happens, and the file is never deleted.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    # Where the file system has no flock, this fails: a lock that a killed holder leaves behind would block for ever.
    file_lock = FileLock(lock, mode=0o600, fallback_to_soft=False, preserve_lock_file=True, on_acquired=_write_process_id)
    try:
        # Longer than the instant for which `holder` takes the lock.
        file_lock.acquire(timeout=0.2)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        file_lock.release()


def holder(lock: Path) -> int | None:
    """Return the process that holds a lock; None where nobody does.

    A shared `flock`, which `filelock` does not have, lets several processes ask at once: with an exclusive one, each could
    take the other for a holder.
    """
    try:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0)
    except FileNotFoundError:
        pass
    return None


def _write_process_id(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
