"""Files that other processes read: written whole or not at all, and secret where they must be."""

import os
import tempfile
from collections.abc import Callable
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
