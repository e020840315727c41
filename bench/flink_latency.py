"""How long rows take from Flink into a governed table, alone and beside other writers, and by a stream of Spark."""

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import duckdb
from rich.table import Table

from bench.ratios import console
from bench.warm_stack import WarmStack
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_sql import FlinkTarget, Insert, job_text, own_sink

RATE = 10_000
WRITERS = 4
_PAUSE_S = 1.0
_WARM_S = 5
SETTINGS = {"execution.checkpointing.interval": "1 s", "parallelism.default": "1"}


@dataclass(frozen=True)
class WrittenLatency:
    """Of one side, in seconds.

    Attributes:
        events: From a row's own time to its commit: median, 95th and 99th percentile.
        commits: From the newest row of a commit to the commit: median, 95th and 99th percentile.
        first: From the start of the side's process, or query, to its first commit.
    """

    events: tuple[float, float, float]
    commits: tuple[float, float, float]
    first: float


def latencies(stack: WarmStack, seconds: int) -> dict[str, WrittenLatency]:
    """Measure each side for some seconds at `RATE` rows a second, and print it."""
    found = {
        "Flink": _by_flink(stack, "alone", seconds, writers=0),
        f"Flink, beside {WRITERS} DuckDB writers": _by_flink(stack, "beside", seconds, writers=WRITERS),
        "Spark's stream": _by_spark(stack, seconds),
    }
    columns = ["events p50", "p95", "p99", "commits p50", "p95", "p99", "to the first commit"]
    shown = Table("", *columns, title=f"{RATE:,} rows/s, a commit a second: latency in s", title_justify="left")
    for name, each in found.items():
        shown.add_row(name, *(f"{value:.2f}" for value in (*each.events, *each.commits, each.first)))
    console.print(shown)
    return found


def target(stack: WarmStack) -> FlinkTarget:
    """Return the stack's catalog, for tables of bronze."""
    return own_sink(stack.catalog.connection.name, "bronze", stack.catalog.connection.host)


def _table(name: str, writer: Engine) -> TableDeclaration:
    columns = (Column("id", "bigint"), Column("at", "timestamp"))
    return TableDeclaration("bronze", f"latency_{name}", columns, "Generated rows", writer, frozenset({"WRITE"}))


def _by_flink(stack: WarmStack, name: str, seconds: int, *, writers: int) -> WrittenLatency:
    table = _table(name, Engine.FLINK)
    stack.spark.ensure_table(table)
    rows = (seconds + _WARM_S) * RATE
    text = job_text(target(stack), [Insert(table, table.name, rows, RATE, ["seq", "CURRENT_ROW_TIMESTAMP()"])], SETTINGS)
    with ExitStack() as beside:
        for number in range(writers):
            beside.enter_context(closing(_Writer(stack, table, number)))
        began = time.time()
        Flink(catalog=stack.catalog).execute(text)
    return _latency(stack, table, "RatifySink", began)


def _by_spark(stack: WarmStack, seconds: int) -> WrittenLatency:
    table = _table("spark", Engine.SPARK)
    stack.spark.ensure_table(table)
    began = time.time()
    rows = stack.spark.session.readStream.format("rate").option("rowsPerSecond", RATE).load()
    query = (
        rows.selectExpr("value AS id", "timestamp AS at")
        .writeStream.trigger(processingTime="1 second")
        .option("checkpointLocation", (stack.home / "checkpoint").as_uri())
        .toTable(stack.spark.full_name(table))
    )
    query.awaitTermination(seconds + _WARM_S)
    query.stop()
    return _latency(stack, table, "Spark", began)


class _Writer:
    """A DuckDB writer that appends a row each second until it is closed."""

    def __init__(self, stack: WarmStack, table: TableDeclaration, number: int) -> None:
        self._over = threading.Event()
        self._work = threading.Thread(target=self._append, args=(stack, table, number))
        self._work.start()

    def _append(self, stack: WarmStack, table: TableDeclaration, number: int) -> None:
        with closing(DuckDB(catalog=stack.catalog, threads=1)) as engine:
            load = 0
            while not self._over.wait(_PAUSE_S):
                with engine.session() as session:
                    session.append(table, "SELECT -1::BIGINT AS id, now() AS at", [f"{number}-{load}"])
                load += 1

    def close(self) -> None:
        self._over.set()
        self._work.join()


def _latency(stack: WarmStack, table: TableDeclaration, engine: str, began: float) -> WrittenLatency:
    """Read the rows of an engine's commits, and when the catalog ratified them."""
    log = DeltaLog(stack.catalog, stack.spark.full_name(table), attempts=1, patience=0)
    location = unquote(urlsplit(stack.catalog.table(stack.spark.full_name(table)).storage_location or "").path)
    files, commits = list[tuple[str, int]](), list[int]()
    for version in range(1, log.refresh().version + 1):
        actions = log.actions(version)
        [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if engine in info["engineInfo"]:
            commits.append(info["inCommitTimestamp"])
            files += [(f"{location}/{unquote(action['add']['path'])}", commits[-1]) for action in actions if "add" in action]
    with duckdb.connect() as reader:
        reader.execute("CREATE TABLE files (filename VARCHAR, committed BIGINT)")
        reader.executemany("INSERT INTO files VALUES (?, ?)", files)
        warm = f"committed > {commits[0] + _WARM_S * 1000}"
        reader.execute(
            'CREATE TABLE late AS SELECT committed, (committed - epoch_ms("at")) / 1000 AS late '
            f"FROM read_parquet(?, filename = true) JOIN files USING (filename) WHERE {warm}",
            [[path for path, _ in files]],
        )

        def quantiles(relation: str) -> tuple[float, float, float]:
            found = reader.sql(f"SELECT quantile_cont(late, [0.5, 0.95, 0.99]) FROM {relation}").fetchone()
            if not found or not found[0]:
                raise SystemExit(f"{table.table_name} has no commit after {_WARM_S} s, so nothing is measured")
            return tuple(found[0])

        events, newest = quantiles("late"), quantiles("(SELECT min(late) AS late FROM late GROUP BY committed)")
    return WrittenLatency(events, newest, commits[0] / 1000 - began)
