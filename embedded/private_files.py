"""Files that other processes look at: written whole or not at all, secret where they must be, locked while in use."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]


def write_private(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, readable by the owner only (mode 0600), in a directory of mode 0700."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp creates with 0600, so there is no moment at which another user could open the file.
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


@contextmanager
def exclusive(lock: Path, progress: Progress, waiting_for: str) -> Generator[None]:
    """Hold the file lock `lock`; while another process holds it, say so once and wait.

    The kernel frees it when its holder ends, however that happens, so it is never stale.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process is busy with {waiting_for}: waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
