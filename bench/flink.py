"""What a managed table costs Flink, against files that its own sink writes.

    python -m bench.flink [--rows 3000000] [--rounds 3] [--seconds 30]

Generated rows go into a managed table of the catalog by this project's sink, and into a folder by Flink's sink for files,
both as Parquet, at parallelism 1 with a checkpoint each second; sides take turns. A job's time is Flink's own, without the
start of its JVM. `flink-sql-parquet`, which Flink's sink needs, is downloaded once.

Prints the rows a second, and the ratio of the medians (aim: at least 0.8). Afterwards both sides must have all rows.
Then the latency of rows at 10,000 a second: of Flink alone and beside DuckDB writers, and of a stream of Spark, both with a
commit each second (bench/flink_latency.py).
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
from rich.table import Table

from bench.flink_latency import SETTINGS, latencies, target
from bench.ratios import console, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.embedded import jvm_jars
from ratify_lakehouse.embedded.java_runtime import choose_java
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_sql import FlinkTarget, Insert, job_text
from ratify_lakehouse.settings import Settings

_AIM = 0.8
_UNLIMITED = 100_000_000
_PARQUET = "org.apache.flink:flink-sql-parquet:2.3.0"
_COLUMNS = {
    "id": ("bigint", "seq"),
    "name": ("string", "CONCAT('customer ', CAST(seq AS STRING))"),
    "amount": ("decimal(12,2)", "MOD(seq, 1000)"),
    "placed": ("timestamp", "TO_TIMESTAMP_LTZ(1700000000000 + seq, 3)"),
    "region": ("int", "MOD(seq, 20)"),
}


def _table(number: int) -> TableDeclaration:
    columns = tuple(Column(name, kind) for name, (kind, _) in _COLUMNS.items())
    return TableDeclaration("bronze", f"flink_{number}", columns, "Generated rows", Engine.FLINK, frozenset({"WRITE"}))


def _seconds(stack: WarmStack, table: TableDeclaration, rows: int, target: FlinkTarget, *jars: Path) -> float:
    """Write rows, and return the seconds of the job."""
    columns = [expression for _, expression in _COLUMNS.values()]
    text = job_text(target, [Insert(table, table.name, rows, _UNLIMITED, columns)], SETTINGS)
    # A checkpoint of Flink's sequence has all numbers that are still to come: those of millions do not fit into it.
    sequence = f"'fields.seq.kind' = 'sequence', 'fields.seq.start' = '1', 'fields.seq.end' = '{rows}'"
    random = f"'number-of-rows' = '{rows}', 'fields.seq.min' = '1', 'fields.seq.max' = '{rows}'"
    if sequence not in text:
        raise SystemExit("the generator's options are others by now: change them here")
    text = text.replace(sequence, random)
    (job,) = Flink(catalog=stack.catalog).execute(text, connector=jars or None).jobs
    return job.seconds


def _by_sink(stack: WarmStack, number: int, rows: int) -> float:
    """Write into a new managed table, and return the seconds of the job."""
    table = _table(number)
    stack.spark.ensure_table(table)
    took = _seconds(stack, table, rows, target(stack))
    if (found := stack.spark.count(table, stack.catalog.version(stack.spark.full_name(table)))) != rows:
        raise SystemExit(f"{table.table_name} has {found:,} rows, so nothing is measured")
    return took


def _by_files(stack: WarmStack, number: int, rows: int, jars: Sequence[Path]) -> float:
    """Write into a new folder, and return the seconds of the job."""
    folder = stack.home / f"files_{number}"
    files = {"connector": "filesystem", "path": folder.as_uri(), "format": "parquet"}
    took = _seconds(stack, _table(number), rows, replace(target(stack), sink_options=lambda _: files), *jars)
    if (found := duckdb.sql(f"SELECT count(*) FROM read_parquet('{folder}/*')").fetchone()) != (rows,):
        raise SystemExit(f"{folder} has {found} rows, so nothing is measured")
    return took


def main() -> int:
    """Run the benchmark; return 1 if the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    given = parser.parse_args()
    java = choose_java(None, os.environ)
    parquet = jvm_jars.resolve(("flink-delta",), Settings().jars, java, console.print, extra=_PARQUET)
    jars = [*parquet, *sorted(jvm_jars.pyspark_jars().glob("hadoop-client-*.jar"))]
    seconds: dict[str, list[float]] = {"a managed table": [], "files": []}
    with warm_stack() as stack:
        for number in range(given.rounds):
            seconds["a managed table"].append(_by_sink(stack, number, given.rows))
            seconds["files"].append(_by_files(stack, number, given.rows, jars))
        alone, beside, spark = latencies(stack, given.seconds).values()
    rates = {name: given.rows / statistics.median(took) for name, took in seconds.items()}
    shown = Table("", "rows/s", title=f"{given.rows:,} rows")
    for name, rate in rates.items():
        shown.add_row(name, f"{rate:,.0f}")
    console.print(shown)
    ratio = rates["a managed table"] / rates["files"]
    ratios = [
        ("rows/s into a managed table, against into files", ratio, _AIM, True),
        ("p99 of commits beside DuckDB writers, against alone", beside.commits[2] / alone.commits[2], None, False),
        ("p95 of events, against Spark's stream", alone.events[1] / spark.events[1], None, False),
    ]
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
