"""Commands that somebody types in a project of DuckDB's tables: each in a process of its own, which is forked, not started.

Imports are what most of a command's start costs, and the definitions of a project are read once a process.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratify_lakehouse.cli.new_command import create_project
from tests.cli.ratify_command import environment
from tests.embedded.catalog.harness import CatalogAddress

_PROGRAM = """
import json, os, sys
from typer.testing import CliRunner
import ratify_lakehouse.cli.table_run
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.definitions.project_tables import declared_tables

def answer(words, files):
    for name, text in files.items():
        with open(name, "w") as file:
            file.write(text)
    # Modules that are imported may have read declarations.
    declared_tables.cache_clear()
    done = CliRunner().invoke(app, words)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return [done.exit_code, done.stdout, done.stderr]

for words, files in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as pipe:
            json.dump(answer(words, files), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print("ANSWER", pipe.read() or "null", flush=True)
    os.wait()
"""


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class CommandProject:
    """A project without Spark, on a running catalog."""

    def __init__(self, folder: Path, address: CatalogAddress) -> None:
        self.folder = create_project(folder, without_spark=True)
        self.landing = folder / "landing"
        more = {"UNITY_HOST": address.url, "UNITY_TOKEN": address.token, "LANDING_URL": str(self.landing)}
        path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
        self.environ = environment(folder / ".ratify", **more, PYTHONPATH=path, SPARK_REMOTE="none")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def run(self, commands: Sequence[tuple[str, Mapping[str, str]]]) -> list[Answer]:
        """Run commands in their order, each after some files of the project were written."""
        given = json.dumps([[shlex.split(line)[1:], files] for line, files in commands])
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, given],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(line.removeprefix("ANSWER ")) for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        assert None not in found, done.stderr[-3000:]
        return [Answer(*each) for each in found]
