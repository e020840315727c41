"""What Flink ran: its jobs by Flink's REST API, and a statement that failed by the output of the SQL client.

The API itself cannot be asked in time: the client starts a cluster for each job, whose web endpoint closes with the job.
But each cluster writes the API's answers about a job that ended into an archive before it ends itself
(`jobmanager.archive.fs.dir`, made for Flink's History Server).

The archive knows no statement that never became a job: of one that cannot be parsed or planned, only the client's output has
the error, while its exit code is 0.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratify_lakehouse.redaction import redacted

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"\[ERROR\] [^\n]*Reason:\n(.*?)\s*(?=\n\s*Flink SQL>|\n\s*Shutting down the session|\Z)", re.DOTALL)
_CAUSE = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error|Failure)\w*(?:: .*)?)$", re.MULTILINE)
_SHORT = 600


@dataclass(frozen=True)
class FlinkJob:
    """A job that ended.

    Attributes:
        name: `schema.table` of its sink.
        status: FINISHED, FAILED or CANCELED.
        checkpoints: Number of completed checkpoints.
        restarts: How often it restarted after a failure.
        error: The last failure, in Flink's words; empty if it never failed.
        seconds: How long it ran.
    """

    name: str
    id: str
    status: str
    checkpoints: int
    restarts: int
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class FlinkRun:
    """What the client ran: its jobs, in order, and the error of the statement that it stopped at; empty if it ran all."""

    jobs: tuple[FlinkJob, ...]
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether every statement ran and every job finished."""
        return not self.error and all(job.status == "FINISHED" for job in self.jobs)


def read_run(archive: Path, output: str, secrets: Sequence[str] = ()) -> FlinkRun:
    """Return the jobs in an archive and the error in the client's output, with `secrets` taken out of both."""
    jobs = list[tuple[int, FlinkJob]]()
    for path in archive.glob("**/jobs/*"):
        # A cluster that was killed leaves a cut file: its job did not end.
        with suppress(ValueError):
            entries = json.loads(path.read_text())["archive"]
            jobs.append(_job({entry["path"]: json.loads(entry["json"]) for entry in entries}, path.name, secrets))
    error = _ERROR.search(_ANSI.sub("", output))
    ordered = tuple(job for _, job in sorted(jobs, key=lambda started: started[0]))
    return FlinkRun(ordered, _short(redacted(error[1], secrets)) if error else "")


def _job(answers: Mapping[str, Any], id_: str, secrets: Sequence[str]) -> tuple[int, FlinkJob]:
    """Return when a job started, and the job, from the API's answers by their paths."""
    job = answers[f"/jobs/{id_}"]
    failures = answers[f"/jobs/{id_}/exceptions"]["exceptionHistory"]["entries"]
    # The newest is first. The one that a job ended by was not followed by a restart.
    restarts = len(failures) - (job["state"] == "FAILED")
    error = root_cause(redacted(failures[0]["stacktrace"], secrets)) if failures else ""
    completed = answers[f"/jobs/{id_}/checkpoints"]["counts"]["completed"]
    return job["start-time"], FlinkJob(job["name"], id_, job["state"], completed, restarts, error, job["duration"] / 1000)


def root_cause(stack_trace: str) -> str:
    """Return the innermost cause in a stack trace of Java, in one line; empty where none is found."""
    causes = _CAUSE.findall(stack_trace)
    return _short(causes[-1]) if causes else ""


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:_SHORT]
