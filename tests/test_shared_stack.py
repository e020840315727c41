"""Two test processes of one run have one stack, which runs until both have finished."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratify_lakehouse.embedded.stack_state import holder

pytestmark = pytest.mark.server

_USER = """
import sys
from pathlib import Path
from ratify_lakehouse.embedded.stack_state import StackConfig
from tests.shared_stack import shared
with shared(StackConfig(home=Path(sys.argv[1]), jars_dir=Path("no jars"), spark=False), lambda _: None) as state:
    print(state.pid, flush=True)
    sys.stdin.readline()
"""


def _user(home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _USER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def _stack_of(user: "subprocess.Popen[str]") -> int:
    assert user.stdout is not None
    return int(user.stdout.readline())


def _finish(user: "subprocess.Popen[str]") -> None:
    assert user.stdin is not None
    user.stdin.write("\n")
    user.stdin.flush()


def test_the_stack_runs_until_its_last_user_has_finished(tmp_path: Path) -> None:
    owner = _user(tmp_path)
    stack = _stack_of(owner)
    other = _user(tmp_path)
    assert _stack_of(other) == stack == holder(tmp_path)
    _finish(owner)
    with pytest.raises(subprocess.TimeoutExpired):
        owner.wait(2)
    assert holder(tmp_path) == stack
    _finish(other)
    assert (other.wait(60), owner.wait(60)) == (0, 0)
    assert holder(tmp_path) is None
    for user in (owner, other):
        user.communicate()


def test_a_stack_ends_with_its_owner_however_that_ends(tmp_path: Path) -> None:
    owner = _user(tmp_path)
    _stack_of(owner)
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 60
    while holder(tmp_path) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # Nor does its lock hinder the next.
    last = _user(tmp_path)
    assert _stack_of(last) == holder(tmp_path)
    last.communicate("\n", timeout=60)
    assert holder(tmp_path) is None
