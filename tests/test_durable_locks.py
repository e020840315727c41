"""The lock of `durable_files`: one process holds it, its file names the process, and kill -9 releases it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratify_lakehouse.durable_files import hold, holder

pytestmark = pytest.mark.server

HOLD = """
import sys, time
from pathlib import Path
from ratify_lakehouse.durable_files import hold
with hold(Path(sys.argv[1])) as held:
    print(held, flush=True)
    time.sleep(60)
"""


def test_one_process_holds_a_lock_until_it_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / "lock"
    assert holder(lock) is None
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert holder(lock) == other.pid
        with hold(lock) as held:
            assert not held
        assert holder(lock) == other.pid
        other.kill()
    with hold(lock) as held:
        assert held
        assert holder(lock) == os.getpid()
        assert lock.stat().st_mode & 0o777 == 0o600
    assert holder(lock) is None
    assert lock.exists()
