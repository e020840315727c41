"""The cache folder of jars, which the projects of a user share: one process at a time writes into it."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ratify_lakehouse.embedded.embedded_errors import JarsUnavailable
from ratify_lakehouse.embedded.file_locks import exclusive
from ratify_lakehouse.embedded.private_files import Progress

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def writing(jars_dir: Path, progress: Progress) -> Generator[None]:
    """Hold the cache folder, waiting for another process that does. Nobody who only reads needs it.

    Raises:
        JarsUnavailable: the folder cannot be written, or its disk is full.
    """
    try:
        with exclusive(jars_dir / ".lock", progress, "the JVM jars"):
            yield
    except OSError as error:
        if error.errno in _FULL:
            what = f"there is no room for the JVM jars in {jars_dir} ({error.strerror}). Free 1 GB"
        elif error.errno in _NOT_WRITABLE:
            what = f"the JVM jars cannot be written to {jars_dir} ({error.strerror}). Make it a folder that you can write to"
        else:
            raise
        raise JarsUnavailable(f"{what}, or name another cache folder in RATIFY_CACHE, and run it again.") from error


def check_room(output: str) -> None:
    """Check that a Java program did not fail because the disk is full, as its output would say.

    Raises:
        OSError: it did.
    """
    for code in _FULL:
        if (reason := os.strerror(code)) in output:
            raise OSError(code, reason)
