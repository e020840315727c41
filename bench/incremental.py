"""Measure what a table of the strategy `incremental` saves: a pass after some rows of its input have changed.

    python -m bench.incremental [--rows 10000000] [--rounds 1] [--totals]

`bronze.readings` has ten thousand rows a day, and a change data feed; its files are in the order of days, as landed data is.
The table has a row for each, with its value in another unit; with `--totals` instead one for each day and sensor: how many
readings, and their mean, least and greatest value. Each round changes the rows of the newest days: 0.01 %, 1 % or 10 % of
all. Then tables of the same query are brought up to date, on the same warm Spark: one by the strategy `incremental`, one by
`full`, and one by a MERGE of the whole query, as dbt does it for incremental models without a filter; and two by DuckDB, in
this process, by `incremental` and `full`. Those of strategies are Dagster assets. Afterwards all must have the same rows.

Prints the ratios of medians: the time of `full` against that of `incremental` (aims: at least 20, 5 and 1), the same of the
MERGE, and the time of a pass over all rows against one over a tenth of them, with as many rows changed (aim: at most 1.2).
Likewise the ratios of the bytes that Spark's process has read, from disks or from the system's cache of them. Of DuckDB,
the time of its `full` against that of its `incremental` (aims: at least 10, 5 and 1), and that of Spark's `incremental`
against it (aim: at least 5).
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import psutil
from rich.table import Table

from bench.ratios import console, timed, within_bounds
from bench.warm_stack import warm_stack
from ratify_lakehouse.components.expectations.expectation_rules import Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK
from ratify_lakehouse.components.query_engines import DuckDBQueries, SparkQueries
from ratify_lakehouse.components.sql_table import ValidatedQuery, materialize
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.components.table_asset import table_spec
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableQuery

A_DAY, SENSORS = 10_000, 100
FRACTIONS = {0.0001: (20.0, 10.0), 0.01: (5.0, 5.0), 0.1: (1.0, 1.0)}
"""Of the rows that change, each with its aims: of Spark and of DuckDB."""
FASTER_AIM = 5.0
GROWTH_AIM = 1.2
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Kind:
    """What is made of the readings: the keys of a table, and its columns and groups."""

    keys: tuple[str, ...]
    columns: str
    groups: str = ""

    def query(self, source: str) -> str:
        """Return the query over a table of readings."""
        return f"SELECT {self.columns} FROM bronze.{source} {self.groups}"

    def declared(self, source: str, how: str, engine: Engine) -> ValidatedQuery:
        """Return the table that an engine makes of `source`."""
        dialect = DUCKDB if engine is Engine.DUCKDB else SPARK
        declaration = TableDeclaration(
            layer="gold",
            name=f"{source}_{how}",
            columns=(),
            comment="of a benchmark",
            writer=engine,
            operations=frozenset({"MERGE"}),
            keys=self.keys,
            inferred=True,
        )
        query = TableQuery.parsed(self.query(source), dialect.parsed_as, "the benchmark")
        expectations = Expectations(rules=(), identity=self.keys, dialect=dialect)
        return ValidatedQuery(declaration, query, expectations)


ROWS = Kind(("id",), "id, day, sensor, value * 9 / 5 + 32 AS fahrenheit, value > 500 AS is_high")
TOTALS = Kind(
    ("day", "sensor"),
    "day, sensor, count(*) AS readings, avg(value) AS mean_value, min(value) AS least_value, max(value) AS greatest_value",
    "GROUP BY day, sensor",
)


@dataclass(frozen=True)
class Input:
    """A table of readings, and the tables that are made of it."""

    spark: Spark
    duckdb: DuckDB
    instance: dg.DagsterInstance
    kind: Kind
    name: str
    days: int
    server: psutil.Process

    def create(self) -> None:
        """Create it, and bring the tables up to date for the first time."""
        rows = self.days * A_DAY
        self.spark.sql(
            f"CREATE TABLE bronze.{self.name} (id BIGINT, day DATE, sensor INT, value DOUBLE) USING DELTA TBLPROPERTIES "
            "('delta.columnMapping.mode' = 'none', 'delta.enableChangeDataFeed' = 'true')"
        ).collect()
        day, files = f"date_add(DATE '2020-01-01', CAST(id DIV {A_DAY} AS INT))", max(4, self.days // 10)
        self.spark.sql(
            f"INSERT INTO bronze.{self.name} SELECT id, {day}, CAST(id % {SENSORS} AS INT), "
            f"CAST(id * 7919 % 1000 AS DOUBLE) FROM range(0, {rows}, 1, {files})"
        ).collect()
        for bring_up_to_date in (self.by_incremental, self.by_full, self.by_duckdb_incremental, self.by_duckdb_full):
            bring_up_to_date()
        self.spark.sql(
            f"CREATE TABLE gold.{self.name}_merged USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none') "
            f"AS {self.kind.query(self.name)}"
        ).collect()

    def change(self, fraction_of: int, round_: int) -> None:
        """Change so many of the newest rows."""
        first = self.days * A_DAY - fraction_of
        self.spark.sql(f"UPDATE bronze.{self.name} SET value = value + {round_ + 1} WHERE id >= {first}").collect()

    def by_incremental(self) -> None:
        """Bring its table up to date by the strategy `incremental`."""
        self._materialize("incremental")

    def by_full(self) -> None:
        """The same by the strategy `full`."""
        self._materialize("full")

    def by_duckdb_incremental(self) -> None:
        """The same by DuckDB, by the strategy `incremental`."""
        self._materialize("incremental", Engine.DUCKDB)

    def by_duckdb_full(self) -> None:
        """The same by DuckDB, by the strategy `full`."""
        self._materialize("full", Engine.DUCKDB)

    def by_merge(self) -> None:
        """The same by a MERGE of the whole query."""
        on = " AND ".join(f"t.{key} = s.{key}" for key in self.kind.keys)
        self.spark.sql(
            f"MERGE INTO gold.{self.name}_merged AS t USING ({self.kind.query(self.name)}) AS s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def check(self) -> None:
        """Compare the tables."""
        tables = [
            f"gold.{self.name}_{how}" for how in ("incremental", "full", "merged", "duckdb_incremental", "duckdb_full")
        ]
        for other in tables[1:]:
            differing = f"(TABLE {tables[0]} EXCEPT TABLE {other}) UNION ALL (TABLE {other} EXCEPT TABLE {tables[0]})"
            if self.spark.rows(self.spark.sql(f"SELECT * FROM ({differing}) LIMIT 1")):
                raise SystemExit(f"{tables[0]} and {other} differ, so nothing is measured")

    def _materialize(self, how: str, engine: Engine = Engine.SPARK) -> None:
        name, spark, duckdb = how if engine is Engine.SPARK else f"duckdb_{how}", self.spark, self.duckdb
        table = self.kind.declared(self.name, name, engine)

        @dg.multi_asset(name=f"bench_{name}", specs=[table_spec(table.declaration, [])])
        def asset() -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            if engine is Engine.DUCKDB:
                with duckdb.session() as session:
                    if how == "incremental":
                        yield from materialize_changes(spark, table, session=session)
                    else:
                        yield from materialize(DuckDBQueries(session, spark, table.declaration), table)
            elif how == "incremental":
                yield from materialize_changes(spark, table)
            else:
                yield from materialize(SparkQueries(spark, table.query, table.declaration), table)

        if not dg.materialize([asset], instance=self.instance, run_config=_QUIET).success:
            raise SystemExit("a run failed: no ratio")


def measured(readings: Input, fraction: float, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """The median seconds of each way, after that part of the rows has changed, and the median MB that Spark has read."""
    ways = {
        "incremental": readings.by_incremental,
        "full": readings.by_full,
        "merge": readings.by_merge,
        "duckdb incremental": readings.by_duckdb_incremental,
        "duckdb full": readings.by_duckdb_full,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    megabytes: dict[str, list[float]] = {name: [] for name in ways}
    # The first round warms Spark.
    for round_ in range(rounds + 1):
        readings.change(int(readings.days * A_DAY * fraction), round_)
        for name, bring_up_to_date in ways.items():
            before = readings.server.io_counters().read_chars
            seconds[name].append(timed(bring_up_to_date))
            megabytes[name].append((readings.server.io_counters().read_chars - before) / 1e6)
        readings.check()
    first, second = ({name: statistics.median(each[1:]) for name, each in found.items()} for found in (seconds, megabytes))
    return first, second


def compared(
    engines: tuple[Spark, DuckDB], instance: dg.DagsterInstance, server: psutil.Process, kind: Kind, rows: int, rounds: int
) -> bool:
    """Measure; return whether the aims are met."""
    many, few = (
        Input(*engines, instance, kind, name, max(1, days), server)
        for name, days in (("readings", rows // A_DAY), ("fewer_readings", rows // A_DAY // 10))
    )
    ratios = list[tuple[str, float, float | None, bool]]()
    ways, reading = ("incremental", "full", "merge", "duckdb incremental", "duckdb full"), ("incremental", "full", "merge")
    shown = Table("changed", *(f"{way} s" for way in ways), *(f"{way} MB read" for way in reading))
    passes = dict[float, float]()
    many.create()
    for fraction, (aim, duckdb_aim) in FRACTIONS.items():
        found, read = measured(many, fraction, rounds)
        passes[fraction] = found["incremental"]
        shown.add_row(f"{fraction:.2%}", *(f"{found[way]:.1f}" for way in ways), *(f"{read[way]:.0f}" for way in reading))
        ratios.append(
            (f"{fraction:.2%} changed: bytes read, full against incremental", read["full"] / read["incremental"], None, True)
        )
        ratios.append((f"{fraction:.2%} changed: full against incremental", found["full"] / found["incremental"], aim, True))
        ratios.append(
            (f"{fraction:.2%} changed: MERGE against incremental", found["merge"] / found["incremental"], None, True)
        )
        by_duckdb, label = found["duckdb incremental"], f"{fraction:.2%} changed, DuckDB"
        ratios.append((f"{label}: full against incremental", found["duckdb full"] / by_duckdb, duckdb_aim, True))
        ratios.append((f"{label}: Spark's incremental against it", found["incremental"] / by_duckdb, FASTER_AIM, True))
    few.create()
    found, read = measured(few, 0.1, rounds)
    label = "1% of all, in a tenth of the rows"
    shown.add_row(label, *(f"{found[way]:.1f}" for way in ways), *(f"{read[way]:.0f}" for way in reading))
    console.print(shown)
    ratios.append(
        ("1% changed: incremental, all rows against a tenth of them", passes[0.01] / found["incremental"], GROWTH_AIM, False)
    )
    return within_bounds(ratios)


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the input (default 10,000,000)")
    parser.add_argument("--rounds", type=int, default=1, help="counted rounds (default 1)")
    parser.add_argument("--totals", action="store_true", help="totals of days and sensors instead of rows")
    given = parser.parse_args()
    kind = TOTALS if given.totals else ROWS
    with warm_stack() as stack:
        (stack.home / "dagster").mkdir()
        with dg.DagsterInstance.local_temp(str(stack.home / "dagster")) as instance:
            engines = stack.spark, DuckDB(catalog=stack.spark.catalog)
            return 0 if compared(engines, instance, stack.server, kind, given.rows, given.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
