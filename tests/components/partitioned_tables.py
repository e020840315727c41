"""Two inputs and the tables with partitions that are made of them, for tests: they change, are run and are compared."""

import random
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.sql_table_component import PARTITIONS_TAG, STALE, SqlTable
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.strategies.table_passes import stale_partitions
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from tests.components.begun_tables import begin_declared, values_of
from tests.components.declared_projects import Project, causes
from tests.components.incremental_tables import KilledPass, killed
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

DAYS = [f"2013-01-{day:02}" for day in range(1, 6)]
DAILY = "{column: day, daily: {start: 2013-01-01, end: 2013-01-06}}"
QUERIES = {
    "days": (
        "[day, k]",
        DAILY,
        """SELECT a.day, a.k, count(*) AS n, CAST(sum(a.v) AS BIGINT) AS total, max(b.w) AS w
        FROM bronze.a AS a LEFT JOIN bronze.b AS b ON a.k = b.k GROUP BY a.day, a.k""",
    ),
    "places": ("[place]", "{column: place, values: [EWR, JFK]}", "SELECT place, count(*) AS n FROM bronze.a GROUP BY place"),
    "totals": ("[day]", DAILY, "SELECT day, CAST(sum(total) AS BIGINT) AS total FROM gold.days GROUP BY day"),
}
DECLARED = {"days": "day BETWEEN '2013-01-01' AND '2013-01-05'", "places": "place IN ('EWR', 'JFK')", "totals": "true"}
"""Which rows of the queries belong to a partition."""

COLUMN = {"days": "day", "places": "place", "totals": "day"}


