"""What a compaction costs against Spark's OPTIMIZE and delta-rs's, of the same files in tables that no catalog manages.

    python -m bench.care [--files 1000] [--rows 4000000]

The rows stand in so many small files in each of three tables: a managed one, which `compact` compacts; one by path, for
Spark's OPTIMIZE; and a copy of that one for delta-rs. Prints the MB of small files a second, the ratio of each other way's
seconds to ours (aim: OPTIMIZE at least 0.7), and of a selective query before and after (aim at least 5 with 9,000 files and
more). The rows must be equal afterwards.
"""

import argparse
import shutil
import sys
from collections.abc import Callable

from deltalake import DeltaTable
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import WarmStack, warm_stack
from resources.delta.compaction_bins import TARGET_BYTES
from resources.duckdb.duckdb_engine import DuckDB
from resources.duckdb.table_compaction import compact

_AIM = 0.7
_MANY = 9000
_TABLE = "ratify.bronze.small_files"


def _create(stack: WarmStack, files: int, rows: int) -> str:
    """Create the tables, and return the folder of the one by path."""
    query = (
        f"SELECT /*+ REPARTITION({files}) */ id, concat('customer ', id % 5000) AS name, CAST(id % 1000 AS DECIMAL(12,2)) "
        f"AS amount, timestamp_seconds(1700000000 + id) AS placed FROM range({rows})"
    )
    stack.spark.sql(
        f"CREATE TABLE {_TABLE} (id BIGINT, name STRING, amount DECIMAL(12,2), placed TIMESTAMP) USING DELTA TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'none', 'delta.enableRowTracking' = 'false')"
    ).collect()
    stack.spark.sql(f"INSERT INTO {_TABLE} {query}").collect()
    folder = str(stack.home / "by_path")
    stack.spark.sql(f"SELECT /*+ REPARTITION({files}) */ * FROM {_TABLE}").write.format("delta").save(folder)
    shutil.copytree(folder, stack.home / "by_delta_rs")
    return folder


def _hash(stack: WarmStack, table: str) -> tuple[int, int]:
    (row,) = stack.spark.rows(stack.spark.sql(f"SELECT count(*) AS n, sum(xxhash64(*)::DECIMAL(38,0)) AS h FROM {table}"))
    return row["n"], row["h"]


def main() -> int:
    """Print the ratios; the exit code is 1 where the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="small files (default 1,000)")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows in them (default 4,000,000)")
    given = parser.parse_args()
    with warm_stack() as stack:
        folder = _create(stack, given.files, given.rows)
        duckdb = DuckDB(catalog=stack.catalog)
        log = duckdb.log(_TABLE)
        size = sum(file.add["size"] for file in log.files(log.refresh())) / 1e6
        before = _hash(stack, _TABLE)
        selective = stack.spark.sql(f"SELECT sum(amount) FROM {_TABLE} WHERE id = 77").collect
        slow = min(timed(selective) for _ in range(3))

        def ours() -> None:
            with duckdb.session() as session:
                compact(session, stack.catalog, log, _TABLE)

        ways: dict[str, Callable[[], object]] = {
            "compact": ours,
            "OPTIMIZE": lambda: stack.spark.sql(f"OPTIMIZE delta.`{folder}`").collect(),
            "delta-rs": lambda: DeltaTable(str(stack.home / "by_delta_rs")).optimize.compact(target_size=TARGET_BYTES),
        }
        seconds = {name: timed(way) for name, way in ways.items()}
        selective = stack.spark.sql(f"SELECT sum(amount) FROM {_TABLE} WHERE id = 77").collect
        quick = min(timed(selective) for _ in range(3))
        if not before == _hash(stack, _TABLE) == _hash(stack, f"delta.`{folder}`"):
            raise SystemExit("the rows differ, so nothing is measured")
        left = len(log.files(log.refresh()))
        duckdb.close()
    shown = Table("", "s", "MB/s", title=f"{given.files:,} files, {size:.0f} MB; compact leaves {left}")
    for name, took in seconds.items():
        shown.add_row(name, f"{took:.2f}", f"{size / took:.1f}")
    console.print(shown)
    ratios: list[tuple[str, float, float | None, bool]] = [
        ("OPTIMIZE against compact", seconds["OPTIMIZE"] / seconds["compact"], _AIM, True),
        ("delta-rs against compact", seconds["delta-rs"] / seconds["compact"], None, True),
        ("a selective query before against after", slow / quick, 5 if given.files >= _MANY else None, True),
    ]
    return 0 if within_bounds(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
