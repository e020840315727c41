"""A process that a test kills with -9, and starts again."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Killable:
    """A command, running in the repository, that appends its output to a log."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, env=self._environment, cwd=Path(__file__).parents[1], stdout=log, stderr=log
            )

    @property
    def output(self) -> str:
        """The end of what it wrote to its log."""
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        """Kill it with -9 and start it again."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()
