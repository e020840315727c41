"""A running `ratify dev`, asked by GraphQL as its own pages ask it."""

import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

PATIENCE_S = 1200
"""A start of everything, and runs that meet a cold JVM, on cores that other tests have just left."""

_ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
_JOBS = "{runsOrError(limit: 100) {... on Runs {results {runId jobName}}}}"


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Dev:
    """The command as a process, with all that it starts; its output goes to `log`.

    Args:
        command: Without the port.
        environ: Of the process, all of it.
        log: A file.
        port: The option by which the command gets its port.
        cwd: Where it runs.
    """

    def __init__(
        self, command: list[str], environ: Mapping[str, str], log: Path, port: str = "--port={}", cwd: Path | None = None
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        # A run that has ended is asked once: its events are many, and `await_` asks each second.
        self._made = dict[str, set[tuple[str, str | None]]]()
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, port.format(self.port)], env=dict(environ), stdout=out, stderr=out, cwd=cwd
            )

    def stop(self) -> None:
        """End it as Ctrl-C in a terminal does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(90)

    def family(self) -> list[psutil.Process]:
        """Return every process that it has started, and that these have."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def ask(self, query: str) -> dict[str, Any]:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"content-type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)["data"]

    def runs(self, *, scheduled: bool = False) -> dict[str, str]:
        """Return the status of each run, with those that a schedule has started meanwhile only if they are asked for."""
        found = self.ask("{runsOrError(limit: 100) {... on Runs {results {runId status tags {key}}}}}")["runsOrError"][
            "results"
        ]
        return {
            run["runId"]: run["status"]
            for run in found
            if scheduled or all(tag["key"] != "dagster/schedule_name" for tag in run["tags"])
        }

    def jobs(self) -> dict[str, str]:
        """Return the job of each run."""
        return {run["runId"]: run["jobName"] for run in self.ask(_JOBS)["runsOrError"]["results"]}

    def errors(self, but: Collection[str] = ()) -> list[str]:
        """Return what the runs said that did not succeed, but for those of `but`."""
        said = list[str]()
        for run, status in self.runs().items():
            if status != "SUCCESS" and run not in but:
                answer = self.ask(
                    f"{{runOrError(runId: {json.dumps(run)}) {{... on Run {{jobName assetSelection {{path}} "
                    "eventConnection(limit: 5000) {events {... on MessageEvent {message stepKey} ... on ErrorEvent "
                    "{error {message causes {message}}}}}}}}"
                )["runOrError"]
                failed = [event for event in answer["eventConnection"]["events"] if event.get("error")]
                said.append(f"{run} {status} {answer['jobName']} {answer['assetSelection']}: {failed}")
        return said

    def materialized(self) -> int:
        """Return how many assets have been materialized."""
        nodes = self.ask("{assetNodes {assetMaterializations(limit: 1) {timestamp}}}")["assetNodes"]
        return sum(bool(node["assetMaterializations"]) for node in nodes)

    def made(self, run: str) -> set[tuple[str, str | None]]:
        """Return the tables that a run materialized, each with its partition."""
        events = self.ask(
            f"{{runOrError(runId: {json.dumps(run)}) {{... on Run {{eventConnection(limit: 5000) {{events "
            "{... on MaterializationEvent {partition assetKey {path}}}}}}}"
        )["runOrError"]["eventConnection"]["events"]
        return {("/".join(each["assetKey"]["path"][1:]), each["partition"]) for each in events if each}

    def made_since(self, before: Collection[str], *, scheduled: bool = False) -> set[tuple[str, str | None]]:
        """Return what the runs have materialized that have ended and are not among those; `scheduled` as `runs` has it."""
        ended = [run for run, status in self.runs(scheduled=scheduled).items() if status in _ENDED and run not in before]
        self._made |= {run: self.made(run) for run in ended if run not in self._made}
        return {each for run in ended for each in self._made[run]}

    def rows(self, table: str) -> int | None:
        """Return the rows of a table (schema/name) that its page shows; None before it was materialized."""
        entries = "metadataEntries {label ... on IntMetadataEntry {intValue}}"
        nodes = self.ask(f"{{assetNodes {{assetKey {{path}} assetMaterializations(limit: 1) {{{entries}}}}}}}")["assetNodes"]
        (made,) = [node["assetMaterializations"] for node in nodes if "/".join(node["assetKey"]["path"][1:]) == table]
        counts = [e["intValue"] for each in made for e in each["metadataEntries"] if e["label"] == "dagster/row_count"]
        return counts[0] if counts else None

    def unchecked(self) -> list[str]:
        """Return the checks that never ran of tables of silver and gold that are there."""
        nodes = self.ask(
            "{assetNodes {assetKey {path} assetMaterializations(limit: 1) {timestamp} "
            "assetChecksOrError {... on AssetChecks {checks {name}}}}}"
        )["assetNodes"]
        never = list[str]()
        for node in nodes:
            path = node["assetKey"]["path"]
            if node["assetMaterializations"] and path[1] in {"silver", "gold"}:
                for check in node["assetChecksOrError"]["checks"]:
                    which = f"assetKey: {{path: {json.dumps(path)}}}, checkName: {json.dumps(check['name'])}, limit: 1"
                    if not self.ask(f"{{assetCheckExecutions({which}) {{status}}}}")["assetCheckExecutions"]:
                        never.append(f"{'/'.join(path)}: {check['name']}")
        return never

    def await_(self, what: str, done: Callable[[], Any]) -> None:
        """Wait until `done` says so; it may fail to reach a server that is still starting."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"ratify dev ended: {self.log.read_text()}"
            try:
                if done():
                    return
            except OSError:
                pass
            time.sleep(1)
        pytest.fail(f"{what} did not happen within {PATIENCE_S} s; runs: {self.runs()}; {self.log.read_text()[-2000:]}")

    def idle(self) -> bool:
        """Return whether no run is in progress."""
        return all(status in _ENDED for status in self.runs(scheduled=True).values())