class Partitioned:
    """Two inputs, and three tables with partitions that are made of them, one of another one."""

    def __init__(
        self, lake: Lakehouse | Sparkless, project: Project, instance: dg.DagsterInstance, engine: str = "spark"
    ) -> None:
        self.lake, self.project, self.instance, self.engine = lake, project, instance, engine
        self.chance = random.Random(1)  # noqa: S311 changes, not keys
        self.bronze, self.gold = project.schema("bronze"), project.schema("gold")
        lake.spark.catalog.ensure_schemas((self.bronze, self.gold))
        create = "CREATE TABLE {}.{} ({}) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none', {})"
        feed = "'delta.enableChangeDataFeed' = 'true'"
        lake.quick(create.format(self.bronze, "a", "id INT, day DATE, k INT, place STRING, v INT", feed))
        lake.quick(create.format(self.bronze, "b", "k INT, w INT", "'ratify.owner' = 'tests'"))
        for name in QUERIES:
            self.declare(name)

    def sql(self, text: str) -> str:
        return text.replace("bronze.", f"{self.bronze}.").replace("gold.", f"{self.gold}.")

    def declare(self, name: str, text: str = "") -> None:
        keys, partitions, query = QUERIES[name]
        external = f"[{self.bronze}.a, {self.bronze}.b]"
        attributes = f"description: D, engine: {self.engine}, keys: {keys}, strategy: partition, partitions: {partitions}"
        attributes += f", external: {external}"
        declared = f"type: ratify_lakehouse.SqlTable\nattributes: {{{attributes}}}\n"
        self.project.write("gold", name, declared, self.sql(text or query))

    def only(self, *names: str) -> None:
        for other in set(QUERIES) - {*names}:
            shutil.rmtree(self.project.root / self.gold / other)

    def begin(self, name: str, where: str = "true", **recorded: Any) -> None:
        """Make a table as a first run without chosen partitions leaves it, of some of its rows: see `begin_declared`."""
        query = self.sql(f"SELECT * FROM ({QUERIES[name][2]}) WHERE {DECLARED[name]} AND {where}")
        begin_declared(self.lake, self.component(name), values_of(self.lake, query, 0), **recorded)
        assert self.stored(name) == self.expected(name, where)

    def component(self, name: str) -> SqlTable:
        found = self.project.tables.components[f"{self.gold}.{name}"]
        assert isinstance(found, SqlTable)
        return found

    def up_to_date(self, name: str) -> Finding:
        """Return what the check finds that names the stale partitions of a table."""
        component = self.component(name)
        assert component.partitioned
        with self.session() as session:
            return stale_partitions(self.lake.spark, component.table, component.partitioned, session).finding()

    def session(self) -> AbstractContextManager[DuckDBSession | None]:
        return self.lake.duckdb.session() if self.engine == "duckdb" else nullcontext()

    @property
    def commit(self) -> tuple[type, str]:
        """What makes the commit of a pass."""
        return (RowsByDuckDB, "_commit") if self.engine == "duckdb" else (Spark, "merge_changes")

    def run(
        self, *chosen: str, tables: Sequence[str] = (), checks: bool = False, stale: bool = False
    ) -> dg.ExecuteInProcessResult:
        """Run without chosen partitions, or with the ones from the first to the last, or with the stale ones of these."""
        declared = self.project.tables.definitions
        given = dg.Definitions(
            assets=declared.assets,
            asset_checks=declared.asset_checks if checks else None,
            resources={"spark": self.lake.spark, "duckdb": self.lake.duckdb},
        )
        tags = (
            {
                "dagster/asset_partition_range_start": chosen[0],
                "dagster/asset_partition_range_end": chosen[-1],
            }
            if chosen
            else {}
        )
        tags |= {PARTITIONS_TAG: STALE} if stale else {}
        keys = [dg.AssetKey(["ratify", self.gold, name]) for name in tables]
        return given.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=keys or None, tags=tags
        )

    def dies_at_its_commit(self, patch: pytest.MonkeyPatch, *, committed: bool) -> None:
        """Run two partitions of the table with version 1, and let the run be killed before its commit, or after it."""
        with killed(patch, *self.commit, after=committed, calls=1) as made, suppress(KilledPass):
            self.run(*DAYS[1:3])
        assert made
        assert self.version("gold.days") == 1 + committed

    def rows(self, sql: str) -> list[str]:
        return sorted(str(tuple(row.values())) for row in self.lake.quick(self.sql(sql)))

    def insert(self, *rows: str) -> None:
        self.lake.quick(f"INSERT INTO {self.bronze}.a VALUES {', '.join(rows)}")

    def change(self) -> None:
        """One random change of an input."""
        value = self.chance.randint
        day = f"DATE '2013-01-{value(1, 7):02}'"
        place = self.chance.choice(("'EWR'", "'JFK'", "'LGA'", "NULL"))
        statements = [
            f"INSERT INTO bronze.a VALUES ({value(1, 30)}, {day}, {value(0, 3)}, {place}, {value(-9, 9)})",
            f"INSERT INTO bronze.a VALUES ({value(1, 30)}, NULL, {value(0, 3)}, {place}, {value(-9, 9)})",
            f"UPDATE bronze.a SET v = v + 1, day = {day} WHERE id % 5 = {value(0, 4)}",
            f"UPDATE bronze.a SET place = {place} WHERE id % 5 = {value(0, 4)}",
            f"DELETE FROM bronze.a WHERE id % 7 = {value(0, 6)}",
            f"RESTORE TABLE bronze.a TO VERSION AS OF {value(0, self.version('bronze.a') or 0)}",
            f"INSERT INTO bronze.b VALUES ({value(0, 3)}, {value(0, 9)})",
            f"DELETE FROM bronze.b WHERE k = {value(0, 3)}",
        ]
        self.lake.run(self.sql(self.chance.choice(statements)))

    def version(self, name: str) -> int | None:
        try:
            return self.lake.catalog.version(f"ratify.{self.sql(name)}")
        except TableMissing:
            return None

    def stored(self, name: str, where: str = "true") -> list[str]:
        return self.rows(f"SELECT * FROM gold.{name} WHERE {where}") if self.version(f"gold.{name}") is not None else []

    def expected(self, name: str, where: str = "true") -> list[str]:
        return self.rows(f"SELECT * FROM ({QUERIES[name][2]}) WHERE {DECLARED[name]} AND {where}")

    def check(self) -> dict[str, Any]:
        """Run without chosen partitions, compare each table with its query, and return what the run said of them."""
        before = {name: (self.version(f"gold.{name}"), self.stored(name)) for name in QUERIES}
        found = dict[str, Any]()
        # As the sensors do it.
        for done in (self.run(tables=["days", "places"]), self.run(DAYS[0], DAYS[-1], tables=["totals"], stale=True)):
            assert done.success, causes(done)
            found |= said(done)
        for name, (version, stored) in before.items():
            expected = self.expected(name)
            assert self.stored(name) == expected, name
            now = self.version(f"gold.{name}")
            assert now is not None
            if version is not None:
                # A computation of all of them is recorded.
                assert now - version == int(stored != expected or "computed in full because" in found[name]), name
        return found

    def choose(self, name: str, chosen: Sequence[str]) -> None:
        """Run with chosen partitions: these equal the query, all others are as before, in at most one version."""
        of = f"{COLUMN[name]} IN ({', '.join(map(repr, chosen))})"
        others, version, stored = self.stored(name, f"NOT {of}"), self.version(f"gold.{name}"), self.stored(name, of)
        done = self.run(*chosen, tables=[name])
        assert done.success, causes(done)
        assert self.stored(name, f"NOT {of}") == others
        expected = self.expected(name, of)
        assert self.stored(name, of) == expected
        now = self.version(f"gold.{name}")
        assert now is not None
        if version is not None:
            assert now - version == int(stored != expected)
        assert reported(done, name) == list(chosen)


def said(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    made = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return {
        each.asset_key.path[2]: {name: value.value for name, value in each.metadata.items()}
        for each in made
        if "strategy" in each.metadata
    }


def reported(done: dg.ExecuteInProcessResult, name: str) -> list[str]:
    """The partitions of a table that a run reports."""
    made = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return sorted(each.partition for each in made if each.asset_key.path[2] == name and each.partition)


def evaluated(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    assert done.success, causes(done)
    return {check.check_name: check for check in done.get_asset_check_evaluations()}
