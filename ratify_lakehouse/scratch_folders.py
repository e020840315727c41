"""Temporary folders below RATIFY_HOME, which do not outlive their process even if it is killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(home: Path) -> Generator[Path]:
    """Yield a new folder below RATIFY_HOME, removed at the end of the block; those of dead processes are removed first.

    The process holds a lock on its folder, which the kernel releases when the process ends.
    """
    root = home / "scratch"
    root.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(root)
    folder, lock = _locked(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(root: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=root))
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            # Another process took it for abandoned before it was locked.
            os.close(lock)


def _remove_abandoned(root: Path) -> None:
    for folder in root.iterdir():
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(lock)
