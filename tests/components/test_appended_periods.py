"""Strategy `append_by_period`, by both engines: a period is taken once, whatever happens to a pass or an input."""

import random
from collections import Counter
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK
from ratify_lakehouse.components.strategies.appended_periods import PeriodQuery, materialize_periods
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ExpectationFailed, QueryMismatch, TableMissing
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.declared_projects import Project, causes, failed_checks, metadata
from tests.components.incremental_tables import KilledPass, killed, moved, without_pictures
from tests.engines.lakehouse import Lakehouse

ENGINES = pytest.mark.parametrize("engine", ["duckdb", "spark"])
DUCKDB_FIRST = pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.long)])
SQL = "SELECT day, CAST(sum(v) AS BIGINT) AS total, now() AS taken_at FROM {input} GROUP BY day"


class PeriodTable:
    """A table, its input, and what the table has to be: for each period what it was when it was taken."""

    def __init__(self, lake: Lakehouse, engine: str, seed: str, patch: pytest.MonkeyPatch) -> None:
        without_pictures(patch)
        self.chance = random.Random(seed)  # noqa: S311 rows, not keys
        self.lake, self.engine, self.patch = lake, engine, patch
        self.schema = f"s_{uuid4().hex[:10]}"
        self.input, self.rules = f"{self.schema}_in.a", tuple[Expectation, ...]()
        lake.spark.catalog.ensure_schemas((f"{self.schema}_in", self.schema))
        lake.quick(f"CREATE TABLE {self.input} (day DATE, v INT) USING DELTA")
        self.source, self.taken, self.passes = dict[int | None, int](), dict[int, int](), 0
        self.writes = (DuckDBSession, "append") if engine == "duckdb" else (Spark, "merge_following")

    def change(self) -> None:
        """New periods, corrections of old ones, and some that are gone."""
        for _ in range(self.chance.randint(1, 3)):
            self.source[self.chance.randint(1, 9)] = self.chance.randint(0, 99)
        if len(self.source) > 2 and self.chance.random() < 0.3:
            del self.source[self.chance.choice(list(self.source))]
        self.write()

    def write(self) -> None:
        days = (f"(DATE '2026-01-0{day}', {v})" if day else f"(NULL, {v})" for day, v in self.source.items())
        self.lake.quick(f"INSERT OVERWRITE {self.input} VALUES {', '.join(days)}")

    def run(self) -> list[Any]:
        session = self.lake.another_duckdb().session() if self.engine == "duckdb" else nullcontext()
        with session as opened:
            return list(materialize_periods(self.lake.spark, opened, self.declared()))

    def take(self, only: int | None = None) -> int:
        """Take the missing periods into the model, in their order, and return how many."""
        missing = [day for day in sorted(day for day in self.source if day is not None) if day not in self.taken][:only]
        self.taken |= {day: self.source[day] for day in missing}
        return len(missing)

    def declared(self) -> PeriodQuery:
        by_duckdb = self.engine == "duckdb"
        dialect = DUCKDB if by_duckdb else SPARK
        declaration = TableDeclaration(
            layer=self.schema,
            name="t",
            columns=(),
            comment="Of a test",
            writer=Engine.DUCKDB if by_duckdb else Engine.SPARK,
            operations=frozenset({"WRITE" if by_duckdb else "MERGE"}),
            inferred=True,
        )
        query = TableQuery.parsed(SQL.format(input=self.input), "duckdb" if by_duckdb else "databricks", "t")
        expectations = Expectations(self.rules, identity=("day",), dialect=dialect)
        return PeriodQuery(declaration, query, expectations, keys=("day",), period="day")

    def checked_pass(self) -> dict[str, Any]:
        """A pass: the missing periods, by DuckDB each in a version, by Spark all in one."""
        before = max(self.version, 0)
        (made, *_) = [each for each in self.run() if isinstance(each, dg.MaterializeResult)]
        added = self.take()
        assert self.version - before == (added if self.engine == "duckdb" else min(added, 1))
        found = dict(made.metadata or {})
        assert (found["periods added"], found["rows added"]) == (added, added)
        assert found["dagster/row_count"] == len(self.taken)
        self.compare()
        return found

    def killed_pass(self) -> None:
        """A pass that dies before or after a commit: what it has committed stays, each period whole."""
        after, calls = self.chance.random() < 0.5, self.chance.choice((1, 2)) if self.engine == "duckdb" else 1
        with killed(self.patch, *self.writes, after=after, calls=calls):
            try:
                self.run()
            except KilledPass:
                self.take((calls if after else calls - 1) if self.engine == "duckdb" else None if after else 0)
            else:
                self.take()
        self.compare()

    def passes_at_once(self) -> None:
        """A pass comes to its commit after another one, before or after which the input changed."""
        early, first = self.chance.random() < 0.5, dict(self.source)
        overtaken = list[bool]()

        def another() -> None:
            if early:
                self.change()
            self.run()
            overtaken.append(bool(self.take()))
            if not early:
                self.change()

        with moved(self.patch, *self.writes, another):
            self.run()
        retried = self.engine == "spark" and overtaken == [True]
        # DuckDB does not begin again: it appends those periods of its own that the other pass did not.
        now, self.source = self.source, self.source if retried else first
        self.take()
        self.source = now
        self.compare()

    def compare(self) -> None:
        found = self.lake.quick(f"SELECT day(day) AS day, total FROM {self.schema}.t") if self.version >= 0 else []
        assert Counter((row["day"], row["total"]) for row in found) == Counter(self.taken.items())

    @property
    def version(self) -> int:
        try:
            return self.lake.catalog.version(f"ratify.{self.schema}.t")
        except TableMissing:
            return -1


