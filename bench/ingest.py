"""What it costs to append landed files to one governed table, alone and with many writers at once.

    python -m bench.ingest [--files 160] [--rows 100] [--writers 1 2 4 8 16] [--big-mb 100] [--growth] [--quick]

On the same CSV files, each measure on a table of its own, one file a commit unless noted:

- ours: the package's writers in 1 to 16 processes of one machine, in 8 processes that share only the catalog, as on
  8 machines, and one process with all files in one load batch;
- naive: 8 processes that insert from the file and, on any error, wait a moment and try again on a new connection;
- plain: DuckDB writing the files as Parquet, with no table at all: each alone, and all of them by one `read_csv`;
- delta-rs: appends to a table by path, without a catalog, in 1 and 8 processes;
- Spark: appends file by file.

Prints commits a second (each file counts, also where files share a version), rows a second, the time of one file, the
attempts of a commit, and the ratios that have an aim; the exit code is 1 where one is missed. `--growth` measures
instead what 10,000 files cost against 1,000, and the 2,000th commit against the first. Needs the embedded stack, which it
starts.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from rich.table import Table

from bench.ingest_writers import (
    HEADER,
    FileTimes,
    IngestMeasure,
    delta_rs,
    listed,
    make_files,
    naive,
    ours,
    plain_parquet,
    source,
    together,
)
from bench.ratios import console, within_bounds
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from ratify_lakehouse.settings import LAYERS, Settings

BATCH_AIM = 150
"""Small files a second that one load batch loads, one writer, warm."""


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

    def check(self, table: str, measure: IngestMeasure) -> IngestMeasure:
        """Check that the table has every row once, and return the measure with the number of versions."""
        full_name = source(table).table.full_name(self._catalog.connection.name)
        counted = self._spark.rows(self._spark.sql(f"SELECT count(*) AS n, count(DISTINCT id) AS d FROM {full_name}"))[0]
        if (counted["n"], counted["d"]) != (measure.rows, measure.rows):
            raise SystemExit(f"{measure.name}: {counted['n']} rows ({counted['d']} distinct) instead of {measure.rows}")
        return IngestMeasure(**{**vars(measure), "versions": self._catalog.version(full_name)})

    def writers(
        self,
        work: Callable[..., FileTimes],
        count: int,
        landing: Path | None = None,
        names: list[str] | None = None,
        rows: int = 0,
    ) -> IngestMeasure:
        """Measure `count` processes of `ours` or `naive`, by default on all files of this benchmark."""
        table, chosen = self.table(), names or self._names
        measure = together(work.__name__, work, table, landing or self._landing, chosen, count, rows or self._rows)
        return self.check(table, measure)

    def machines(self, count: int, folder: Path) -> IngestMeasure:
        """Measure `count` processes of `ours`, each with a home of its own, so that they share only the catalog."""
        table = self.table()
        homes = [str(folder / f"home{number}") for number in range(count)]
        name = "ours, a machine each"
        return self.check(table, together(name, ours, table, self._landing, self._names, count, self._rows, homes))

    def one_batch(self, landing: Path, names: list[str], rows: int, *, warm: bool = False) -> IngestMeasure:
        """All files in one load batch, which is one commit. `warm`: the engine has loaded a file before."""
        table = self.table()
        zone, engine = LandingZone(url=str(landing)), DuckDB(catalog=self._catalog)
        if warm:
            load_batch(engine, zone, source(self.table()), listed(zone, names[:1]))
        files = listed(zone, names)
        start = time.perf_counter()
        load_batch(engine, zone, source(table), files)
        seconds = time.perf_counter() - start
        engine.close()
        return self.check(table, IngestMeasure("ours, one load batch", 1, len(names), len(names) * rows, seconds))

    def spark(self, names: list[str]) -> IngestMeasure:
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
        return self.check(table, IngestMeasure("Spark", 1, len(names), len(names) * self._rows, seconds, each))


def show(measures: Sequence[IngestMeasure]) -> None:
    """Print what was measured."""
    table = Table(title="Ingesting the same files", title_justify="left", header_style="bold")
    for column in ("", "writers", "files", "commits/s", "rows/s", "p50 ms", "p99 ms", "attempts", "versions"):
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
    """Run all measures on a running stack; return whether every aim is met."""
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as folder:
        landing = Path(folder) / "landing"
        names = make_files(landing, files, rows)
        bench = IngestBench(landing, names, rows)
        try:
            by_writers = {count: bench.writers(ours, count) for count in writers}
            machines = bench.machines(8, Path(folder))
            baseline = bench.writers(naive, 8, names=names[: max(8, files // 4)])
            grouped = bench.one_batch(landing, names, rows, warm=True)
            (Path(folder) / "parquet").mkdir()
            bare = plain_parquet(Path(folder) / "parquet", landing, names, rows)
            one_pass = plain_parquet(Path(folder) / "parquet", landing, names, rows, together=True)
            deltas = [
                together("delta-rs, by path", delta_rs, f"{folder}/delta{count}", landing, names, count, rows)
                for count in (1, 8)
            ]
            spark = bench.spark(names[: max(8, files // 8)])
            big = Path(folder) / "big"
            big_rows = big_mb * 20_000
            big_names = make_files(big, 1, big_rows)
            big_ours = bench.one_batch(big, big_names, big_rows)
            big_bare = plain_parquet(Path(folder) / "parquet", big, big_names, big_rows)
        finally:
            bench.close()
    show([*by_writers.values(), machines, baseline, grouped, bare, one_pass, *deltas, spark, big_ours, big_bare])
    one, eight = by_writers[1], by_writers[8]
    return within_bounds(
        [
            ("8 writers against one: commits/s", eight.files_per_second / one.files_per_second, 1.0, True),
            ("8 writers against 8 naive ones: commits/s", eight.files_per_second / baseline.files_per_second, 5.0, True),
            ("8 writers: p99 against p50", eight.percentile(0.99) / eight.percentile(0.5), 10.0, False),
            ("8 machines against one writer: commits/s", machines.files_per_second / one.files_per_second, 1.0, True),
            (
                "8 machines against 8 naive writers: commits/s",
                machines.files_per_second / baseline.files_per_second,
                5.0,
                True,
            ),
            ("8 machines: p99 against p50", machines.percentile(0.99) / machines.percentile(0.5), 10.0, False),
            (
                "one load batch against one file a commit: files/s",
                grouped.files_per_second / one.files_per_second,
                5.0,
                True,
            ),
            (f"one load batch: files/s against {BATCH_AIM}", grouped.files_per_second / BATCH_AIM, 1.0, True),
            ("one load batch against one read_csv of all files: time", grouped.seconds / one_pass.seconds, None, False),
            ("a big file against plain Parquet: rows/s", big_bare.seconds / big_ours.seconds, 0.7, True),
            ("8 writers against 8 of delta-rs: files/s", eight.files_per_second / deltas[1].files_per_second, 1.0, True),
        ]
    )


def grow(small: int, commits: int) -> bool:
    """Measure ten times the files in load batches, and many commits; return whether every aim is met."""
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
    """Return the seconds that small files take in load batches of 100."""
    names = make_files(landing, count, 10)
    zone, table, engine = LandingZone(url=str(landing)), bench.table(), DuckDB(catalog=UnityCatalog())
    files = listed(zone, names)
    start = time.perf_counter()
    for first in range(0, count, 100):
        load_batch(engine, zone, source(table), files[first : first + 100])
    seconds = time.perf_counter() - start
    engine.close()
    bench.check(table, IngestMeasure("batches", 1, count, count * 10, seconds))
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
    options = parser.parse_args()
    if options.quick:
        options.files, options.writers, options.big_mb = 24, [1, 8], 2
    jars = Settings().jars
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
            if options.growth:
                return 0 if grow(*((100, 100) if options.quick else (1000, 2000))) else 1
            return 0 if run(options.files, options.rows, options.writers, options.big_mb) else 1


if __name__ == "__main__":
    sys.exit(main())
