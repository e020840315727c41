"""Locks between the processes of one machine: `filelock` takes them, and the kernel releases them when their holder ends.

`filelock` can only ask who holds a lock by taking it for a moment, and a second process that asks in that moment sees a
holder that is none. So `lock_holder` probes with a shared `flock`, which never collides with another probe.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ratify_lakehouse.embedded.private_files import Progress


def file_lock(path: Path) -> FileLock:
    """Return the lock of a file of mode 0600, which its holder writes its process id into and which is never deleted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Where the file system has no flock, this fails: a lock that a killed holder leaves behind would block for ever.
    return FileLock(path, mode=0o600, fallback_to_soft=False, preserve_lock_file=True, on_acquired=_write_process_id)


@contextmanager
def exclusive(path: Path, progress: Progress, waiting_for: str) -> Generator[None]:
    """Hold the lock of a file; while another process holds it, report that once and wait."""
    lock = file_lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        progress(f"waiting for {waiting_for}, held by process {lock_holder(path) or '(unknown)'}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def lock_holder(path: Path) -> int | None:
    """Return the process that holds the lock of a file; None when nobody does.

    The lock decides, not the file's content: neither a crash nor a process id that was reused looks like a holder.
    """
    try:
        with path.open() as file:
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
