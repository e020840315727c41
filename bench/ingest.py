"""What it costs to append landed files to one governed table, alone and with many writers at once.

    python -m bench.ingest [--files 160] [--rows 100] [--writers 1 2 4 8 16] [--big-mb 100] [--growth] [--quick]

On the same CSV files, each measure on a table of its own, one file a commit where nothing else is said:

- ours: the package's writers in 1 to 16 processes of one machine, in 8 processes that know nothing of each other, as on 8
  machines, and one process with all files in one load batch;
- naive: 8 processes that insert from the file and, on any error, wait a moment and try again on a new connection;
- plain: DuckDB writing the files as Parquet, with no table at all;
- delta-rs: appends to a table by path, without a catalog, in 1 and 8 processes;
- Spark: appends file by file.

Prints commits (of a writer's files; those that share a version are one each) and rows a second, the time of one file, how
often a commit was tried, and the ratios that are aimed at; the exit code is 1 where one is missed. `--growth` measures
instead what 10,000 files cost against 1,000, and the 2,000th commit against the first. Needs the embedded stack, which it
starts.
"""

import argparse
import contextlib
import csv
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psutil
from deltalake import write_deltalake
from rich.table import Table

from bench.ratios import console, within_bounds
from embedded.embedded_stack import running
from embedded.stack_state import StackConfig
from ingest.file_source import LOAD_COLUMNS, Source
from ingest.ledger.file_ledger import LANDED_FILES
from ingest.load.batch_loading import load_batch
from resources.catalog.unity_catalog import UnityCatalog
from resources.declarations import Column, Engine, TableDeclaration
from resources.duckdb.duckdb_engine import ALIAS, DuckDB
from resources.landing.landing_zone import LandedFile, LandingZone
from resources.settings import LAYERS, Settings
from resources.spark.spark_engine import Spark
from resources.sql.duckdb_sql import literal

HEADER = ("id", "name", "city", "amount", "at")


@dataclass(frozen=True)
class Measure:
    """One way of ingesting, over: `seconds` from the first file's begin to the last one's end, `each` of one file's."""

    name: str
    writers: int
    files: int
    rows: int
    seconds: float
    each: list[float] = field(default_factory=list[float])
    attempts: list[int] = field(default_factory=list[int])
    memory: list[int] = field(default_factory=list[int])
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
    home: str = ""


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


Told = list[tuple[float, int, int]]
"""Of each file: its time in seconds, how often its commit was tried, and the bytes of memory that its writer then had."""


def told(start: float, tried: int) -> tuple[float, int, int]:
    """What is told of a file that is done, and was begun at `start` (`perf_counter`)."""
    return time.perf_counter() - start, tried, psutil.Process().memory_info().rss


def ours(job: Job, begin: Callable[[], None]) -> Told:
    """One process of ours, a file a load batch, as the bronze assets do it."""
    if job.home:
        at = Settings().catalog_connection()
        token = at.token.get_secret_value() if at.token else ""
        # A machine that ingests has the extensions installed, as the image of a function has them baked in.
        extensions = str(Settings().duckdb_extensions)
        os.environ |= {"RATIFY_HOME": job.home, "UNITY_HOST": at.host, "UNITY_TOKEN": token}
        os.environ["RATIFY_DUCKDB_EXTENSIONS"] = extensions
    landing, catalog = LandingZone(url=job.landing), UnityCatalog()
    engine, kind = DuckDB(catalog=catalog, attempts=50, threads=1), source(job.table)
    files = listed(landing, job.files)
    with engine.session():
        begin()
    took = Told()
    for file in files:
        start = time.perf_counter()
        (loaded,) = load_batch(engine, landing, kind, [file]).files
        took.append(told(start, loaded.attempts))
    engine.close()
    return took


