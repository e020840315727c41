"""In a folder that is no project, a command that needs one says so, and does nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ratify_lakehouse.definitions import project_folders
from ratify_lakehouse.errors import NoProject, NotConfigured
from tests.cli.ratify_command import environment

# The first line that each command prints, and its exit code, all in one process.
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from ratify_lakehouse.cli.main import app

answers = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[1])]
print(json.dumps([[answer.exit_code, (answer.output + repr(answer.exception)).splitlines()[0]] for answer in answers]))
"""
AT_ONCE = ["demo", "demo --streaming", "dev", "ingest orders.csv --table bronze.orders"]
AFTER_IMPORTS = [
    *("prove -d", "run silver.orders", "check silver.orders", "plan", "lineage silver.orders"),
    *("sync list", "sync run", "stream start", "stream run", "replay", "reprocess 2024-01-01", "maintain --due", "drift"),
]


def answers(folder: Path, lines: list[str]) -> dict[str, tuple[int, str]]:
    """The exit code of each command line in a folder without a project, and what it prints."""
    environ = {**environment(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    environ.pop("RATIFY_HOME")
    command = [sys.executable, "-c", PROGRAM, json.dumps([line.split() for line in lines])]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.server
@pytest.mark.parametrize("lines", [AT_ONCE, pytest.param(AFTER_IMPORTS, marks=pytest.mark.long)], ids=["at once", "imports"])
def test_a_command_that_needs_a_project_says_so_and_does_nothing(tmp_path: Path, lines: list[str]) -> None:
    said = f"NoProject: Neither {tmp_path} nor a folder above it has a pyproject.toml with [tool.dg.project]: "
    said += "change to the folder of a project, or make one with `"
    found = answers(tmp_path, lines)
    assert {line: (code, text[: len(said)]) for line, (code, text) in found.items()} == dict.fromkeys(lines, (1, said))
    assert list(tmp_path.iterdir()) == []


def test_a_project_is_found_from_any_of_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (below := tmp_path / "assets" / "bronze").mkdir(parents=True)
    monkeypatch.chdir(below)
    find = project_folders.project_root.__wrapped__
    (file := tmp_path / "pyproject.toml").write_text("[tool.dg.workspace]\n")
    with pytest.raises(NoProject, match=rf"Neither {below} nor .* `ratify new project NAME`"):
        find()
    file.write_text('[tool.dg.project]\nroot_module = "lake"\n')
    assert find() == tmp_path
    file.write_text("[tool.dg\n")
    with pytest.raises(NotConfigured, match=rf"{file} cannot be read: .*line 1"):
        find()
