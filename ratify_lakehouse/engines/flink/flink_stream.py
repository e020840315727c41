"""A streaming job of Flink: started at the newest state of its table, watched by REST, and stopped with a savepoint.

By default the job has a cluster of its own in the process of Flink's client, which ends with this process. With FLINK_REST
it runs on that session cluster, where it also runs on if this process is killed: the next start stops it first.
"""

import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ratify_lakehouse.engines.flink.flink_process import FlinkCommand, FlinkProcess, running
from ratify_lakehouse.engines.flink.flink_rest import ENDED, FlinkRest, JobNumbers, JobState
from ratify_lakehouse.engines.flink.flink_state import SavedState
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable

_STARTED_S = 180.0
_STOPPED_S = 180.0
_PAUSE_S = 0.3


@dataclass(frozen=True)
class StreamSettings:
    """How a streaming job runs.

    Attributes:
        name: Of the job.
        folder: Of its checkpoints and savepoints; the cluster reaches it too.
        state: What it begins at.
        checkpoint_seconds: Time between two checkpoints, each a commit if it has rows.
        restarts: How often it restarts at its last checkpoint, after a failure.
        restart_seconds: Pause before that.
        parallelism: Tasks that run side by side.
        state_seconds: How long what the query keeps lives without being used; 0: for ever.
        session: URL of a session cluster; empty: the job has a cluster of its own.
        arguments: More of the command of Flink's client.
    """

    name: str
    folder: Path
    state: SavedState | None
    checkpoint_seconds: float
    restarts: int
    restart_seconds: float
    parallelism: int
    state_seconds: float
    session: str
    arguments: Sequence[str]

    @property
    def of_flink(self) -> dict[str, str]:
        """The settings of the job, as Flink has them."""
        found = {
            "pipeline.name": self.name,
            "execution.checkpointing.interval": milliseconds(self.checkpoint_seconds),
            "execution.checkpointing.dir": self.folder.as_uri(),
            # A job that is killed begins again at its last one.
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(self.restarts),
            "restart-strategy.fixed-delay.delay": milliseconds(self.restart_seconds),
            "parallelism.default": str(self.parallelism),
            "table.exec.state.ttl": milliseconds(self.state_seconds),
            # On a session cluster the client ends when the job has been sent.
            "table.dml-sync": str(not self.session).lower(),
        }
        if self.state:
            found |= {
                "execution.state-recovery.path": self.state.folder.as_uri(),
                # Flink deletes it, once it has newer ones.
                "execution.state-recovery.claim-mode": "CLAIM",
            }
        return found


@dataclass(frozen=True)
class RunningJob:
    """A job that runs."""

    rest: FlinkRest
    settings: StreamSettings
    process: FlinkProcess
    id: str

    def numbers(self) -> JobNumbers:
        """Return what it has done since it started.

        Raises:
            FlinkFailed: it has ended.
        """
        job = self.rest.job(self.settings.name)
        if self._ended or (job and job.state in ENDED):
            raise self._failure(job)
        return self.rest.numbers(self.id) or JobNumbers(0, 0, 0)

    def stop(self) -> None:
        """Stop it with a savepoint, and wait until all its rows are committed.

        Raises:
            FlinkFailed: it failed, or did not stop; the next job begins at its last checkpoint.
        """
        deadline = time.monotonic() + _STOPPED_S
        self.rest.stop(self.id, self.settings.folder.as_uri(), lambda: self._ended, _STOPPED_S)
        while not self._has_stopped():
            if time.monotonic() > deadline:
                raise FlinkFailed(
                    f"Flink's job {self.settings.name} did not end within {_STOPPED_S:.0f} s of its savepoint."
                )
            time.sleep(_PAUSE_S)

    @property
    def _ended(self) -> bool:
        # On a session cluster the client ends long before the job.
        return not self.settings.session and self.process.code is not None

    def _has_stopped(self) -> bool:
        if not self.settings.session:
            if self._ended:
                self.process.finished()
            return self._ended
        job = self.rest.job(self.settings.name)
        if job and job.state in ENDED - {"FINISHED"}:
            raise self._failure(job)
        return job is None or job.state == "FINISHED"

    def _failure(self, job: JobState | None) -> FlinkFailed:
        if self._ended:
            self.process.finished()
            return FlinkFailed(f"Flink's job into {self.settings.name} ended, though its topics have no end.")
        reason = self.process.redacted(self.rest.failure(self.id))
        return FlinkFailed(f"Flink's job into {self.settings.name} ended as {job.state if job else 'unknown'}: {reason}")


@contextmanager
def running_job(
    settings: StreamSettings, text: Callable[[Mapping[str, str]], str], given: Mapping[str, str | None], secrets: list[str]
) -> Generator[RunningJob]:
    """Start a job; when the block ends by an error, it is stopped as by a kill, and its last checkpoint stays.

    Args:
        settings: How it runs.
        text: Gives its statements, from the settings as Flink has them.
        given: Secrets for the client, by their names.
        secrets: Texts that must not appear in logs and errors, besides.

    Raises:
        FlinkUnavailable: Flink is not installed, or the session cluster does not answer.
        FlinkFailed: a statement or the job failed, or did not start in time.
    """
    if settings.session:
        rest, cluster = FlinkRest(settings.session), _remote(settings.session)
    else:
        port = str(_free_port())
        rest, cluster = FlinkRest(f"http://127.0.0.1:{port}"), {"rest.bind-port": port}
    before = rest.job(settings.name)
    command = FlinkCommand(["--kafka", *settings.arguments], text({**settings.of_flink, **cluster}), given, secrets)
    with running(command) as process:
        yield RunningJob(rest, settings, process, _started(rest, settings, process, before).id)


def _started(rest: FlinkRest, settings: StreamSettings, process: FlinkProcess, before: JobState | None) -> JobState:
    """Wait until the client's job is on the cluster, and return it."""
    deadline = time.monotonic() + _STARTED_S
    while time.monotonic() < deadline:
        ended = process.code is not None
        job = rest.job(settings.name)
        if job and (before is None or job.id != before.id) and job.state not in {"INITIALIZING", "CREATED"}:
            return job
        if ended:
            process.finished()
            if not settings.session:
                raise FlinkFailed(f"Flink's job into {settings.name} ended, though its topics have no end.")
        time.sleep(_PAUSE_S)
    raise FlinkFailed(f"Flink's job into {settings.name} did not start within {_STARTED_S:.0f} s: {process.log[-1000:]}")


def stop_left(session: str, name: str, folder: Path) -> bool:
    """Stop the job that an earlier process left on a session cluster, with a savepoint; return whether there was one.

    Raises:
        FlinkFailed: it did not stop.
    """
    rest = FlinkRest(session)
    job = rest.job(name)
    if job is None or job.state in ENDED:
        return False
    rest.stop(job.id, folder.as_uri(), lambda: False, _STOPPED_S)
    return True


def _remote(session: str) -> dict[str, str]:
    url = urlsplit(session)
    if url.scheme != "http" or not url.hostname:
        raise FlinkUnavailable(
            f"FLINK_REST is {session!r}, which is not a URL of a session cluster, such as http://flink:8081."
        )
    return {
        "execution.target": "remote",
        "rest.address": url.hostname,
        "rest.port": str(url.port or 8081),
    }


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def milliseconds(seconds: float) -> str:
    """Return a duration as Flink reads it."""
    return f"{seconds * 1000:.0f} ms"
