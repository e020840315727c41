"""What the commits of a writer take while the table is compacted, and what a clean of very many files takes.

    python -m bench.maintenance_beside [--files 4000] [--unneeded 100000]

One process appends a row a commit to a table of small files, first alone, then while another process compacts the table.
Prints the ratios of p50 (aim at most 1.5) and p99. Then files that no version needs are put into the table's folder, and
`clean` removes them: its seconds against those of listing and deleting as many files by Python alone.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.table_clean import clean
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.table_compaction import compact

_AIM = 1.5
_ALONE_S = 30
_PAUSE_S = 0.1
# A thirtieth of the default: a commit each second or so, where it would be one in half a minute.
_TARGET_BYTES = 4 << 20
_OLD_S = 30 * 86_400
_TABLE = TableDeclaration(
    "bronze",
    "beside_maintenance",
    (Column("id", "bigint"), Column("v", "string")),
    "Generated rows",
    Engine.DUCKDB,
    frozenset({"WRITE"}),
    properties={"delta.enableRowTracking": "false"},
)


def _compact(host: str, token: str, full_name: str) -> None:
    catalog = UnityCatalog(host=host, token=token)
    with closing(DuckDB(catalog=catalog, threads=1)) as duckdb, duckdb.session() as session:
        compact(session, catalog, duckdb.log(full_name), full_name, target_bytes=_TARGET_BYTES)


def _latencies(duckdb: DuckDB, go_on: Callable[[], bool], first: int) -> list[float]:
    """The seconds of each commit, one every now and then, while `go_on` says so."""
    found = list[float]()
    while go_on():
        with duckdb.session() as session:
            row = f"SELECT -{first + len(found)}::BIGINT AS id, 'appended' AS v"
            load = f"load-{first + len(found)}"
            found.append(timed(lambda: session.append(_TABLE, row, [load])))  # noqa: B023 called at once
        time.sleep(_PAUSE_S)
    return found


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def _writers(stack: WarmStack, files: int) -> list[tuple[str, float, float | None, bool]]:
    full_name = stack.spark.full_name(_TABLE)
    stack.spark.ensure_table(_TABLE)
    rows = f"SELECT /*+ REPARTITION({files}) */ id, concat('row ', id) AS v FROM range({files * 1000})"
    stack.spark.sql(f"INSERT INTO {full_name} {rows}").collect()
    to = stack.catalog.connection
    with closing(DuckDB(catalog=stack.catalog, threads=1)) as duckdb:
        until = time.monotonic() + _ALONE_S
        alone = _latencies(duckdb, lambda: time.monotonic() < until, 1)
        # The first has the log to read.
        alone = alone[1:]
        process = multiprocessing.get_context("spawn").Process(
            target=_compact, args=(to.host, stack.catalog.bearer_token(), full_name), daemon=True
        )
        process.start()
        beside = _latencies(duckdb, process.is_alive, len(alone) + 2)
        log = duckdb.log(full_name)
        left = len(log.files(log.refresh()))
    if process.exitcode != 0 or left > files / 5 + len(alone) + len(beside):
        raise SystemExit(f"the compaction ended with {process.exitcode} and left {left} files, so nothing is measured")
    shown = Table("commits of a writer", "number", "p50 s", "p99 s", title=f"{files:,} files become {left:,}")
    for name, seconds in (("alone", alone), ("beside the compaction", beside)):
        shown.add_row(name, str(len(seconds)), f"{statistics.median(seconds):.3f}", f"{_p99(seconds):.3f}")
    console.print(shown)
    return [
        (
            "p50 of a commit beside a compaction against alone",
            statistics.median(beside) / statistics.median(alone),
            _AIM,
            False,
        ),
        ("p99", _p99(beside) / _p99(alone), None, False),
    ]


def _litter(folder: Path, files: int, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    old = time.time() - _OLD_S
    for number in range(files):
        path = folder / f"part-{number:08d}.parquet"
        path.write_bytes(content)
        os.utime(path, (old, old))


def _cleaned(stack: WarmStack, files: int) -> list[tuple[str, float, float | None, bool]]:
    full_name = stack.spark.full_name(_TABLE)
    folder = Path(unquote(urlsplit(stack.catalog.table(full_name).storage_location or "").path))
    content = next(folder.glob("*.parquet")).read_bytes()[:1000]
    plain = stack.home / "plain"
    for each in (folder, plain):
        _litter(each, files, content)

    def by_python() -> None:
        for entry in os.scandir(plain):
            if entry.stat().st_size:
                Path(entry.path).unlink()

    with closing(DuckDB(catalog=stack.catalog)) as duckdb:
        log, removed = duckdb.log(full_name), list[object]()
        seconds = timed(lambda: removed.extend(clean(stack.catalog, log)))
    if len(removed) != files:
        raise SystemExit(f"{len(removed)} files were removed, not {files}, so nothing is measured")
    baseline = timed(by_python)
    shutil.rmtree(plain)
    console.print(f"A clean of {files:,} files: {seconds:.1f} s; by Python alone: {baseline:.1f} s")
    return [(f"a clean of {files:,} files against Python's scandir and unlink", seconds / baseline, None, False)]


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4000, help="small files (default 4,000)")
    parser.add_argument("--unneeded", type=int, default=100_000, help="files that no version needs (default 100,000)")
    given = parser.parse_args()
    with warm_stack() as stack:
        ratios = [*_writers(stack, given.files), *_cleaned(stack, given.unneeded)]
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
