"""`ratify demo` on a server of another owner, and after one that was killed; tests/smoke/test_demo.py has it undisturbed."""

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.ratify_command import RATIFY, environment, ratify
from tests.embedded.catalog.harness import CatalogAddress
from tests.smoke.finished_demo import assert_it_is_complete

pytestmark = [pytest.mark.server, pytest.mark.stack, pytest.mark.long]


def test_demo_on_another_server(elsewhere: CatalogAddress, new_home: Path) -> None:
    """With UNITY_HOST and UNITY_TOKEN the same demo runs without a catalog of its own."""
    other_server = {"UNITY_HOST": elsewhere.url, "UNITY_TOKEN": elsewhere.token, "UNITY_CATALOG": "main"}
    demo = ratify(new_home, "demo", "--days", "3", "--more", "2", **other_server)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "main.gold.carrier_daily_snapshot" in demo.stdout
    assert "refused" in demo.stdout
    assert "repeated" in demo.stdout
    assert not (new_home / "catalog").exists()
    assert elsewhere.token not in demo.stdout + demo.stderr


def test_a_demo_that_is_killed_is_made_good_by_the_next(new_home: Path) -> None:
    """kill -9 in the middle of a run: nothing of it goes on, nothing is lost, nothing is written twice."""
    demo = subprocess.Popen(
        [RATIFY, "demo", "--days", "2", "--more", "1"],
        env=environment(new_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "running flights" in line:
            break
    family = psutil.Process(demo.pid).children(recursive=True)
    time.sleep(2)
    demo.send_signal(signal.SIGKILL)
    demo.wait(10)
    demo.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert ratify(new_home, "up").returncode == 0
    again = ratify(new_home, "demo", "--days", "1", "--more", "1")
    assert_it_is_complete(new_home, again.stdout)
    # The version that the killed run committed without a report is the only thing that a check may complain of.
    complaints = [line for line in again.stderr.splitlines() if "failed:" in line]
    assert all("written_as_reported: 1 commit that no run" in line for line in complaints), again.stderr
