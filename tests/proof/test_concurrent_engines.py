"""Spark's stream, Spark's batches and DuckDB processes append to one table at the same time: every row once."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.declarations import Engine, TableDeclaration
from tests.engines.lakehouse import Lakehouse
from tests.proof.orders_appender import KEYS, orders_like, orders_select

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900
BATCH, STREAM = 100, 200
"""Which keys Spark's two writers have, as `appender.KEYS` counts."""


@dataclass
class Reported:
    """What a writer reported of its commits."""

    commits: int = 0
    rows: int = 0

    def add(self, rows: int) -> None:
        self.rows += rows
        self.commits += 1


class DuckDBWriter:
    """A process of its own."""

    def __init__(self, folder: Path, home: Path, table: TableDeclaration, number: int) -> None:
        self.name = f"duckdb-{number}"
        self._ledger, self._log = folder / f"{self.name}.ledger", folder / f"{self.name}.log"
        self._ledger.touch()
        task = {"table": table.name, "number": number, "stop": str(folder / "stop"), "ledger": str(self._ledger)}
        (folder / f"{self.name}.json").write_text(json.dumps(task))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.proof.orders_appender", str(folder / f"{self.name}.json")],
                env={**os.environ, "RATIFY_HOME": str(home)},
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    @property
    def reported(self) -> Reported:
        rows = [int(line) for line in self._ledger.read_text().split("\n")[:-1]]
        return Reported(len(rows), sum(rows))

    @property
    def output(self) -> str:
        return f"{self.name}: {self._log.read_text()[-2000:]}"


def spark_batches(lake: Lakehouse, table: TableDeclaration, over: threading.Event, reported: Reported) -> None:
    """Append 100 rows at a time by saveAsTable."""
    session = lake.spark.session
    while not over.is_set():
        source = f"range({reported.rows}, {reported.rows + 100})"
        session.sql(orders_select("spark-batch", BATCH * KEYS, 100, source)).write.mode("append").saveAsTable(
            lake.full(table)
        )
        reported.add(100)


def spark_stream(
    lake: Lakehouse, table: TableDeclaration, over: threading.Event, reported: Reported, checkpoint: Path
) -> None:
    """Append what the rate source gives, a commit a micro-batch."""
    session = lake.spark.session
    rate = session.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1).load()
    rate.createOrReplaceTempView("rate_of_orders")
    rows = session.sql(orders_select("spark-stream", STREAM * KEYS, 0, "(SELECT value AS id FROM rate_of_orders)"))
    query = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .toTable(lake.full(table))
    )
    seen = set[int]()
    try:
        while not over.wait(0.5):
            if error := query.exception():
                raise error
            for progress in query.recentProgress:
                # By attribute: by key the count of rows is None over Spark Connect.
                if progress.batchId not in seen and progress.numInputRows:
                    seen.add(progress.batchId)
                    reported.add(progress.numInputRows)
    finally:
        query.stop()


def race(lake: Lakehouse, folder: Path, home: Path, processes: int, commits_each: int) -> None:
    """Let all of them append until each has, and then until each has so many commits more; `processes`: of DuckDB."""
    table = orders_like(f"c_{uuid4().hex[:10]}")
    lake.spark.ensure_table(table)
    batch, stream, over = Reported(), Reported(), threading.Event()
    duckdbs = [DuckDBWriter(folder, home, table, number) for number in range(1, processes + 1)]
    with ThreadPoolExecutor(2) as threads:
        sparks = [
            threads.submit(spark_batches, lake, table, over, batch),
            threads.submit(spark_stream, lake, table, over, stream, folder / "checkpoint"),
        ]

        def commits() -> dict[str, int]:
            assert not any(spark.done() for spark in sparks), [spark.exception() for spark in sparks if spark.done()]
            assert not any(writer.process.poll() for writer in duckdbs), [writer.output for writer in duckdbs]
            reported = {writer.name: writer.reported.commits for writer in duckdbs}
            return reported | {"spark-batch": batch.commits, "spark-stream": stream.commits}

        def reached(least: Mapping[str, int]) -> dict[str, int]:
            deadline = time.monotonic() + PATIENCE_S
            while any((now := commits())[name] < count for name, count in least.items()):
                assert time.monotonic() < deadline, (now, least)
                time.sleep(0.2)
            return now

        try:
            began = reached(dict.fromkeys(commits(), 1))
            after = reached({name: count + commits_each for name, count in began.items()})
        finally:
            over.set()
            (folder / "stop").touch()
            for writer in duckdbs:
                writer.process.wait(PATIENCE_S)
    for spark in sparks:
        spark.result()
    assert [writer.process.returncode for writer in duckdbs] == [0] * processes, [writer.output for writer in duckdbs]
    history = lake.spark.history(lake.full(table))
    assert sorted(commit.version for commit in history) == list(range(len(history)))
    made = Counter(f"{commit.engine} {commit.operation}" for commit in history if commit.version)
    print(f"\ncommits: {', '.join(f'{what} {count} ({count / made.total():.0%})' for what, count in made.most_common())}")
    print(f"appends that writers saw committed: { {name: after[name] - began[name] for name in after} }")
    check_rows(lake, table, {writer.name: writer.reported for writer in duckdbs} | {"spark-batch": batch}, stream)
    assert made[f"{Engine.SPARK} WRITE"] == batch.commits
    assert made[f"{Engine.SPARK} STREAMING UPDATE"] >= stream.commits


def check_rows(lake: Lakehouse, table: TableDeclaration, reported: dict[str, Reported], stream: Reported) -> None:
    """Each writer's rows are those that it reported, once; a stream may be stopped before it reports its last batch."""
    query = (
        "SELECT o_clerk, count(*), count(DISTINCT o_orderkey), min(o_orderkey), max(o_orderkey), sum(o_totalprice), "
        "sum(CAST(o_custkey AS BIGINT)) FROM {} GROUP BY o_clerk ORDER BY o_clerk"
    )
    by_spark = [tuple(row.values()) for row in lake.run(query.format(lake.full(table)))]
    with lake.another_duckdb().session() as session:
        assert session.rows(query.format(f"uc.{table.layer}.{table.name}")) == by_spark
    found = {row[0]: row[1:] for row in by_spark}
    assert found["spark-stream"][0] >= stream.rows > 0
    wanted = {name: each.rows for name, each in reported.items()} | {"spark-stream": found["spark-stream"][0]}
    first = {name: int(name[-1]) for name in wanted if name.startswith("duckdb")} | {
        "spark-batch": BATCH,
        "spark-stream": STREAM,
    }
    assert found == {
        name: (
            rows,
            rows,
            first[name] * KEYS,
            first[name] * KEYS + rows - 1,
            sum(number % 1000 for number in range(rows)),
            sum(number % 1500 + 1 for number in range(rows)),
        )
        for name, rows in wanted.items()
    }


@pytest.mark.parametrize(
    ("processes", "commits_each"), [(2, 1), *(pytest.param(4, count, marks=pytest.mark.long) for count in (2, 30))]
)
def test_engines_side_by_side(lake: Lakehouse, tmp_path: Path, home: Path, processes: int, commits_each: int) -> None:
    race(lake, tmp_path, home, processes, commits_each)
