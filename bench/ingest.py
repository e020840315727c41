"""What it costs to append landed files to one governed table, alone and with many writers at once.

    python -m bench.ingest [--files 160] [--rows 100] [--writers 1 2 4 8 16] [--big-mb 100] [--quick]

On the same CSV files, each measure on a table of its own, one file a commit where nothing else is said:

- ours: the package's writers in 1 to 16 processes, and one process with all files in one load batch;
- naive: 8 processes that insert from the file and, on any error, wait a moment and try again on a new connection;
- plain: DuckDB writing the files as Parquet, with no table at all;
- delta-rs: appends to a table by path, without a catalog, in 1 and 8 processes;
- Spark: appends file by file.

Prints files and rows a second, the time of one file, and the ratios that are aimed at; the exit code is 1 where one is
missed. Needs the embedded stack, which it starts.
"""

import argparse
import contextlib
import csv
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table

from assets.bronze.ingest import load_batch
from assets.bronze.sources import LANDED_FILES, LOAD_COLUMNS, Source
from embedded.stack import running
from embedded.state import StackConfig
from resources.catalog import UnityCatalog
from resources.duckdb import ALIAS, DuckDB
from resources.history import Engine
from resources.landing import LandedFile, LandingZone
from resources.settings import LAYERS, Settings
from resources.spark import Spark
from resources.sql import literal
from resources.tables import Column, TableDeclaration

HEADER = ("id", "name", "city", "amount", "at")
console = Console(width=120)


@dataclass(frozen=True)
class Measure:
    """One way of ingesting, over: `seconds` from the first file's begin to the last one's end, `each` of one file's."""

    name: str
    writers: int
    files: int
    rows: int
    seconds: float
    each: list[float] = field(default_factory=list[float])
    versions: int | None = None

    @property
    def files_per_second(self) -> float:
        return self.files / self.seconds

    def percentile(self, share: float) -> float:
        """A file's time in seconds that `share` of them did not exceed."""
        return sorted(self.each)[min(len(self.each) - 1, int(share * len(self.each)))] if self.each else 0.0


@dataclass(frozen=True)
class Job:
    """What a writing process is given."""

    table: str
    files: tuple[str, ...]
    landing: str


def source(table: str) -> Source:
    """The files of this benchmark, for one table of its own."""
    columns = (*(Column(name, "string") for name in HEADER), *LOAD_COLUMNS)
    declaration = TableDeclaration(
        layer="bronze",
        name=table,
        columns=columns,
        comment="bench",
        writer=Engine.DUCKDB,
        operations=frozenset({"WRITE"}),
    )
    return Source("*.csv", HEADER, declaration)


def make_files(folder: Path, count: int, rows: int) -> list[str]:
    """Files of `rows` records each, no two alike; returns their names."""
    folder.mkdir(parents=True)
    random.seed(1)
    names = [f"f{number:06d}.csv" for number in range(count)]
    for number, name in enumerate(names):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            for row in range(rows):
                writer.writerow([number * rows + row, f"name {row}", "New York", random.random() * 1000, "2013-01-01"])  # noqa: S311
    return names


def listed(landing: LandingZone, names: Sequence[str]) -> list[LandedFile]:
    """The files as the landing zone lists them."""
    wanted = set(names)
    return [file for file in landing.files("*.csv") if file.path in wanted]


def ours(job: Job, begin: Callable[[], None]) -> list[float]:
    """One process of ours, a file a load batch, as the bronze assets do it."""
    landing, catalog = LandingZone(url=job.landing), UnityCatalog()
    engine, kind = DuckDB(catalog=catalog, attempts=50, threads=1), source(job.table)
    files = listed(landing, job.files)
    with engine.session():
        begin()
    took = []
    for file in files:
        start = time.perf_counter()
        load_batch(engine, landing, kind, [file])
        took.append(time.perf_counter() - start)
    engine.close()
    return took


def naive(job: Job, begin: Callable[[], None]) -> list[float]:
    """What one writes first: insert from the file, and after any error wait a moment and do it again."""
    engine, kind = DuckDB(catalog=UnityCatalog(), threads=1), source(job.table)
    with engine.session():
        begin()
    took = []
    for name in job.files:
        start = time.perf_counter()
        path = literal(f"{job.landing}/{name}")
        select = f"SELECT *, {literal(name)}, 0::BIGINT, now(), 'naive' FROM read_csv({path}, all_varchar = true)"
        for attempt in range(1000):
            try:
                with engine.session() as session:
                    session.attach()
                    session.con.execute(f"INSERT INTO {ALIAS}.bronze.{kind.table.name} {select}")
                break
            except duckdb.Error:
                time.sleep(random.random() * min(1.0, 0.02 * 2 ** min(attempt, 6)))  # noqa: S311
        took.append(time.perf_counter() - start)
    engine.close()
    return took


