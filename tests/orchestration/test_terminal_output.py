"""Commands that messages name can be typed as they stand, wherever `ratify` is installed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.cli import terminal_output
from orchestration.cli.terminal_output import runnable


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    terminal_output._command.cache_clear()
    yield
    terminal_output._command.cache_clear()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, path: str) -> None:
    folder.mkdir(parents=True)
    (folder / "ratify").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", path)


def test_a_command_that_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "bin", monkeypatch, path=str(tmp_path / "bin"))
    assert runnable("start `ratify up`") == "start `ratify up`"


def test_a_command_in_an_environment_that_is_not_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / ".venv" / "bin", monkeypatch, path="/nowhere")
    monkeypatch.chdir(tmp_path)
    assert runnable("start `ratify up` or `ratify-flink`") == "start `.venv/bin/ratify up` or `ratify-flink`"
    assert runnable("the catalog `ratify`") == "the catalog `ratify`"
    terminal_output._command.cache_clear()
    (tmp_path / "assets").mkdir()
    monkeypatch.chdir(tmp_path / "assets")
    assert runnable("`ratify up`") == "`../.venv/bin/ratify up`"
