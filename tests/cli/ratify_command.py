"""The `ratify` command, as a process where a test is about the process, and else within the process of the test."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from ratify_lakehouse.cli.main import app

RATIFY = str(Path(sys.executable).with_name("ratify"))
# What another test, or the person who runs the tests, may have set. The cache of jars is for all.
OURS = ("UNITY_", "SPARK_REMOTE", "RATIFY_", "KAFKA_", "LANDING_URL", "DAGSTER_HOME", "PYTEST_ADDOPTS")


def is_ours(name: str) -> bool:
    """Return whether a variable is a setting that a test's process must not inherit."""
    return name.startswith(OURS) and name != "RATIFY_CACHE"


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a process whose home is `home`, with none of our settings but `more`."""
    others = {name: value for name, value in os.environ.items() if not is_ours(name)}
    return {**others, "RATIFY_HOME": str(home), "COLUMNS": "200", **more}


def ratify(home: Path, *arguments: str, timeout: float = 1500, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process: its start, its exit and what it leaves behind are part of the test."""
    return subprocess.run(
        [RATIFY, *arguments], env=environment(home, **more), capture_output=True, text=True, timeout=timeout, check=False
    )


def invoke(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command within this process, which saves the 3 to 5 s of CPU that a start costs."""
    unset = {name: None for name in os.environ if is_ours(name)}
    result = CliRunner().invoke(app, arguments, env={**unset, "RATIFY_HOME": str(home), "COLUMNS": "200", **more})
    if result.exception and not isinstance(result.exception, SystemExit):
        # A person would see a traceback.
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)
