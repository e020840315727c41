"""Flink's REST API: the jobs of a cluster, their checkpoints, and how they are stopped."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.engines.flink.flink_run import root_cause
from ratify_lakehouse.errors import FlinkFailed, FlinkUnavailable

_TIMEOUT_S = 10
_PAUSE_S = 0.3
_NOT_RUNNING = "Not all required tasks are currently running"
ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})
"""States that a job does not leave."""


@dataclass(frozen=True)
class JobState:
    """A job of a cluster.

    Attributes:
        started: Milliseconds since 1970.
        state: As Flink has it, such as RUNNING, RESTARTING or FAILED.
    """

    id: str
    name: str
    state: str
    started: int


@dataclass(frozen=True)
class JobNumbers:
    """What a job has done since it started: completed and failed checkpoints, and restarts after a failure."""

    checkpoints: int
    failed_checkpoints: int
    restarts: int


@dataclass(frozen=True)
class FlinkRest:
    """The API of the cluster at a URL; without it there is no answer, which is None."""

    url: str

    def job(self, name: str) -> JobState | None:
        """Return the newest job of a name; None where there is none, or where the cluster does not answer."""
        return max(self._jobs(name) or (), key=lambda job: job.started, default=None)

    def runs(self, name: str) -> bool:
        """Return whether a job of a name has not ended.

        Raises:
            FlinkUnavailable: the cluster does not answer, or not as Flink's REST API does.
        """
        jobs = self._jobs(name)
        if jobs is None:
            raise FlinkUnavailable(
                f"{self.url} does not answer, so it is unknown whether Flink's job {name} runs. Start the cluster, or "
                "unset FLINK_REST if it is gone for good."
            )
        return any(job.state not in ENDED for job in jobs)

    def _jobs(self, name: str) -> list[JobState] | None:
        """The jobs of a name; None where the cluster does not answer."""
        answer: dict[str, Any] | None = self._get("jobs/overview")
        if answer is None:
            return None
        jobs: list[dict[str, Any]] = answer["jobs"]
        return [JobState(job["jid"], job["name"], job["state"], job["start-time"]) for job in jobs if job["name"] == name]

    def numbers(self, job: str) -> JobNumbers | None:
        """Return what a job has done; None where the cluster does not answer."""
        counts, restarts = self._get(f"jobs/{job}/checkpoints"), self._get(f"jobs/{job}/metrics?get=numRestarts")
        if counts is None or restarts is None:
            return None
        counted = counts["counts"]
        return JobNumbers(counted["completed"], counted["failed"], next((int(float(each["value"])) for each in restarts), 0))

    def failure(self, job: str) -> str:
        """Return why a job failed last, in Flink's words; empty if it never did."""
        answer: dict[str, Any] = self._get(f"jobs/{job}/exceptions") or {"exceptionHistory": {"entries": []}}
        entries: list[dict[str, Any]] = answer["exceptionHistory"]["entries"]
        return root_cause(entries[0]["stacktrace"]) if entries else ""

    def stop(self, job: str, folder: str, ended: Callable[[], bool], seconds: float) -> None:
        """Stop a job with a savepoint in a folder, and wait until it is complete, or the cluster has ended.

        A job whose tasks do not all run yet, or do not run at the moment, cannot be stopped: it is asked again until then.

        Raises:
            FlinkFailed: the savepoint failed, so that the job goes on; or it took longer than `seconds`.
        """
        deadline, trigger = time.monotonic() + seconds, self._stop(job, folder)
        while trigger and not ended() and time.monotonic() < deadline:
            at = self._get(f"jobs/{job}/savepoints/{trigger}")
            if at is not None and at["status"]["id"] == "COMPLETED":
                cause = at["operation"].get("failure-cause")
                if not cause:
                    return
                if _NOT_RUNNING not in cause["stack-trace"]:
                    raise FlinkFailed(f"Flink's job could not be stopped: {root_cause(cause['stack-trace'])}")
                trigger = self._stop(job, folder)
            time.sleep(_PAUSE_S)
        if trigger and not ended():
            raise FlinkFailed(f"Flink's job did not stop within {seconds:.0f} s: see {self.url}.")

    def _stop(self, job: str, folder: str) -> str | None:
        answer = self._request("POST", f"jobs/{job}/stop", {"targetDirectory": folder, "drain": False})
        return answer["request-id"] if answer else None

    def _get(self, path: str) -> Any:
        return self._request("GET", path)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return an answer; None where the cluster does not answer, or does not know the job any more.

        Raises:
            FlinkUnavailable: the answer is no JSON, or a refusal.
        """
        import requests

        try:
            answer = requests.request(method, f"{self.url}/{path}", json=body, timeout=_TIMEOUT_S)
        except (requests.ConnectionError, requests.Timeout):
            return None
        if answer.status_code in {requests.codes.not_found, requests.codes.unavailable}:
            return None
        try:
            answer.raise_for_status()
            return answer.json()
        except (requests.HTTPError, ValueError) as error:
            raise FlinkUnavailable(f"{self.url} does not answer as Flink's REST API does: {error}") from error
