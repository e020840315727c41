"""`ratify prove` as a process, and what it prints of each step."""

import subprocess
import time
from pathlib import Path
from typing import Self

from tests.cli.ratify_command import RATIFY, environment, ratify

PATIENCE_S = 1800
"""Seconds that two busy cores may take."""


def prove(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the proof."""
    return ratify(home, "prove", *arguments, timeout=PATIENCE_S, **more)


class RunningProof:
    """The proof while it runs; it is killed where the block ends before it."""

    def __init__(self, home: Path, folder: Path, *arguments: str, **more: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("w") as out, self._err.open("w") as err:
            command = [RATIFY, "prove", *arguments]
            self._process = subprocess.Popen(command, stdout=out, stderr=err, env=environment(home, **more))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def await_(self, line: str | None) -> None:
        """Wait until it has reported a step, or has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None and (line is None or line not in self._err.read_text().splitlines()):
            assert time.monotonic() < deadline, self._err.read_text()
            time.sleep(0.2)
        assert line is None or line in self._err.read_text().splitlines(), self._out.read_text() + self._err.read_text()

    def ended(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end, and return what it printed."""
        self.await_(None)
        return subprocess.CompletedProcess([], self._process.returncode, self._out.read_text(), self._err.read_text())


def fates(printed: str) -> dict[str, str]:
    """Return the result of each step, from the table that is printed."""
    steps, _, _ = printed.partition("Commits by engine")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in steps.splitlines()]
    return {cells[0].replace(" ", "_"): cells[1] for cells in lines if len(cells) == 4 and cells[0]}
