"""The gain of small pages of memory, of which the embedded Spark takes some for each query.

    python -m bench.spark_pages [--rounds 5] [--tables 40]

The embedded server as it ships, against the same server with the pages that Spark chooses by itself from the size of
the heap (64 MB). Each has small Delta tables by path, whose logs it keeps in memory, and joins, aggregates and sorts the
rows of each with those of the next. The servers take turns, so that what disturbs a round disturbs both. Prints the
seconds of the queries and the server's CPU time, garbage collection included; the exit code is 1 where the pages gain
nothing.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
from rich.table import Table

from bench.ratios import UNCOUNTED, console, paired, timed, within_bounds
from ratify_lakehouse.embedded.child_process import Child, answers, free_port
from ratify_lakehouse.embedded.runtime_setup import Runtime, prepare
from ratify_lakehouse.embedded.spark_server import ENVIRON, SparkServer, command, spark_conf
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.settings import Settings

SETTING = "spark.buffer.pageSize"
OURS, SPARKS = "pages as shipped", "Spark's own pages"
QUERY = """
SELECT a.id % 100 AS k, count(*) AS n, max(b.id) AS most FROM delta.`{one}` a JOIN delta.`{other}` b ON a.id = b.id + 1
GROUP BY a.id % 100 ORDER BY most DESC, k
"""
ROWS = 1000
_START_S = 180


@dataclass(frozen=True)
class PagedServer:
    """A server of one side, a session with it, and the folder of its tables."""

    process: psutil.Process
    session: SparkSession
    folder: Path

    def create(self, tables: int) -> None:
        """Write the tables."""
        for number in range(tables):
            self.session.range(ROWS).write.format("delta").save(str(self.folder / str(number)))

    def run(self, tables: int) -> None:
        """Run a query for each table, and take its rows."""
        for number in range(tables):
            one, other = self.folder / str(number), self.folder / str((number + 1) % tables)
            self.session.sql(QUERY.format(one=one, other=other)).collect()

    def cpu(self) -> float:
        """Return the seconds of CPU time that the server has taken."""
        took = self.process.cpu_times()
        return took.user + took.system


@contextmanager
def paged_server(runtime: Runtime, home: Path, *, own_pages: bool) -> Generator[PagedServer]:
    """Start an embedded Spark without a catalog, with the setting as shipped or without it, and stop it after the block."""
    server = SparkServer(runtime.java, runtime.class_path, home, free_port(0, "Spark Connect server"))
    started = command(server)
    if not own_pages:
        arguments = Path(started[1].removeprefix("@"))
        line = f'"-D{SETTING}={spark_conf(server)[SETTING]}"\n'
        text = arguments.read_text()
        if line not in text:
            raise SystemExit(f"the server is not started with {SETTING}: nothing is compared")
        arguments.write_text(text.replace(line, ""))
    child = Child("the Spark Connect server", started, home / "logs" / "spark-jvm.log", environ=ENVIRON)
    try:
        child.wait_until(lambda: answers(server.port) or None, _START_S)
        session = cast("SparkSession", ConnectSession.builder.remote(server.remote).create())
        try:
            yield PagedServer(psutil.Process(child.pid), session, home / "tables")
        finally:
            session.stop()
    finally:
        child.stop()


def main() -> int:
    """Run both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tables", type=int, default=40)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {OURS: [], SPARKS: []}
    cpu: dict[str, list[float]] = {OURS: [], SPARKS: []}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratify-bench-")))
        runtime = prepare(StackConfig(home=home, jars_dir=Settings().jars), console.print)
        servers = {
            side: stack.enter_context(paged_server(runtime, home / folder, own_pages=side == OURS))
            for side, folder in ((OURS, "ours"), (SPARKS, "sparks"))
        }
        for server in servers.values():
            server.create(given.tables)
        for number in range(UNCOUNTED + given.rounds):
            for side in (OURS, SPARKS) if number % 2 else (SPARKS, OURS):
                before = servers[side].cpu()
                took = timed(partial(servers[side].run, given.tables))
                if number >= UNCOUNTED:
                    seconds[side].append(took)
                    cpu[side].append(servers[side].cpu() - before)
    title = f"{given.tables} queries over tables of {ROWS:,} rows, medians"
    shown = Table("", "s", "CPU s", title=title, title_justify="left")
    for side, times in seconds.items():
        shown.add_row(side, f"{statistics.median(times):.2f}", f"{statistics.median(cpu[side]):.2f}")
    console.print(shown)
    ratios = [
        (f"Time of the queries, with {SPARKS}, against ours", paired(seconds[SPARKS], seconds[OURS]), 1.0, True),
        (f"CPU time of the server, with {SPARKS}, against ours", paired(cpu[SPARKS], cpu[OURS]), None, True),
    ]
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