def sequence(table: PeriodTable, steps: int) -> None:
    table.change()
    table.checked_pass()
    for _ in range(steps):
        table.change()
        table.chance.choice((table.checked_pass, table.killed_pass, table.passes_at_once))()
    table.checked_pass()
    # Without a new period there is no version.
    assert table.checked_pass()["periods added"] == 0


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
@ENGINES
def test_a_period_is_taken_once(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    table = PeriodTable(lake, engine, "short", monkeypatch)
    table.change()
    table.killed_pass()
    table.passes_at_once()
    table.checked_pass()


@pytest.mark.stack
@pytest.mark.long
@ENGINES
@pytest.mark.parametrize("seed", range(10))
def test_a_period_is_taken_once_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: str, seed: int) -> None:
    sequence(PeriodTable(lake, engine, f"{engine}{seed}", monkeypatch), 12)


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
@DUCKDB_FIRST
def test_nothing_is_written_that_is_wrong(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    table = PeriodTable(lake, engine, "wrong", monkeypatch)
    table.source = {1: 10, 2: -1, None: 3}
    table.write()
    with pytest.raises(
        QueryMismatch, match=r"day is NULL in 1 rows, which therefore belong to no period. Nothing was written"
    ):
        table.run()
    assert table.version == -1
    # A row that an expectation drops needs none.
    table.rules = (
        Expectation("has_a_day", "day IS NOT NULL", Action.DROP),
        Expectation("is_positive", "total > 0", Action.FAIL),
    )
    with pytest.raises(ExpectationFailed, match=r"Nothing was written to .*: of \d+ rows?, \d+ fails? is_positive\."):
        table.run()
    assert table.version == -1
    table.rules = (table.rules[0], Expectation("is_positive", "total > 0"))
    results = {each.check_name: each for each in table.run() if isinstance(each, dg.AssetCheckResult)}
    assert (results["has_a_day"].passed, results["is_positive"].passed) == (False, False)
    table.take()
    table.compare()
    # What the table has still fails, though this pass computed none of it; a changed period stays.
    table.source = {1: 11, 3: 30}
    table.write()
    results = {each.check_name: each for each in table.run() if isinstance(each, dg.AssetCheckResult)}
    assert results["has_a_day"].passed
    assert not results["is_positive"].passed
    assert dict(results["is_positive"].metadata or {})["failed in all"].value == 1
    table.take()
    table.compare()
    # DuckDB takes a period once, also if its rows were deleted, and says so.
    lake.quick(f"DELETE FROM {table.schema}.t WHERE day = DATE '2026-01-03'")
    (made, *_) = [each for each in table.run() if isinstance(each, dg.MaterializeResult)]
    if engine == "duckdb":
        assert dict(made.metadata or {})["periods not taken again"] == 1
        del table.taken[3]
    table.compare()


DECLARED = """
type: ratify_lakehouse.SqlTable
attributes:
  description: Days, as they were first known
  engine: ENGINE
  strategy: append_by_period
  append_by_period: {period: day}
  keys: [name]
  external: [INPUT]
"""


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
@DUCKDB_FIRST
def test_a_declared_table_has_its_metadata_and_passes_its_checks(lake: Lakehouse, project: Project, engine: str) -> None:
    bronze, gold = project.schema("bronze"), project.schema("gold")
    lake.spark.catalog.ensure_schemas((bronze,))
    lake.quick(f"CREATE TABLE {bronze}.a (day STRING, name STRING, v INT) USING DELTA")
    lake.quick(f"INSERT INTO {bronze}.a VALUES ('it\\'s 1', 'x', 1), ('it\\'s 1', 'y', 2), ('2', 'x', 3)")
    declaration = DECLARED.replace("ENGINE", engine).replace("INPUT", f"{bronze}.a")
    project.write("gold", "t", declaration, "SELECT day, name, v FROM bronze.a")
    with dg.DagsterInstance.ephemeral() as instance:

        def run() -> dg.ExecuteInProcessResult:
            declared = project.tables.definitions
            resources = {"spark": lake.spark, "duckdb": lake.another_duckdb()}
            given = dg.Definitions(assets=declared.assets, asset_checks=declared.asset_checks, resources=resources)
            job = given.resolve_implicit_global_asset_job_def()
            return job.execute_in_process(instance=instance, raise_on_error=False)

        done = run()
        assert done.success, causes(done)
        found = metadata(done, "gold", "t")
        assert (found["strategy"], found["periods added"], found["dagster/row_count"]) == ("append_by_period", 2, 3)
        lake.quick(f"INSERT INTO {bronze}.a VALUES ('2', 'z', 9), ('3', 'x', 4)")
        done = run()
        assert done.success, causes(done)
        assert failed_checks(done) == set()
        assert metadata(done, "gold", "t")["rows added"] == 1
        rows = lake.quick(f"SELECT * FROM {gold}.t ORDER BY v")
        assert [tuple(row.values()) for row in rows] == [
            ("it's 1", "x", 1),
            ("it's 1", "y", 2),
            ("2", "x", 3),
            ("3", "x", 4),
        ]
        # Two rows of one period with the same keys.
        lake.quick(f"INSERT INTO {bronze}.a VALUES ('4', 'x', 5), ('4', 'x', 6)")
        assert "several rows of the query have the same day, name: day='4', name='x'" in causes(run())["t"]
    table = project.tables.components[f"{gold}.t"]
    assert table.plan(lake.spark, lake.duckdb).computes == "new rows"  # pyright: ignore[reportAttributeAccessIssue]
