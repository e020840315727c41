"""Ends what a test run leaves behind, also where the run is killed with -9 and cannot do it itself.

`start` puts a mark into the environment, which every process of the run inherits, and starts this module as a program. When
the run has ended, the program kills each process that has the mark. Servers that watch a pipe themselves end before that.
"""

import contextlib
import os
import subprocess
import sys
import time
from uuid import uuid4

import psutil

_MARK = "TEST_RUN_MARK"


def start(grace_seconds: float = 15) -> None:
    """Call once in a run, before it starts other processes."""
    os.environ[_MARK] = str(uuid4())
    command = [sys.executable, __file__, str(os.getpid()), str(grace_seconds)]
    # In a session of its own, which Ctrl-C at the terminal does not reach.
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def _marked() -> list[psutil.Process]:
    found = list[psutil.Process]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(_MARK) == os.environ[_MARK]:
                found.append(process)
    return found


def main(run: int, grace_seconds: float) -> None:
    """Wait for the end of process `run`, this one's parent, and then for what is left to end by itself; kill the rest."""
    while os.getppid() == run:
        time.sleep(0.2)
    deadline = time.monotonic() + grace_seconds
    while (left := _marked()) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
