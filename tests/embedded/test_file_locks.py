"""Locks between processes: the waiting message, the holder, and the end of a holder by kill -9."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratify_lakehouse.embedded.file_locks import exclusive, file_lock, lock_holder

HOLD = """
import sys, time
from pathlib import Path
from ratify_lakehouse.embedded.file_locks import exclusive
with exclusive(Path(sys.argv[1]), print, "the jars"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another_holder(lock: Path) -> Generator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.server
def test_a_killed_holder_releases_the_lock_to_the_one_that_waits(tmp_path: Path) -> None:
    lock, reported = tmp_path / "folder" / "lock", list[str]()
    with another_holder(lock) as other:
        assert lock_holder(lock) == other.pid
        threading.Timer(0.5, other.kill).start()
        with exclusive(lock, reported.append, "the jars"):
            assert reported == [f"waiting for the jars, held by process {other.pid}"]
            assert lock_holder(lock) == os.getpid()
            assert lock.stat().st_mode & 0o777 == 0o600
    assert lock.exists()
    assert lock_holder(lock) is None


def test_a_probe_is_no_holder(tmp_path: Path) -> None:
    """Many processes may ask at once who holds a lock, and none of them sees another."""
    lock, over, found = tmp_path / "lock", threading.Event(), set[int | None]()

    def probe() -> None:
        while not over.is_set():
            found.add(lock_holder(lock))

    with file_lock(lock):
        pass
    threads = [threading.Thread(target=probe) for _ in range(4)]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.3)
    over.set()
    for thread in threads:
        thread.join()
    assert found == {None}


def test_a_missing_lock_has_no_holder(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()
