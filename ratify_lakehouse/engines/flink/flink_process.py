"""The command `ratify-flink` as a child process: secrets go to its input, statements through a pipe."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ratify_lakehouse.engines.flink.flink_run import FlinkRun, read_run
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable
from ratify_lakehouse.redaction import redacted
from ratify_lakehouse.settings import Settings

# How long ratify_lakehouse.embedded.parent_watch waits after SIGINT and SIGTERM before it kills, and a little more.
_GRACE_S = 20
_TAIL = 2000
# A job may log for months.
_LINES = 5000


@dataclass(frozen=True)
class FlinkCommand:
    """What the command is started with.

    Attributes:
        arguments: Its arguments; with statements, those after the file of the statements.
        sql: Statements of Flink's SQL client, each with a semicolon; None where the command runs none.
        given: Secrets for the first line of its input, by their names.
        secrets: Texts that must not appear in logs and errors, besides.
    """

    arguments: Sequence[str]
    sql: str | None = None
    given: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    secrets: Sequence[str] = ()

    def redacted(self, text: str) -> str:
        """Return a text without the secrets."""
        return redacted(text, self.all_secrets)

    @property
    def all_secrets(self) -> list[str]:
        """The secrets that are given, and the others."""
        return [*self.secrets, *(value for name, value in self.given.items() if value and name != "UNITY_CLIENT_ID")]


class FlinkProcess:
    """The command while it runs, and what it wrote."""

    def __init__(
        self, command: FlinkCommand, process: "subprocess.Popen[str]", folder: Path, output: "Written", log: "Written"
    ) -> None:
        self._command, self._process, self._folder = command, process, folder
        self._output, self._log = output, log

    @property
    def code(self) -> int | None:
        """Its exit code; None as long as it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, but no longer than so many seconds; return whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code is not None

    def redacted(self, text: str) -> str:
        """Return a text, such as one of the cluster, without secrets."""
        return self._command.redacted(text)

    @property
    def output(self) -> str:
        """The end of what it wrote to its output, without secrets; complete once it has ended."""
        return self._command.redacted("".join(self._output.lines(ended=self.code is not None)))

    @property
    def log(self) -> str:
        """The end of its log, without secrets; complete once it has ended."""
        return self._command.redacted("".join(self._log.lines(ended=self.code is not None)))

    def finished(self) -> FlinkRun:
        """Return the jobs that ran, when the command has ended.

        Raises:
            FlinkUnavailable: Flink is not installed, or no suitable Java was found.
            FlinkFailed: a statement or a job failed.
        """
        if self.code == os.EX_UNAVAILABLE:
            raise FlinkUnavailable(self.log.strip())
        run = read_run(self._folder / "archive", self.output, self._command.all_secrets)
        if failed := next((job for job in run.jobs if job.status != "FINISHED"), None):
            raise FlinkFailed(
                f"Flink's job into {failed.name} ended as {failed.status} after {failed.restarts} restarts: "
                f"{failed.error or run.error}"
            )
        if run.error:
            raise FlinkFailed(f"Flink could not run a statement: {run.error}")
        if self.code:
            raise FlinkFailed(f"Flink's SQL client ended with {self.code}: {(self.log or self.output).strip()[-_TAIL:]}")
        return run


class Written:
    """The last lines of a stream, which a thread reads until its end."""

    def __init__(self, threads: ThreadPoolExecutor, stream: Iterable[str] | None) -> None:
        self._lines = deque[str](maxlen=_LINES)
        self._reading = threads.submit(self._lines.extend, stream or ())

    def lines(self, *, ended: bool) -> list[str]:
        """Return them; all that there were, if the stream has ended."""
        if ended:
            self._reading.result()
        return list(self._lines)


@contextmanager
def running(command: FlinkCommand) -> Generator[FlinkProcess]:
    """Start the command; it ends with the block, or with this process.

    Raises:
        FlinkUnavailable: the command was not found.
    """
    settings = Settings()
    java = ["--java-home", str(settings.ratify_java_home)] if settings.ratify_java_home else []
    started = [_found(settings.flink_command), "--jars-dir", str(settings.jars), *java]
    with tempfile.TemporaryDirectory(prefix="ratify-flink-") as folder:
        pipe = None
        if command.sql is not None:
            os.mkfifo(pipe := Path(folder) / "job.sql", 0o600)
            started += ["run", str(pipe)]
        # In its own session, so that Ctrl-C in a terminal reaches this process only, which then ends it. Should this process
        # be killed, it ends with its standard input.
        with (
            ThreadPoolExecutor(3) as threads,
            subprocess.Popen(
                [*started, *command.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process,
        ):
            if process.stdin:
                # The first line of its input, which then stays open. No file and no list of processes has it.
                with suppress(BrokenPipeError):
                    process.stdin.write(f"{json.dumps(dict(command.given))}\n")
                    process.stdin.flush()
            fed = threads.submit(_feed, pipe, command.sql or "") if pipe else None
            written = (Written(threads, process.stdout), Written(threads, process.stderr))
            try:
                yield FlinkProcess(command, process, Path(folder), *written)
            finally:
                _stop(process)
                if pipe and fed:
                    _release(pipe, fed)


def _found(name: str) -> str:
    # Also finds a command that pip installed beside this Python when the environment is not activated.
    found = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    if not found:
        raise FlinkUnavailable(
            f"The command {name} was not found: pip install 'ratify-lakehouse[embedded,flink]' brings ratify-flink, or name "
            "another one in FLINK_COMMAND."
        )
    return found


def _feed(pipe: Path, sql: str) -> None:
    # A client that ends before it has read everything reports the reason itself.
    with suppress(BrokenPipeError):
        pipe.write_text(sql)


def _release(pipe: Path, fed: "Future[None]") -> None:
    """End the wait for a reader that will not come any more."""
    while not fed.done():
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        wait((fed,), timeout=0.01)


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
