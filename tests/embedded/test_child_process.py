"""Children, ports and restarts."""

import socket
import sys
from pathlib import Path

import pytest

from ratify_lakehouse.embedded import child_process
from ratify_lakehouse.embedded.child_process import Child, Restarts, free_port, wait_for
from ratify_lakehouse.embedded.embedded_errors import PortTaken, ProcessFailed

pytestmark = pytest.mark.server


def python(code: str, tmp_path: Path) -> Child:
    return Child("a child", [sys.executable, "-c", code], tmp_path / "logs" / "child.log")


def test_a_child_that_dies_early_is_reported_with_its_log(tmp_path: Path) -> None:
    child = python("import sys; sys.exit('no such table')", tmp_path)
    with pytest.raises(ProcessFailed, match=r"a child died at its start with exit code 1(?s:.*)no such table"):
        child.wait_until(lambda: None, timeout=20)


def test_a_child_that_never_answers_is_reported(tmp_path: Path) -> None:
    child = python("import sys; sys.stdin.read()", tmp_path)
    with pytest.raises(ProcessFailed, match="did not answer within 0 s"):
        child.wait_until(lambda: None, timeout=0.2)
    # While the disk is busy, a program that is still being loaded cannot end for seconds.
    child.stop(grace=60)
    assert child.exit_code == -15


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); time.sleep(60)"
    child = python(code, tmp_path)
    child.wait_until(lambda: ready.exists() or None, timeout=20)
    child.stop(grace=0.2)
    assert child.exit_code == -9


def test_a_log_stays_bounded_while_its_process_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_LOG_BYTES", 1000)
    child = python("import sys\nfor line in sys.stdin: print(line[:-1] * 600, flush=True)", tmp_path)
    stdin = child._process.stdin
    assert stdin is not None
    for number, size in enumerate((601, 1202, 601), 1):
        stdin.write(b"%d\n" % number)
        stdin.flush()
        child.wait_until(lambda size=size: child.log.stat().st_size >= size or None, timeout=20)
        child.rotate_log()
    child.stop()
    old = child.log.with_name("child.log.1")
    assert (old.read_text(), child.log.read_text()) == ("1" * 600 + "\n" + "2" * 600 + "\n", "3" * 600 + "\n")
    # Also what an earlier process left.
    child.log.write_text("4" * 2000)
    python("pass", tmp_path).stop()
    assert (old.read_text(), child.log.read_text()) == ("4" * 2000, "")


@pytest.mark.parametrize(
    ("program", "code"),
    [("pass", 0), ("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
def test_a_watched_program_that_ends_by_itself_ends_with_its_own_exit_code(program: str, code: int, tmp_path: Path) -> None:
    """While its parent's end of standard input is still open."""
    command = [sys.executable, "-m", "ratify_lakehouse.embedded.parent_watch", sys.executable, "-c", program]
    child = Child("a child", command, log := tmp_path / "child.log")
    assert wait_for(lambda: child.exit_code, 60) == code
    child.stop()
    assert log.read_text() == ""


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port}, asked for by the catalog server, cannot be used"):
            free_port(port, "catalog server")
    assert free_port(port, "catalog server") == port


def test_restarts_slow_down_then_end_and_recover_with_time() -> None:
    now = 0.0
    restarts = Restarts(limit=3, window=60, clock=lambda: now)
    assert [restarts.next_pause() for _ in range(4)] == [0.25, 0.5, 1.0, None]
    now = 61.0
    assert restarts.next_pause() == 0.25
