"""What `ratify` imports before a command runs: nothing heavy; and its help, version and completion."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from ratify_lakehouse.cli.main import COMMANDS, app
from ratify_lakehouse.distribution import DISTRIBUTION, distribution_version

ROOT = Path(__file__).parents[2]
HEAVY = frozenset(
    {"dagster", "pyspark", "duckdb", "databricks", "confluent_kafka", "pandas", "httpx", "starlette", "fsspec"}
)
OWN = ("assets", "orchestration", "resources", "ratify_lakehouse.components", "ratify_lakehouse.catalog.unity_catalog")

# Runs each command line of argv in one fresh process, and prints which modules each of them was the first to import.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
from ratify_lakehouse.cli.main import app

imported, seen = {"import": sorted(sys.modules)}, set(sys.modules)
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()):
        try:
            app(words, prog_name="ratify")
        except SystemExit as end:
            code = end.code or 0
    imported[" ".join(words)] = [str(code), *sorted(set(sys.modules) - seen)]
    seen |= set(sys.modules)
print(json.dumps(imported))
"""


def command_paths(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, as the words that name it."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, TyperGroup):
            yield from command_paths(command, (*path, name))


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = ("UNITY_", "SPARK_REMOTE", "RATIFY_", "KAFKA_", "LANDING_URL", "_RATIFY")
    others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**others, "RATIFY_HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "120", **more}


def run(program: str, *words: str, home: Path, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=home,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.server
def test_help_version_and_status_import_neither_dagster_nor_an_engine(tmp_path: Path) -> None:
    top = get_command(app)
    assert isinstance(top, TyperGroup)
    paths = list(command_paths(top))
    assert ("principal", "token") in paths
    assert ("ingest",) in paths
    lines = [["--help"], ["--version"], *([*path, "--help"] for path in paths), ["status"], ["stream", "status"]]
    imported = json.loads(run(PROGRAM, json.dumps(lines), home=tmp_path))
    assert len(imported) == len(lines) + 1
    codes = {line: modules[0] for line, modules in imported.items() if line != "import"}
    assert {line for line, code in codes.items() if code != "0"} == {"status", "stream status"}
    assert (codes["status"], codes["stream status"]) == ("3", "3")
    heavy = {
        line: found
        for line, modules in imported.items()
        if (found := [name for name in modules if name.partition(".")[0] in HEAVY or name.startswith(OWN)])
    }
    assert heavy == {}


@pytest.mark.server
def test_a_command_without_a_stack_ends_before_it_imports_an_engine(tmp_path: Path) -> None:
    # By what they import: each line counts only what those before it did not.
    lines = [
        ["sql", "SELECT 1"],
        ["history", "bronze.products"],
        ["ingest", "a.csv", "--table", "bronze.products"],
        ["grants", "ratify"],
        ["sql", "SELECT 1", "--engine", "duckdb"],
    ]
    imported = json.loads(run(PROGRAM, json.dumps(lines), home=tmp_path))
    codes, heavy = dict[str, str](), dict[str, set[str]]()
    for line in map(" ".join, lines):
        codes[line], *modules = imported[line]
        heavy[line] = {name.partition(".")[0] for name in modules} & HEAVY
    assert set(codes.values()) == {"1"}
    # The resources are Dagster's.
    assert list(heavy.values()) == [{"dagster"}, set(), set(), {"databricks"}, {"duckdb"}]


def test_the_help_lists_every_command_once_and_the_common_ones_first() -> None:
    top = get_command(app)
    assert isinstance(top, TyperGroup)
    named = [name for commands in COMMANDS.values() for name in commands]
    assert sorted(named) == sorted(top.commands)
    assert len(named) == len(set(named))
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    positions = [shown.index(f"─ {panel} ─") for panel in COMMANDS]
    assert positions == sorted(positions)
    assert re.findall(r"^│ ([a-z]+) ", shown, re.M) == named
    assert all(command.help for command in top.commands.values())


def test_the_version_is_that_of_the_installed_distribution() -> None:
    answer = CliRunner().invoke(app, ["--version"])
    assert (answer.exit_code, answer.stdout) == (0, f"{DISTRIBUTION} {version(DISTRIBUTION)}\n")
    assert distribution_version() == version(DISTRIBUTION)


@pytest.mark.server
@pytest.mark.parametrize(
    ("words", "expected"),
    [("ratify st", {"status", "stream"}), ("ratify stream st", {"start", "status", "stop"})],
)
def test_a_shell_completes_commands(tmp_path: Path, words: str, expected: set[str]) -> None:
    program = "from ratify_lakehouse.cli.main import app; app(prog_name='ratify')"
    asked = {"_RATIFY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert set(run(program, home=tmp_path, **asked).split()) == expected


@pytest.mark.server
def test_completion_is_installed_for_bash(tmp_path: Path) -> None:
    program = "from ratify_lakehouse.cli.main import app; app(prog_name='ratify')"
    asked = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    run(program, "--install-completion", "bash", home=tmp_path, **asked)
    assert "_RATIFY_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "ratify.sh").read_text()
    assert ".bash_completions/ratify.sh" in (tmp_path / ".bashrc").read_text()