def delta_rs(job: Job, begin: Callable[[], None]) -> list[float]:
    """Appends to a table by path: delta-rs, with DuckDB to read the file."""
    con = duckdb.connect()
    begin()
    took = []
    for name in job.files:
        start = time.perf_counter()
        rows = con.execute(f"FROM read_csv({literal(f'{job.landing}/{name}')}, all_varchar = true)").to_arrow_table()
        for _ in range(1000):
            with contextlib.suppress(Exception):
                write_deltalake(job.table, rows, mode="append")
                break
        took.append(time.perf_counter() - start)
    return took


def _process(work: Callable[..., list[float]], job: Job, barrier: Any, results: Any) -> None:
    begun = []

    def begin() -> None:
        barrier.wait()
        begun.append(time.time())

    each = work(job, begin)
    results.put((begun[0], time.time(), each))


def together(
    name: str, work: Callable[..., list[float]], table: str, landing: Path, names: list[str], writers: int, rows: int
) -> Measure:
    """Run `work` in several processes, each with its share of the files."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    jobs = [Job(table, tuple(names[number::writers]), str(landing)) for number in range(writers)]
    processes = [context.Process(target=_process, args=(work, job, barrier, results)) for job in jobs]
    for process in processes:
        process.start()
    told = [results.get(timeout=1800) for _ in processes]
    for process in processes:
        process.join()
    seconds = max(end for _, end, _ in told) - min(start for start, _, _ in told)
    each = [one for _, _, times in told for one in times]
    return Measure(name, writers, len(names), len(names) * rows, seconds, each)


def plain(folder: Path, landing: Path, names: Sequence[str], rows: int) -> Measure:
    """DuckDB writing each file as Parquet: reading and encoding, and nothing else."""
    con = duckdb.connect()
    each, start = list[float](), time.perf_counter()
    for name in names:
        one = time.perf_counter()
        select = f"FROM read_csv({literal(f'{landing}/{name}')}, all_varchar = true)"
        con.execute(f"COPY ({select}) TO {literal(str(folder / name))} (FORMAT parquet)")
        each.append(time.perf_counter() - one)
    return Measure("DuckDB to plain Parquet", 1, len(names), len(names) * rows, time.perf_counter() - start, each)


class Bench:
    """The running stack, and tables on it."""

    def __init__(self, landing: Path, names: list[str], rows: int) -> None:
        self._catalog = UnityCatalog()
        self._spark = Spark(catalog=self._catalog)
        self._landing, self._names, self._rows = landing, names, rows
        self._catalog.ensure_schemas(LAYERS)
        self._spark.ensure_table(LANDED_FILES)

    def close(self) -> None:
        """Let the stack stop."""
        self._spark.close()

    def table(self) -> str:
        """The name of a new table in bronze."""
        name = f"b_{uuid4().hex[:10]}"
        self._spark.ensure_table(source(name).table)
        return name

    def check(self, table: str, measure: Measure) -> Measure:
        """Every row is there, once; a measure of anything else would be worth nothing."""
        full_name = source(table).table.full_name(self._catalog.connection.name)
        there = self._spark.rows(self._spark.sql(f"SELECT count(*) AS n, count(DISTINCT id) AS d FROM {full_name}"))[0]
        if (there["n"], there["d"]) != (measure.rows, measure.rows):
            raise SystemExit(f"{measure.name}: {there['n']} rows ({there['d']} distinct) instead of {measure.rows}")
        return Measure(**{**vars(measure), "versions": self._catalog.version(full_name)})

    def writers(self, work: Callable[..., list[float]], count: int, names: list[str] | None = None) -> Measure:
        """`count` processes of `ours` or `naive`."""
        table = self.table()
        chosen = names or self._names
        return self.check(table, together(work.__name__, work, table, self._landing, chosen, count, self._rows))

    def one_batch(self, landing: Path, names: list[str], rows: int) -> Measure:
        """All files in one load batch, which is one commit."""
        table = self.table()
        zone, engine = LandingZone(url=str(landing)), DuckDB(catalog=self._catalog)
        files = listed(zone, names)
        start = time.perf_counter()
        load_batch(engine, zone, source(table), files)
        seconds = time.perf_counter() - start
        engine.close()
        return self.check(table, Measure("ours, one load batch", 1, len(names), len(names) * rows, seconds))

    def spark(self, names: list[str]) -> Measure:
        """Spark appending file by file, on its warm server."""
        table, session = self.table(), self._spark.session
        full_name = source(table).table.full_name(self._catalog.connection.name)
        schema = ", ".join(f"{name} STRING" for name in HEADER)
        each, start = list[float](), time.perf_counter()
        for name in names:
            one = time.perf_counter()
            frame = session.read.csv(str(self._landing / name), schema=schema, header=True)
            frame.selectExpr(
                "*", f"'{name}' AS _source_file", "0L AS _source_row", "now() AS _loaded_at", "'spark' AS _batch_id"
            ).writeTo(full_name).append()
            each.append(time.perf_counter() - one)
        seconds = time.perf_counter() - start
        return self.check(table, Measure("Spark", 1, len(names), len(names) * self._rows, seconds, each))


def show(measures: Sequence[Measure]) -> None:
    """Print what was measured."""
    table = Table(title="Ingesting the same files", title_justify="left", header_style="bold")
    for column in ("", "writers", "files", "files/s", "rows/s", "p50 ms", "p99 ms", "versions"):
        table.add_column(column, justify="left" if not column else "right")
    for one in measures:
        table.add_row(
            one.name,
            str(one.writers),
            f"{one.files:,}",
            f"{one.files_per_second:,.1f}",
            f"{one.rows / one.seconds:,.0f}",
            f"{one.percentile(0.5) * 1000:,.0f}" if one.each else "",
            f"{one.percentile(0.99) * 1000:,.0f}" if one.each else "",
            f"{one.versions:,}" if one.versions is not None else "",
        )
    console.print(table)


def judged(ratios: Sequence[tuple[str, float, float, bool]]) -> bool:
    """Print each ratio with its aim, and say whether all are met."""
    table = Table(title="Ratios", title_justify="left", header_style="bold")
    for column in ("", "ratio", "aim", ""):
        table.add_column(column)
    met = True
    for name, ratio, aim, at_least in ratios:
        good = ratio >= aim if at_least else ratio <= aim
        met = met and good
        table.add_row(name, f"{ratio:.2f}", f"{'≥' if at_least else '≤'} {aim:g}", "met" if good else "[red]missed[/red]")
    console.print(table)
    return met


def run(files: int, rows: int, writers: Sequence[int], big_mb: int) -> bool:
    """All measures on a stack that runs. True where every aim is met."""
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as folder:
        landing = Path(folder) / "landing"
        names = make_files(landing, files, rows)
        bench = Bench(landing, names, rows)
        try:
            alone = {count: bench.writers(ours, count) for count in writers}
            baseline = bench.writers(naive, 8, names[: max(8, files // 4)])
            grouped = bench.one_batch(landing, names, rows)
            (Path(folder) / "parquet").mkdir()
            bare = plain(Path(folder) / "parquet", landing, names, rows)
            deltas = [
                together("delta-rs, by path", delta_rs, f"{folder}/delta{count}", landing, names, count, rows)
                for count in (1, 8)
            ]
            spark = bench.spark(names[: max(8, files // 8)])
            big = Path(folder) / "big"
            big_rows = big_mb * 20_000
            big_names = make_files(big, 1, big_rows)
            big_ours = bench.one_batch(big, big_names, big_rows)
            big_bare = plain(Path(folder) / "parquet", big, big_names, big_rows)
        finally:
            bench.close()
    show([*alone.values(), baseline, grouped, bare, *deltas, spark, big_ours, big_bare])
    one, eight = alone[1], alone[8]
    return judged(
        [
            ("8 writers against one: files/s", eight.files_per_second / one.files_per_second, 1.0, True),
            ("8 writers against 8 naive ones: files/s", eight.files_per_second / baseline.files_per_second, 5.0, True),
            ("8 writers: p99 against p50", eight.percentile(0.99) / eight.percentile(0.5), 10.0, False),
            (
                "one load batch against one file a commit: files/s",
                grouped.files_per_second / one.files_per_second,
                5.0,
                True,
            ),
            ("a big file against plain Parquet: rows/s", big_bare.seconds / big_ours.seconds, 0.7, True),
            ("8 writers against 8 of delta-rs: files/s", eight.files_per_second / deltas[1].files_per_second, 1.0, True),
        ]
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=160)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--big-mb", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="few files, to see that it runs")
    asked = parser.parse_args()
    if asked.quick:
        asked.files, asked.writers, asked.big_mb = 24, [1, 8], 2
    jars = Settings().home / "jars"
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
            return 0 if run(asked.files, asked.rows, asked.writers, asked.big_mb) else 1


if __name__ == "__main__":
    sys.exit(main())
