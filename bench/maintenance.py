"""What a compaction costs against Spark's OPTIMIZE and delta-rs's, of the same files in tables that no catalog manages.

    python -m bench.maintenance [--files 1000] [--rows 4000000] [--scans]

The rows stand in so many small files in each of three tables: a managed one, which `compact` compacts; one by path, for
Spark's OPTIMIZE; and a copy of that one for delta-rs. Prints the MB of small files a second, the ratio of each other way's
seconds to ours (aim: OPTIMIZE at least 0.7). Then the table is clustered (`ratify layout`), and a query for one row is
compared with the same of the small files (aim at least 5 from 9,000 files on). The rows must be equal afterwards.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from contextlib import closing

from deltalake import DeltaTable
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from ratify_lakehouse.delta.compaction_bins import TARGET_BYTES
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDB
from ratify_lakehouse.engines.duckdb.layout_migration import migrate
from ratify_lakehouse.engines.duckdb.table_compaction import compact
from ratify_lakehouse.table_layout import Layout

Ratio = tuple[str, float, float | None, bool]
"""As `within_bounds` has them."""

_AIM, _SCAN_AIM, _MANY = 0.7, 5, 9000
# Of the size that they have in a file, about: the clustered table gets some files.
_BYTES_OF_A_ROW, _CLUSTERED_FILES = 24, 16
_TABLE = "ratify.bronze.small_files"


def _create(stack: WarmStack, files: int, rows: int) -> None:
    # By hash: else each file has a range of ids, and no reader opens another one for a query of one.
    query = (
        f"SELECT /*+ REPARTITION({files}, id) */ id, concat('customer ', id % 5000) AS name, "
        f"CAST(id % 1000 AS DECIMAL(12,2)) AS amount, timestamp_seconds(1700000000 + id) AS placed FROM range({rows})"
    )
    stack.spark.sql(
        f"CREATE TABLE {_TABLE} (id BIGINT, name STRING, amount DECIMAL(12,2), placed TIMESTAMP) USING DELTA TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'none', 'delta.enableRowTracking' = 'false')"
    ).collect()
    stack.spark.sql(f"INSERT INTO {_TABLE} {query}").collect()


def _copy(stack: WarmStack, files: int) -> str:
    """Copy the table to two that no catalog manages, and return the folder of the one for Spark."""
    folder = str(stack.home / "by_path")
    stack.spark.sql(f"SELECT /*+ REPARTITION({files}, id) */ * FROM {_TABLE}").write.format("delta").save(folder)
    shutil.copytree(folder, stack.home / "by_delta_rs")
    return folder


def _hash(stack: WarmStack, table: str) -> tuple[int, int]:
    (row,) = stack.spark.rows(stack.spark.sql(f"SELECT count(*) AS n, sum(xxhash64(*)::DECIMAL(38,0)) AS h FROM {table}"))
    return row["n"], row["h"]


def _selective(stack: WarmStack, duckdb: DuckDB, rows: int) -> dict[str, float]:
    """The seconds of a query for one row, by each engine, of a table that it has read before."""
    # In the middle: few files of scattered rows begin with the least id.
    wanted = rows // 2

    def by_duckdb() -> None:
        with duckdb.session() as session:
            session.attach()
            session.rows(f"SELECT sum(amount) FROM {ALIAS}.bronze.small_files WHERE id = {wanted}")

    by_spark = stack.spark.sql(f"SELECT sum(amount) FROM {_TABLE} WHERE id = {wanted}").collect
    ways: dict[str, Callable[[], object]] = {"Spark": by_spark, "DuckDB": by_duckdb}
    return {name: min(timed(way) for _ in range(3)) for name, way in ways.items()}


def _compactions(stack: WarmStack, duckdb: DuckDB, files: int) -> list[Ratio]:
    folder, log = _copy(stack, files), duckdb.log(_TABLE)
    size = sum(file.add["size"] for file in log.files(log.refresh())) / 1e6

    def ours() -> None:
        with duckdb.session() as session:
            compact(session, stack.catalog, log, _TABLE)

    ways: dict[str, Callable[[], object]] = {
        "compact": ours,
        "OPTIMIZE": lambda: stack.spark.sql(f"OPTIMIZE delta.`{folder}`").collect(),
        "delta-rs": lambda: DeltaTable(str(stack.home / "by_delta_rs")).optimize.compact(target_size=TARGET_BYTES),
    }
    seconds = {name: timed(way) for name, way in ways.items()}
    if _hash(stack, _TABLE) != _hash(stack, f"delta.`{folder}`"):
        raise SystemExit("the rows differ, so nothing is measured")
    shown = Table("", "s", "MB/s", title=f"{files:,} files, {size:.0f} MB; compact leaves {len(log.files(log.refresh()))}")
    for name, took in seconds.items():
        shown.add_row(name, f"{took:.2f}", f"{size / took:.1f}")
    console.print(shown)
    return [
        ("OPTIMIZE against compact", seconds["OPTIMIZE"] / seconds["compact"], _AIM, True),
        ("delta-rs against compact", seconds["delta-rs"] / seconds["compact"], None, True),
    ]


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="small files (default 1,000)")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows in them (default 4,000,000)")
    parser.add_argument("--scans", action="store_true", help="measure the query only, not the compaction against others")
    given = parser.parse_args()
    ratios, scans = list[Ratio](), dict[str, dict[str, float]]()
    with warm_stack() as stack, closing(DuckDB(catalog=stack.catalog)) as duckdb:
        _create(stack, given.files, given.rows)
        before = _hash(stack, _TABLE)
        scans["small files"] = _selective(stack, duckdb, given.rows)
        ratios += [] if given.scans else _compactions(stack, duckdb, given.files)
        scans["compacted"] = {} if given.scans else _selective(stack, duckdb, given.rows)
        with duckdb.session() as session:
            layout, size = Layout(cluster_by=("id",)), given.rows * _BYTES_OF_A_ROW // _CLUSTERED_FILES
            migrate(session, stack.catalog, duckdb.log(_TABLE), _TABLE, layout, target_bytes=size)
        scans["clustered"] = _selective(stack, duckdb, given.rows)
        if before != _hash(stack, _TABLE):
            raise SystemExit("the rows differ, so nothing is measured")
    shown = Table("query for one row, s", *scans["clustered"])
    for state, seconds in scans.items():
        if seconds:
            shown.add_row(state, *(f"{took:.2f}" for took in seconds.values()))
    console.print(shown)
    for engine, quick in scans["clustered"].items():
        slow, aim = scans["small files"][engine], _SCAN_AIM if given.files >= _MANY else None
        ratios.append((f"a query for one row by {engine}, small files against clustered", slow / quick, aim, True))
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
