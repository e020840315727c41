"""The writers that `bench.ingest` compares, each in processes of its own, and what is measured of them."""

import contextlib
import csv
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil
from deltalake import write_deltalake

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDB
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS, Source
from ratify_lakehouse.ingest.ledger.ledger_access import copy_commits
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandedFile, LandingZone
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import literal

HEADER = ("id", "name", "city", "amount", "at")


@dataclass(frozen=True)
class IngestMeasure:
    """One way of ingesting: `seconds` from the start of the first file to the end of the last, `each` of one file."""

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
class WriterJob:
    """What one writing process does."""

    table: str
    files: tuple[str, ...]
    landing: str
    home: str = ""


def source(table: str) -> Source:
    """Return the source of this benchmark's files, with a table of its own."""
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
    """Write files of `rows` records each, no two of them equal, and return their names."""
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
    """Return the files as the landing zone lists them."""
    wanted = set(names)
    return [file for file in landing.files("*.csv") if file.path in wanted]


FileTimes = list[tuple[float, int, int]]
"""Of each file: its time in seconds, the attempts of its commit, and the bytes of memory of its writer at its end."""


def file_time(start: float, attempts: int) -> tuple[float, int, int]:
    """Return the entry of a file that started at `start` (`perf_counter`) and is done now."""
    return time.perf_counter() - start, attempts, psutil.Process().memory_info().rss


def ours(job: WriterJob, begin: Callable[[], None]) -> FileTimes:
    """One of our processes, with one file a load batch, as the bronze assets load them."""
    if job.home:
        connection = Settings().catalog_connection()
        token = connection.token.get_secret_value() if connection.token else ""
        os.environ |= {"RATIFY_HOME": job.home, "UNITY_HOST": connection.host, "UNITY_TOKEN": token}
    landing, catalog = LandingZone(url=job.landing), UnityCatalog()
    engine, kind = DuckDB(catalog=catalog, attempts=50, threads=1), source(job.table)
    files = listed(landing, job.files)
    with engine.session():
        begin()
    took = FileTimes()
    for file in files:
        start = time.perf_counter()
        (loaded,) = load_batch(engine, landing, kind, [file], more_follow=True).files
        took.append(file_time(start, loaded.attempts))
    copy_commits(engine, kind.table.full_name(catalog.connection.name))
    engine.close()
    return took


def naive(job: WriterJob, begin: Callable[[], None]) -> FileTimes:
    """The obvious writer: insert from the file, and after any error wait a moment and try again."""
    engine, kind = DuckDB(catalog=UnityCatalog(), threads=1), source(job.table)
    with engine.session():
        begin()
    took = FileTimes()
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
        took.append(file_time(start, attempt + 1))
    engine.close()
    return took


def delta_rs(job: WriterJob, begin: Callable[[], None]) -> FileTimes:
    """Appends to a table by path: delta-rs, with DuckDB to read the file."""
    con = duckdb.connect()
    begin()
    took = FileTimes()
    for name in job.files:
        start = time.perf_counter()
        rows = con.execute(f"FROM read_csv({literal(f'{job.landing}/{name}')}, all_varchar = true)").to_arrow_table()
        attempts = 0
        for _ in range(1000):
            attempts += 1
            with contextlib.suppress(Exception):
                write_deltalake(job.table, rows, mode="append")
                break
        took.append(file_time(start, attempts))
    return took


def _process(work: Callable[..., FileTimes], job: WriterJob, barrier: Any, results: Any) -> None:
    started = []

    def begin() -> None:
        barrier.wait()
        started.append(time.time())

    try:
        each = work(job, begin)
    except BaseException as error:
        results.put(error)
        raise
    results.put((started[0], time.time(), each))


def together(
    name: str,
    work: Callable[..., FileTimes],
    table: str,
    landing: Path,
    names: list[str],
    writers: int,
    rows: int,
    homes: Sequence[str] = (),
) -> IngestMeasure:
    """Run `work` in several processes, each with its share of the files."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    jobs = [
        WriterJob(table, tuple(names[number::writers]), str(landing), homes[number] if homes else "")
        for number in range(writers)
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
    return IngestMeasure(name, writers, len(names), len(names) * rows, seconds, times, attempts, memory)


def plain_parquet(folder: Path, landing: Path, names: Sequence[str], rows: int, *, together: bool = False) -> IngestMeasure:
    """DuckDB writing each file as Parquet, or all files together: reading and encoding, and nothing else."""
    con = duckdb.connect()
    each, start = list[float](), time.perf_counter()
    for some in [names] if together else [[name] for name in names]:
        one = time.perf_counter()
        select = f"FROM read_csv([{', '.join(literal(f'{landing}/{name}') for name in some)}], all_varchar = true)"
        con.execute(f"COPY ({select}) TO {literal(str(folder / some[0]))} (FORMAT parquet)")
        each.append(time.perf_counter() - one)
    kind = "DuckDB to Parquet, one read_csv" if together else "DuckDB to plain Parquet"
    return IngestMeasure(kind, 1, len(names), len(names) * rows, time.perf_counter() - start, [] if together else each)