def naive(job: Job, begin: Callable[[], None]) -> Told:
    """What one writes first: insert from the file, and after any error wait a moment and do it again."""
    engine, kind = DuckDB(catalog=UnityCatalog(), threads=1), source(job.table)
    with engine.session():
        begin()
    took = Told()
    for name in job.files:
        start = time.perf_counter()
        path = literal(f"{job.landing}/{name}")
        select = f"SELECT *, {literal(name)}, 0::BIGINT, now(), 'naive' FROM read_csv({path}, all_varchar = true)"
        attempt = 0
        for attempt in range(1000):
            try:
                with engine.session() as session:
                    session.attach()
                    session.con.execute(f"INSERT INTO {ALIAS}.bronze.{kind.table.name} {select}")
                break
            except duckdb.Error:
                time.sleep(random.random() * min(1.0, 0.02 * 2 ** min(attempt, 6)))  # noqa: S311
        took.append(told(start, attempt + 1))
    engine.close()
    return took


def delta_rs(job: Job, begin: Callable[[], None]) -> Told:
    """Appends to a table by path: delta-rs, with DuckDB to read the file."""
    con = duckdb.connect()
    begin()
    took = Told()
    for name in job.files:
        start = time.perf_counter()
        rows = con.execute(f"FROM read_csv({literal(f'{job.landing}/{name}')}, all_varchar = true)").to_arrow_table()
        tried = 0
        for _ in range(1000):
            tried += 1
            with contextlib.suppress(Exception):
                write_deltalake(job.table, rows, mode="append")
                break
        took.append(told(start, tried))
    return took


def _process(work: Callable[..., Told], job: Job, barrier: Any, results: Any) -> None:
    begun = []

    def begin() -> None:
        barrier.wait()
        begun.append(time.time())

    try:
        each = work(job, begin)
    except BaseException as error:
        results.put(error)
        raise
    results.put((begun[0], time.time(), each))


def together(
    name: str,
    work: Callable[..., Told],
    table: str,
    landing: Path,
    names: list[str],
    writers: int,
    rows: int,
    homes: Sequence[str] = (),
) -> Measure:
    """Run `work` in several processes, each with its share of the files."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    jobs = [
        Job(table, tuple(names[number::writers]), str(landing), homes[number] if homes else "") for number in range(writers)
    ]
    processes = [context.Process(target=_process, args=(work, job, barrier, results)) for job in jobs]
    for process in processes:
        process.start()
    answers = [results.get(timeout=1800) for _ in processes]
    for process in processes:
        process.join()
    if failed := [one for one in answers if isinstance(one, BaseException)]:
        raise SystemExit(f"{name}: {len(failed)} of {writers} writers failed: {failed[0]}")
    seconds = max(end for _, end, _ in answers) - min(start for start, _, _ in answers)
    each = [file for _, _, files in answers for file in files]
    times, attempts, memory = (list(column) for column in zip(*each, strict=True))
    return Measure(name, writers, len(names), len(names) * rows, seconds, times, attempts, memory)


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


class IngestBench:
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

    def writers(
        self,
        work: Callable[..., Told],
        count: int,
        landing: Path | None = None,
        names: list[str] | None = None,
        rows: int = 0,
    ) -> Measure:
        """`count` processes of `ours` or `naive`; `landing`, `names` and `rows` where not all of this bench's files."""
        table, chosen = self.table(), names or self._names
        made = together(work.__name__, work, table, landing or self._landing, chosen, count, rows or self._rows)
        return self.check(table, made)

    def machines(self, count: int, folder: Path) -> Measure:
        """`count` processes of `ours`, each with a home of its own, so that only the catalog is between them."""
        table = self.table()
        homes = [str(folder / f"home{number}") for number in range(count)]
        name = "ours, a machine each"
        return self.check(table, together(name, ours, table, self._landing, self._names, count, self._rows, homes))

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
    for column in ("", "writers", "files", "commits/s", "rows/s", "p50 ms", "p99 ms", "tried", "versions"):
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
            f"{sum(one.attempts) / len(one.attempts):.1f}" if one.attempts else "",
            f"{one.versions:,}" if one.versions is not None else "",
        )
    console.print(table)


