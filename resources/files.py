"""Files of our own that must be there after a power failure, whole."""

import os
import tempfile
from pathlib import Path


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file in one step, in a folder that is made if need be: it is on the disk, whole, when this returns."""
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
    # The name is part of the folder, which is on the disk only when it is told to be.
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
