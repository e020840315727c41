"""One stack for all test processes of a run (the workers of pytest-xdist), however the run ends.

The first process that asks starts the stack and owns it; the others use it. Each user holds a shared lock on a file. The
owner stops the stack when it can take that lock alone, which is when every other user has finished or died. The stack hangs
on a pipe of its owner (see `embedded_stack.up`): where the run is killed, the pipe closes and all servers end.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from ratify_lakehouse.embedded.embedded_stack import down, up
from ratify_lakehouse.embedded.private_files import Progress, write_private
from ratify_lakehouse.embedded.stack_state import StackConfig, StackState, holder


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a directory of this run that all of its processes know; only its owner may look inside."""
    base = factory.getbasetemp()
    # A worker's base directory lies in that of the whole run.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    (folder := run / name).mkdir(mode=0o700, exist_ok=True)
    return folder


def shared_secret(file: Path, make: Callable[[], str]) -> str:
    """Return the secret in a file of this run, which the first process that asks makes."""
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            write_private(file, make())
    return file.read_text()


@contextmanager
def shared(config: StackConfig, progress: Progress) -> Generator[StackState]:
    """Yield the run's stack in `config.home`, which is started where it does not run yet."""
    # Held only while the stack is started or stopped, so that it never stops under somebody who has just been given it.
    changing = FileLock(config.home / "changing.lock")
    with (config.home / "users.lock").open("a") as users:
        with changing:
            owner = holder(config.home) is None
            state = up(config, detached=False, progress=progress)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield state
        finally:
            if owner:
                with changing:
                    fcntl.flock(users, fcntl.LOCK_EX)
                    down(config.home)
