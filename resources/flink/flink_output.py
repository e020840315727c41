"""What Flink's SQL client says of what it ran.

The client ends with 0 whatever becomes of its statements, and of a job that fails it tells only that the cluster is gone.
Which jobs there were, how they ended and of what is in the log of the cluster, which runs in the same process.
"""

import re
from dataclasses import dataclass, replace

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ENTRY = re.compile(r"^\d{4}-\d\d-\d\dT[\d:,.]+ +[A-Z]+ +\w+: ", re.MULTILINE)
_STATE = re.compile(r"Job (?P<name>.+) \((?P<id>[0-9a-f]{32})\) switched from state (?P<before>\w+) to (?P<now>\w+)\.")
_CHECKPOINT = re.compile(r"Completed checkpoint \d+ for job ([0-9a-f]{32})")
_ERROR = re.compile(r"\[ERROR\] [^\n]*Reason:\n(.*?)\s*(?=\n\s*Flink SQL>|\n\s*Shutting down the session|\Z)", re.DOTALL)
_CAUSE = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error|Failure)\w*(?:: .*)?)$", re.MULTILINE)
_SHORT = 600


@dataclass(frozen=True)
class FlinkJob:
    """A job that was started.

    Attributes:
        name: `schema.table` of its sink.
        status: FINISHED, FAILED, …: the state it was in last.
        checkpoints: How many were completed.
        restarts: How often it began again after a failure.
        error: What it failed of last, in Flink's words; empty where it never did.
    """

    name: str
    id: str
    status: str
    checkpoints: int
    restarts: int
    error: str = ""


@dataclass(frozen=True)
class FlinkRun:
    """What the client ran: its jobs, in order, and what it gave up on; empty where it did all."""

    jobs: tuple[FlinkJob, ...]
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether every statement was run and every job came to its end."""
        return not self.error and all(job.status == "FINISHED" for job in self.jobs)


def understood(said: str, log: str) -> FlinkRun:
    """Return what the client's output and its log tell; neither holds a secret any more."""
    jobs = dict[str, FlinkJob]()
    checkpoints = dict[str, int]()
    starts = [match.start() for match in _ENTRY.finditer(log)]
    for begin, end in zip(starts, [*starts[1:], len(log)], strict=False):
        entry = log[begin:end]
        if done := _CHECKPOINT.search(entry):
            checkpoints[done[1]] = checkpoints.get(done[1], 0) + 1
        elif state := _STATE.search(entry):
            before = jobs.get(state["id"])
            restarts = (before.restarts if before else 0) + (state["before"] == "RESTARTING")
            error = _root_cause(entry) or (before.error if before else "")
            jobs[state["id"]] = FlinkJob(state["name"], state["id"], state["now"], 0, restarts, error)
    found = [replace(job, checkpoints=checkpoints.get(job.id, 0)) for job in jobs.values()]
    error = _ERROR.search(_ANSI.sub("", said))
    return FlinkRun(tuple(found), _short(error[1]) if error else "")


def _root_cause(entry: str) -> str:
    causes = _CAUSE.findall(entry)
    return _short(causes[-1]) if causes else ""


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:_SHORT]
