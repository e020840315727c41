"""What it costs each engine to write and read a table through the catalog, against plain Delta by path.

    python -m bench.engines [--scale-factor 1] [--quick]

Rows of TPC-H's lineitem, the same ones on both sides; sides take turns, and ratios are those of the medians. An append is
one commit of 1, 100, 10,000 or all rows (6,001,215 at scale factor 1); a scan sums over the whole table, after the appends.

- Spark: a DataFrame read from one Parquet file and appended to the catalog-managed table, against the same DataFrame saved
  to a folder as a Delta table that no catalog knows. By path it goes through `format("delta").save(folder)`, which Spark's
  own `spark_catalog` (Delta's DeltaCatalog) serves in every session here; paths of managed tables alone are refused. Neither
  table has row tracking, as those of SqlTable have none.
- DuckDB: the package's append, against the same rows that DuckDB wrote to a Parquet file in the same way and delta-rs
  committed to a table by path, for DuckDB itself cannot. Its scan attaches the catalog, against `delta_scan` of the folder.

Prints the times and the ratios; the exit code is 1 where an append of over 100,000 rows misses its aim (at most 1.25 times
the time by path), or Spark's append of one row (at most twice that time). Needs the embedded stack, which it starts.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import duckdb
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from rich.table import Table

from bench.ratios import console, within_bounds
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import ROW_TRACKING, TableDeclaration
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDB
from ratify_lakehouse.engines.duckdb.extension_loading import LOADED_AS_THEY_ARE, load_extension
from ratify_lakehouse.engines.duckdb.parquet_files import write_parquet
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof.proof_tables import TABLES
from ratify_lakehouse.settings import TPCH, Settings
from ratify_lakehouse.sql.duckdb_sql import literal

AIM = 1.25
ONE_ROW_AIM = 2.0
AIM_ROWS = 100_000
LINEITEM = TABLES["lineitem"]
SUMS = "count(*) AS n, sum(l_quantity) AS quantity, sum(l_extendedprice * (1 - l_discount)) AS revenue"

Work = Callable[[], object]


@dataclass(frozen=True)
class EngineMeasure:
    """Medians in seconds of the same work through the catalog and by path."""

    engine: str
    what: str
    rows: int
    rounds: int
    catalog: float
    path: float

    @property
    def ratio(self) -> float:
        """How many times the time by path it takes through the catalog."""
        return self.catalog / self.path


def in_turns(engine: str, what: str, rows: int, rounds: int, catalog: Work, path: Work) -> EngineMeasure:
    """Measure both sides, which take turns, and in going first too."""
    took: dict[int, list[float]] = {0: [], 1: []}
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            (catalog, path)[side]()
            took[side].append(time.perf_counter() - start)
    return EngineMeasure(engine, what, rows, rounds, statistics.median(took[0]), statistics.median(took[1]))


class SparkSides:
    """Spark's appends and scans."""

    name = "Spark"

    def __init__(self, spark: Spark, folder: Path) -> None:
        self._spark, self._path = spark, str(folder / "spark")
        self._table = table_of(spark, "lineitem_spark", **{ROW_TRACKING: "false"})

    def append_catalog(self, file: Path) -> None:
        """One commit through the catalog."""
        self._spark.session.read.parquet(str(file)).writeTo(self._table.full_name(catalog_name(self._spark))).append()

    def append_path(self, file: Path) -> None:
        """One commit to the folder."""
        self._spark.session.read.parquet(str(file)).write.format("delta").mode("append").save(self._path)

    def scan_catalog(self) -> list[object]:
        """The sums, through the catalog."""
        return self._sums(self._table.full_name(catalog_name(self._spark)))

    def scan_path(self) -> list[object]:
        """The sums, of the folder."""
        return self._sums(f"spark_catalog.delta.`{self._path}`")

    def _sums(self, table: str) -> list[object]:
        return list(self._spark.rows(self._spark.sql(f"SELECT {SUMS} FROM {table}"))[0].values())


class DuckDBSides:
    """DuckDB's appends and scans."""

    name = "DuckDB"

    def __init__(self, engine: DuckDB, spark: Spark, folder: Path, sample: Path) -> None:
        self._engine, self._path = engine, folder / "duckdb"
        self._table = table_of(spark, "lineitem_duckdb")
        self._con = duckdb.connect()
        schema = self._con.execute(f"FROM read_parquet({literal(str(sample))}) LIMIT 0").to_arrow_table().schema
        self._delta = DeltaTable.create(self._path, schema)

    def append_catalog(self, file: Path) -> None:
        """One commit through the catalog."""
        with self._engine.session() as session:
            session.append(self._table, f"FROM read_parquet({literal(str(file))})", [uuid4().hex])

    def append_path(self, file: Path) -> None:
        """One commit to the folder."""
        name = f"{uuid4().hex}.parquet"
        written = write_parquet(self._con, f"FROM read_parquet({literal(str(file))})", self._path / name)
        stats = json.dumps(written.stats)
        add = AddAction(name, written.size, {}, int(time.time() * 1000), data_change=True, stats=stats)
        self._delta.create_write_transaction([add], "append", self._delta.schema())
        self._delta.update_incremental()

    def scan_catalog(self) -> list[object]:
        """The sums, through the catalog."""
        with self._engine.session() as session:
            return list(session.rows(f"SELECT {SUMS} FROM {ALIAS}.{TPCH}.{self._table.name}")[0])

    def scan_path(self) -> list[object]:
        """The sums, of the folder."""
        with self._engine.session() as session:
            scan = f"delta_scan({literal(str(self._path))})"
            return list(session.con.execute(f"SELECT {SUMS} FROM {scan}").fetchall()[0])