def run(files: int, rows: int, writers: Sequence[int], big_mb: int) -> bool:
    """All measures on a stack that runs. True where every aim is met."""
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as folder:
        landing = Path(folder) / "landing"
        names = make_files(landing, files, rows)
        bench = IngestBench(landing, names, rows)
        try:
            alone = {count: bench.writers(ours, count) for count in writers}
            apart = bench.machines(8, Path(folder))
            baseline = bench.writers(naive, 8, names=names[: max(8, files // 4)])
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
    show([*alone.values(), apart, baseline, grouped, bare, *deltas, spark, big_ours, big_bare])
    one, eight = alone[1], alone[8]
    return within_bounds(
        [
            ("8 writers against one: commits/s", eight.files_per_second / one.files_per_second, 1.0, True),
            ("8 writers against 8 naive ones: commits/s", eight.files_per_second / baseline.files_per_second, 5.0, True),
            ("8 writers: p99 against p50", eight.percentile(0.99) / eight.percentile(0.5), 10.0, False),
            ("8 machines against one writer: commits/s", apart.files_per_second / one.files_per_second, 1.0, True),
            ("8 machines against 8 naive writers: commits/s", apart.files_per_second / baseline.files_per_second, 5.0, True),
            ("8 machines: p99 against p50", apart.percentile(0.99) / apart.percentile(0.5), 10.0, False),
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


def grow(small: int, commits: int) -> bool:
    """What growth costs: ten times the files in load batches, and commit after commit. True where every aim is met."""
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as folder:
        bench = IngestBench(Path(folder), [], 10)
        try:
            few, many = (_batches(bench, Path(folder) / f"landing{count}", count) for count in (small, 10 * small))
            landing = Path(folder) / "commits"
            one = bench.writers(ours, 1, landing, make_files(landing, commits, 10), 10)
        finally:
            bench.close()
    part = max(10, commits // 20)
    first, last = (statistics.median(times) for times in (one.each[:part], one.each[-part:]))
    console.print(f"{small:,} files took {few:.1f} s, {10 * small:,} took {many:.1f} s")
    console.print(f"a commit took {first * 1000:.1f} ms (p50 of the first {part}), {last * 1000:.1f} ms after {commits:,}")
    return within_bounds(
        [
            ("ten times the files: time", many / few, 11.0, False),
            (f"a commit after {commits:,} against the first {part}: p50", last / first, 1.2, False),
            (f"memory after {commits:,} commits against after {part}", one.memory[-1] / one.memory[part - 1], 1.2, False),
        ]
    )


def _batches(bench: IngestBench, landing: Path, count: int) -> float:
    """Seconds that small files take in load batches of 100."""
    names = make_files(landing, count, 10)
    zone, table, engine = LandingZone(url=str(landing)), bench.table(), DuckDB(catalog=UnityCatalog())
    files = listed(zone, names)
    start = time.perf_counter()
    for first in range(0, count, 100):
        load_batch(engine, zone, source(table), files[first : first + 100])
    seconds = time.perf_counter() - start
    engine.close()
    bench.check(table, Measure("batches", 1, count, count * 10, seconds))
    return seconds


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=160)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--big-mb", type=int, default=100)
    parser.add_argument("--growth", action="store_true", help="what 10,000 files and 2,000 commits cost, instead")
    parser.add_argument("--quick", action="store_true", help="few files, to see that it runs")
    asked = parser.parse_args()
    if asked.quick:
        asked.files, asked.writers, asked.big_mb = 24, [1, 8], 2
    jars = Settings().home / "jars"
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
            if asked.growth:
                return 0 if grow(*((100, 100) if asked.quick else (1000, 2000))) else 1
            return 0 if run(asked.files, asked.rows, asked.writers, asked.big_mb) else 1


if __name__ == "__main__":
    sys.exit(main())
