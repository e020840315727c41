"""Flink's client as a process that a test may kill: `ratify-flink run`, with its folder and checkpoints at hand."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.flink.flink_run import FlinkJob, FlinkRun, read_run
from ratify_lakehouse.engines.flink.flink_sql import FlinkTarget, Insert, job_text, own_sink


@dataclass
class FlinkClient:
    """One JVM: the client, and a cluster for each of its jobs."""

    folder: Path
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, folder: Path, jars_dir: Path, sql: str, token: str, *more: str) -> "FlinkClient":
        """Run a text of SQL, with a token in the environment of the JVM, and with more arguments."""
        home = folder / f"run-{uuid4().hex[:8]}"
        home.mkdir(parents=True)
        (home / "job.sql").write_text(sql)
        launcher = Path(sys.executable).parent / "ratify-flink"
        command = [str(launcher), "--jars-dir", str(jars_dir), "run", str(home / "job.sql"), *more]
        with (home / "output").open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        assert process.stdin
        process.stdin.write(json.dumps({"UNITY_TOKEN": token}).encode() + b"\n")
        process.stdin.flush()
        return cls(home, process)

    def wait(self, seconds: float = 120) -> FlinkRun:
        """Wait for its end, and return its jobs."""
        try:
            self.process.wait(seconds)
        finally:
            self.stop()
        return read_run(self.folder / "archive", self.output())

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def kill(self) -> None:
        """End the JVM by SIGKILL."""
        jvms = [child for child in psutil.Process(self.process.pid).children(recursive=True) if child.name() == "java"]
        for jvm in jvms:
            jvm.kill()
        psutil.wait_procs(jvms, timeout=10)
        self.stop()

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def target(catalog: UnityCatalog, options: Mapping[str, Mapping[str, str]] | None = None) -> FlinkTarget:
    """The catalog, with more options of the sinks by their uids."""
    to = catalog.connection
    own = own_sink(to.name, "bronze", to.host)
    more = options or {}
    return FlinkTarget(
        own.catalog, own.database, own.catalog_options, lambda uid: {**own.sink_options(uid), **more.get(uid, {})}
    )


def jobs_text(to: FlinkTarget, inserts: Sequence[Insert], **settings: str) -> str:
    """The SQL of jobs that run at the same time; `execution__checkpointing__dir` is a setting with dots."""
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
    defaults = {
        "execution.checkpointing.interval": "500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "table.dml-sync": "false",
    }
    return job_text(to, inserts, defaults | given)


def waiting_for_the_last(sql: str) -> str:
    """The SQL whose client waits for its last job: the JVM ends soon after the client, whichever jobs still run."""
    before, insert_into, last = sql.rpartition("INSERT INTO")
    return f"{before}SET 'table.dml-sync' = 'true';\n{insert_into}{last}"


def insert(table: TableDeclaration, rows: int, columns: Sequence[str], rate: int = 1000) -> Insert:
    """Rows into a table, by a sink whose uid is the table's name."""
    return Insert(table, table.name, rows, rate, columns)


def by_table(run: FlinkRun) -> dict[str, FlinkJob]:
    return {job.name.partition(".")[2]: job for job in run.jobs}


def eventually(check: Callable[[], object], seconds: float = 300) -> None:
    """Wait until something is true, on cores that other tests keep busy."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)
