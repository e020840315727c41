"""A test run that is killed leaves no process behind."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.server

_RUN = """
import subprocess, sys, time
from tests import reaper
reaper.start(grace_seconds=0)
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(left.pid, flush=True)
time.sleep(600)
"""


def test_kill_9_of_the_run_ends_what_it_started() -> None:
    run = subprocess.Popen([sys.executable, "-c", _RUN], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert run.stdout is not None
    left = psutil.Process(int(run.stdout.readline()))
    run.kill()
    run.wait(10)
    run.stdout.close()
    assert not psutil.wait_procs([left], timeout=30)[1]
    # This run, whose mark is another one, goes on.
    assert psutil.pid_exists(os.getpid())
