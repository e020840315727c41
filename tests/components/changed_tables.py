"""Two inputs, and tables of the strategy `incremental` that a project declares over them."""

import random
import re
import shutil
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.errors import TableMissing
from tests.components.declared_projects import Project, causes, metadata
from tests.engines.lakehouse import Lakehouse
from tests.engines.live_tables import read_live

QUERIES = {
    "totals": (
        "k",
        """SELECT k, count(*) AS n, sum(v) AS total, min(v) AS least, percentile(v, 0.5) AS middle,
          count(DISTINCT v) AS different FROM bronze.a WHERE v IS NULL OR v > -5 GROUP BY k""",
    ),
    "joined": (
        "id",
        """WITH best AS (SELECT k, max(w) AS w FROM bronze.b GROUP BY k)
        SELECT a.id, a.k, best.w, a.v FROM bronze.a AS a LEFT JOIN best ON a.k = best.k""",
    ),
    "running": ("id", "SELECT id, k, sum(v) OVER (PARTITION BY k ORDER BY id) AS total FROM bronze.a"),
}

BY_DUCKDB = {
    **QUERIES,
    "totals": (
        "k",
        """SELECT k, count(*) AS n, sum(v) AS total, min(v) AS least, quantile_cont(v, 0.5) AS middle,
          count(DISTINCT v) AS different FROM bronze.a WHERE v IS NULL OR v > -5 GROUP BY k""",
    ),
}


class Tables:
    """Two inputs, one with a change data feed, and the tables that an engine makes of them."""

    def __init__(
        self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance, seed: int, engine: str = "spark"
    ) -> None:
        self.engine = engine
        self.lake, self.project, self.instance = lake, project, instance
        self.chance = random.Random(seed)  # noqa: S311 changes, not keys
        self.bronze = project.schema("bronze")
        lake.spark.catalog.ensure_schemas((self.bronze, project.schema("gold")))
        create = "CREATE TABLE {} ({}) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none', {})"
        feed = "'delta.enableChangeDataFeed' = 'true'"
        lake.quick(create.format(f"{self.bronze}.a", "id INT, k INT, v INT", feed))
        lake.quick(create.format(f"{self.bronze}.b", "k INT, w INT", "'ratify.owner' = 'tests'"))
        self.queries = dict(BY_DUCKDB if engine == "duckdb" else QUERIES)
        for name in self.queries:
            self.declare(name)

    def declare(self, name: str) -> None:
        key, text = self.queries[name]
        inputs = sorted(set(re.findall(r"bronze\.\w", text)))
        external = ", ".join(each.replace("bronze", self.bronze) for each in inputs)
        attributes = (
            f"{{description: D, engine: {self.engine}, keys: [{key}], strategy: incremental, external: [{external}]}}"
        )
        self.project.write("gold", name, f"type: ratify_lakehouse.SqlTable\nattributes: {attributes}\n", text)

    def run(self) -> dg.ExecuteInProcessResult:
        declared = self.project.tables.definitions
        resources = {"spark": self.lake.spark, "duckdb": self.lake.duckdb}
        job = dg.Definitions(assets=declared.assets, resources=resources).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def rows(self, sql: str) -> list[str]:
        return sorted(str(tuple(row.values())) for row in self.lake.spark.rows(self.lake.spark.sql(sql)))

    def version(self, name: str) -> int:
        return self.lake.spark.catalog.version(f"ratify.{name}")

    def change(self) -> None:
        """One random change of an input."""
        value = self.chance.randint
        ids = self.chance.sample(range(1, 21), value(1, 3))
        values = ", ".join(f"({number}, {value(0, 3)}, {value(-9, 9)})" for number in ids)
        statements = [
            f"""INSERT INTO {self.bronze}.a SELECT * FROM VALUES {values} AS t(id, k, v)
            WHERE id NOT IN (SELECT id FROM {self.bronze}.a)""",
            f"UPDATE {self.bronze}.a SET v = v + 1, k = {value(0, 3)} WHERE id % 5 = {value(0, 4)}",
            f"DELETE FROM {self.bronze}.a WHERE id % 7 = {value(0, 6)}",
            f"""MERGE INTO {self.bronze}.a AS t USING (SELECT {value(1, 20)} AS id, {value(0, 3)} AS k, NULL AS v) AS s
            ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
            f"RESTORE TABLE {self.bronze}.a TO VERSION AS OF {value(0, self.version(f'{self.bronze}.a'))}",
            f"INSERT INTO {self.bronze}.b VALUES ({value(0, 3)}, {value(0, 9)})",
            f"DELETE FROM {self.bronze}.b WHERE k = {value(0, 3)}",
        ]
        self.lake.run(self.chance.choice(statements))

    def check(self) -> dict[str, dict[str, Any]]:
        """Run, compare each table with its query, and return what the run said of it."""
        before = {name: self.version_or_none(name) for name in self.queries}
        stored = {name: self.stored(name) if before[name] is not None else None for name in self.queries}
        done = self.run()
        assert done.success, causes(done)
        for name in self.queries:
            expected = self.expected(name)
            assert self.stored(name) == expected, name
            version = self.version_or_none(name)
            assert version is not None
            if before[name] is not None:
                assert version - before[name] == int(stored[name] != expected), name
        return {name: metadata(done, "gold", name) for name in self.queries}

    def expected(self, name: str) -> list[str]:
        schema = f"uc.{self.bronze}." if self.engine == "duckdb" else f"{self.bronze}."
        text = re.sub(r"\bbronze\.", schema, self.queries[name][1])
        return sorted(map(str, read_live(self.lake.duckdb, text))) if self.engine == "duckdb" else self.rows(text)

    def stored(self, name: str) -> list[str]:
        found = self.lake.quick(f"SELECT * FROM {self.project.schema('gold')}.{name}")
        return sorted(str(tuple(row.values())) for row in found)

    def version_or_none(self, name: str) -> int | None:
        try:
            return self.version(f"{self.project.schema('gold')}.{name}")
        except TableMissing:
            return None


@pytest.fixture
def tables(lake: Lakehouse, project: Project) -> Iterator[Tables]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Tables(lake, project, instance, 1)


@pytest.fixture
def filled(tables: Tables) -> Tables:
    tables.lake.quick(f"INSERT INTO {tables.bronze}.a VALUES (1, 1, 1), (2, 1, 2), (3, 2, NULL), (4, NULL, 4), (5, 3, 5)")
    tables.lake.quick(f"INSERT INTO {tables.bronze}.b VALUES (1, 1), (2, 2)")
    return tables


def only(tables: Tables, name: str) -> None:
    for other in set(QUERIES) - {name}:
        del tables.queries[other]
        shutil.rmtree(tables.project.root / tables.project.schema("gold") / other)