def catalog_name(spark: Spark) -> str:
    """The catalog's name."""
    return spark.catalog.connection.name


def table_of(spark: Spark, name: str, **properties: str) -> TableDeclaration:
    """Create a table like lineitem."""
    table = replace(LINEITEM, name=name, properties={**LINEITEM.properties, **properties})
    spark.ensure_table(table)
    return table


def make_rows(folder: Path, scale_factor: float, sizes: Sequence[int]) -> dict[int, Path]:
    """Parquet files of the first so many rows of lineitem, and of all: by their number of rows."""
    with duckdb.connect(config=dict(LOADED_AS_THEY_ARE)) as con:
        load_extension(con, "tpch")
        con.execute("CALL dbgen(sf = $1)", [scale_factor])
        [(all_,)] = con.execute("SELECT count(*) FROM lineitem").fetchall()
        columns = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in LINEITEM.column_types.items())
        files = dict[int, Path]()
        for rows in (*sizes, all_):
            files[rows] = folder / f"lineitem-{rows}.parquet"
            write_parquet(con, f"SELECT {columns} FROM lineitem LIMIT {rows}", files[rows])
    return files


def run(scale_factor: float, rounds: int, big_rounds: int) -> bool:
    """All measures on a stack that runs. True where every aim is met."""
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        folder = Path(home)
        files = make_rows(folder, scale_factor, (1, 100, 10_000))
        catalog = UnityCatalog()
        catalog.ensure_schemas((TPCH,))
        spark, engine = Spark(catalog=catalog), DuckDB(catalog=catalog)
        measures = list[EngineMeasure]()
        try:
            for sides in (SparkSides(spark, folder), DuckDBSides(engine, spark, folder, files[1])):
                measures += measure(sides, files, rounds, big_rounds)
        finally:
            engine.close()
            spark.close()
    show(measures)
    appends = [one for one in measures if one.what == "append"]
    aims = [(one, AIM) for one in appends if one.rows > AIM_ROWS]
    aims += [(one, ONE_ROW_AIM) for one in appends if one.rows == 1 and one.engine == SparkSides.name]
    return within_bounds(
        [(f"{one.engine}: append of {one.rows:,} rows, catalog / path", one.ratio, aim, False) for one, aim in aims]
    )


def measure(sides: SparkSides | DuckDBSides, files: dict[int, Path], rounds: int, big_rounds: int) -> list[EngineMeasure]:
    """One engine's appends, smallest first, and its scan of what they came to."""
    measures = list[EngineMeasure]()
    appended = 0
    for rows, file in files.items():
        count = big_rounds if rows > AIM_ROWS else rounds
        through, by_path = partial(sides.append_catalog, file), partial(sides.append_path, file)
        # The first of each size fills the caches, on both sides.
        in_turns(sides.name, "append", rows, 1, through, by_path)
        measures.append(in_turns(sides.name, "append", rows, count, through, by_path))
        appended += rows * (count + 1)
    if (found := sides.scan_catalog()) != sides.scan_path() or found[0] != appended:
        raise SystemExit(f"{sides.name}: the tables differ, or do not hold {appended:,} rows: no ratio")
    measures.append(in_turns(sides.name, "scan", appended, big_rounds, sides.scan_catalog, sides.scan_path))
    return measures


def show(measures: Sequence[EngineMeasure]) -> None:
    """Print what was measured."""
    table = Table(title="Through the catalog and by path, medians", title_justify="left", header_style="bold")
    for column in ("", "", "rows", "rounds", "catalog ms", "path ms", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for one in measures:
        times = f"{one.catalog * 1000:,.1f}", f"{one.path * 1000:,.1f}", f"{one.ratio:.2f}"
        table.add_row(one.engine, one.what, f"{one.rows:,}", str(one.rounds), *times)
    console.print(table)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale-factor", type=float, default=1.0, help="of TPC-H (default 1: 6 million rows)")
    parser.add_argument("--rounds", type=int, default=15, help="counted appends of each small size (default 15)")
    parser.add_argument("--big-rounds", type=int, default=3, help="counted appends of all rows, and scans (default 3)")
    parser.add_argument("--quick", action="store_true", help="scale factor 0.02 and 3 rounds, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.scale_factor, options.rounds, options.big_rounds = 0.02, 3, 3
    jars = Settings().jars
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
            return 0 if run(options.scale_factor, options.rounds, options.big_rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
