"""Commands that somebody types in a project of DuckDB's tables: each in a process of its own, which is forked, not started.

Imports are what most of a command's start costs, and the definitions of a project are read once a process.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ratify_lakehouse.cli.new_command import create_project
from tests.cli.ratify_command import environment
from tests.embedded.catalog.harness import CatalogAddress
from tests.page_reader import assert_printed, following, merged

_PROGRAM = """
import json, os, sys
from typer.testing import CliRunner
import ratify_lakehouse.cli.table_run
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.definitions.project_tables import declared_tables

def answer(words):
    # Modules that are imported may have read declarations.
    declared_tables.cache_clear()
    done = CliRunner().invoke(app, words)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return [done.exit_code, done.stdout, done.stderr]

for line in sys.stdin:
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as pipe:
            json.dump(answer(json.loads(line)), pipe)
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
    """A project without Spark, on a running catalog; its commands are run within a `with` block."""

    def __init__(self, folder: Path, address: CatalogAddress) -> None:
        self.folder = create_project(folder, without_spark=True)
        self.landing = folder / ".ratify" / "landing"
        more = {"UNITY_HOST": address.url, "UNITY_TOKEN": address.token, "SPARK_REMOTE": "none"}
        path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
        self.environ = environment(folder / ".ratify", **more, PYTHONPATH=path)
        self._errors = folder / ".ratify" / "commands.log"

    def __enter__(self) -> Self:
        self._errors.parent.mkdir(exist_ok=True)
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                cwd=self.folder, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=60)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def run(self, line: str) -> Answer:
        """Run a command of `ratify`, or of another program of the environment."""
        line, _, into = line.partition(" > ")
        program, *words = shlex.split(line)
        name = program.removeprefix(".venv/bin/")
        answer = self._ratify(words) if name == "ratify" else self._other(name, words)
        if into:
            self.write(into.strip(), answer.out)
        return answer

    def follow(self, page: str, elsewhere: Collection[str] = ()) -> dict[str, Answer]:
        """Do what a page says; each of its commands succeeds. Return what they printed.

        Args:
            page: Its path.
            elsewhere: Commands of it that another test runs.
        """
        answers, last = dict[str, Answer](), Answer(0, "", "")
        for block in following(page):
            if block.kind == "text":
                assert_printed(block, last.out)
            elif path := block.file:
                whole = not path.endswith(".yaml") or "\ntype: " in f"\n{block.text}"
                self.write(path, block.text if whole else merged((self.folder / path).read_text(), block.text))
            for command in (each for each in block.commands if each not in elsewhere):
                last = answers[command] = self.run(command)
                assert last.code == 0, f"{page}: {command}\n{last.out}{last.err}"
        return answers

    def _ratify(self, words: list[str]) -> Answer:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(words), file=process.stdin, flush=True)
        for line in process.stdout:
            if line.startswith("ANSWER "):
                if found := json.loads(line.removeprefix("ANSWER ")):
                    return Answer(*found)
                break
        raise AssertionError(f"ratify {shlex.join(words)}: {self._errors.read_text()[-3000:]}")

    def _other(self, name: str, words: list[str]) -> Answer:
        program = [str(Path(sys.executable).with_name(name)), *words]
        done = subprocess.run(
            program, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=300, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)
