"""What a long phase says while it lasts."""

import sys
import time

import pytest

from ratify_lakehouse.embedded import phase_progress
from ratify_lakehouse.embedded.phase_progress import phase


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(phase_progress, "REPEAT_SECONDS", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: request.param, raising=False)


@pytest.mark.parametrize("terminal", [True], indirect=True)
def test_on_a_terminal_no_phase_is_silent_for_long(terminal: None) -> None:
    lines = list[str]()
    with phase(lines.append, "compiling"):
        deadline = time.monotonic() + 20
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lines[0] == "compiling"
    assert lines[1].startswith("  still compiling: ")
    assert lines[-1].startswith("  done in ")
    said = len(lines)
    time.sleep(0.2)
    assert len(lines) == said


@pytest.mark.parametrize("terminal", [False], indirect=True)
def test_elsewhere_a_phase_takes_two_lines(terminal: None) -> None:
    lines = list[str]()
    with phase(lines.append, "compiling"):
        time.sleep(0.2)
    assert [line.rstrip("0123456789. s") for line in lines] == ["compiling", "  done in"]


@pytest.mark.parametrize("terminal", [True], indirect=True)
def test_a_phase_that_fails_is_not_done(terminal: None) -> None:
    lines = list[str]()
    with pytest.raises(ValueError, match="no"), phase(lines.append, "compiling"):
        raise ValueError("no")
    assert not [line for line in lines if "done" in line]
