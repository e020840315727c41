"""Tables of the strategy `append`: after changes of their inputs they are as a model in plain Python says."""

import random
import re
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components import sql_table_component
from ratify_lakehouse.components.checks.check_definitions import REPORTED
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.strategies import pass_scope
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.table_passes import materialize_appended
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued, TableMissing
from ratify_lakehouse.sql.row_wise_inputs import row_wise_inputs
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.declared_projects import Project, causes, metadata
from tests.engines.lakehouse import Lakehouse

SQL = "SELECT a.id, a.v * {factor} AS v, b.w FROM bronze.a AS a LEFT JOIN bronze.b AS b ON a.k = b.k WHERE a.v > -5"
UPDATE = "UPDATE {a} SET v = v + 1 WHERE id = 1"


class Model:
    """The inputs, and the table, in plain Python: rows of `a` that it has not taken yet, joined with `b` as it is."""

    def __init__(self) -> None:
        self.a, self.taken = list[tuple[int, int, int]](), 0
        self.b, self.table, self.factor = dict[int, int](), list[tuple[int, int, int | None]](), 1

    def appends(self) -> int:
        new = [(n, v * self.factor, self.b.get(k)) for n, k, v in self.a[self.taken :] if v > -5]
        if new:
            # Rows that the query leaves out are read again until a commit records that they were.
            self.taken = len(self.a)
            self.table += new
        return len(new)


class Appended:
    """The same in the lakehouse, computed by an engine."""

    def __init__(self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance, engine: str) -> None:
        self.engine = engine
        self.lake, self.project, self.instance, self.model = lake, project, instance, Model()
        bronze, self.gold = project.schema("bronze"), f"{project.schema('gold')}.t"
        self.a, self.b = f"{bronze}.a", f"{bronze}.b"
        lake.spark.catalog.ensure_schemas((bronze, project.schema("gold")))
        create = "CREATE TABLE {} ({}) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
        lake.quick(create.format(self.a, "id INT, k INT, v INT"))
        lake.quick(create.format(self.b, "k INT, w INT"))
        self.declare()

    def declare(self, more: str = "") -> None:
        external = f"external: [{self.a}, {self.b}]"
        attributes = f"{{description: D, engine: {self.engine}, strategy: append, {external}{more}}}"
        declaration = f"type: ratify_lakehouse.SqlTable\nattributes: {attributes}\n"
        self.project.write("gold", "t", declaration, SQL.format(factor=self.model.factor))

    def insert(self, chance: random.Random, number: int) -> None:
        first = len(self.model.a) + 1
        rows = [(first + n, chance.randint(0, 3), chance.randint(-9, 9)) for n in range(number)]
        self.model.a += rows
        values = ", ".join(map(str, rows))
        if chance.random() < 0.5:
            self.lake.quick(f"INSERT INTO {self.a} VALUES {values}")
        else:
            self.lake.run(
                f"MERGE INTO {self.a} AS t USING (SELECT * FROM VALUES {values} AS s(id, k, v)) AS s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT *"
            )

    def set_b(self, k: int, w: int) -> None:
        known = k in self.model.b
        self.model.b[k] = w
        self.lake.quick(f"UPDATE {self.b} SET w = {w} WHERE k = {k}" if known else f"INSERT INTO {self.b} VALUES ({k}, {w})")

    def run(self, *, full_refresh: bool = False, checks: bool = False) -> dg.ExecuteInProcessResult:
        declared = self.project.tables.definitions
        resources = {"spark": self.lake.spark, "duckdb": self.lake.another_duckdb()}
        job = dg.Definitions(
            assets=declared.assets, asset_checks=declared.asset_checks if checks else None, resources=resources
        ).resolve_implicit_global_asset_job_def()
        step = f"{self.project.schema('gold')}__t"
        given = {"ops": {step: {"config": {"full_refresh": full_refresh}}}}
        return job.execute_in_process(instance=self.instance, run_config=given, raise_on_error=False)

    def planned(self) -> PassPlan:
        table = self.project.tables.components[self.gold]
        assert isinstance(table, SqlTable)
        return table.plan(self.lake.spark, self.lake.duckdb)

    @property
    def version(self) -> int:
        try:
            return self.lake.catalog.version(f"ratify.{self.gold}")
        except TableMissing:
            return 0

    def agrees(self) -> None:
        found = self.lake.quick(f"SELECT id, v, w FROM {self.gold}")
        assert sorted(map(str, (tuple(row.values()) for row in found))) == sorted(map(str, self.model.table))

    def check(self) -> dict[str, Any]:
        """A pass: the rows of the model, in one version, or none for none; and what Dagster's checks of it say."""
        before, done = self.version, self.run(checks=True)
        assert done.success, causes(done)
        assert self.version - before == int(self.model.appends() > 0)
        self.agrees()
        failed = {check.check_name: check.description for check in done.get_asset_check_evaluations() if not check.passed}
        # A pass of which nothing was reported, because it was killed or ran beside, is an external commit.
        external = re.compile(r"[\d,]+ commits? that no run of this table reported")
        assert all(name == REPORTED and external.match(text or "") for name, text in failed.items()), failed
        return metadata(done, "gold", "t")


@pytest.fixture
def appended(
    lake: Lakehouse, project: Project, quick_creation: None, no_previews: None, request: pytest.FixtureRequest
) -> Iterator[Appended]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Appended(lake, project, instance, getattr(request, "param", "spark"))


def killed(appended: Appended, monkeypatch: pytest.MonkeyPatch, *, committed: bool) -> None:
    write = Spark.merge_following

    def dying(*arguments: Any, **more: Any) -> WriteResult:
        if committed:
            write(*arguments, **more)
        raise KeyboardInterrupt("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Spark, "merge_following", dying)
        appended.run()
    if committed:
        appended.model.appends()
    appended.agrees()


def at_once(appended: Appended, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass comes to its commit after another one, which has read a row more."""
    write, passes = Spark.merge_following, materialize_appended
    seen = list[tuple[tuple[Any, ...], dict[str, Any]]]()

    def seeing(*arguments: Any, **more: Any) -> Iterator[Any]:
        seen.append((arguments, more))
        yield from passes(*arguments, **more)

    def after_another(*arguments: Any, **more: Any) -> WriteResult:
        patch.setattr(Spark, "merge_following", write)
        appended.insert(chance, 1)
        of_other, named = seen[0]
        assert list(passes(*of_other, **named))
        return write(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(sql_table_component, "materialize_appended", seeing)
        patch.setattr(Spark, "merge_following", after_another)
        done = appended.run()
    assert done.success, causes(done)
    appended.model.appends()
    appended.agrees()


def rewritten(appended: Appended, statement: str) -> None:
    """A rewrite of the driving input is an error that says what to do; a full refresh, in one commit, does it."""
    before = appended.version
    appended.lake.run(statement.format(a=appended.a))
    with pytest.raises(HistoryNotContinued, match="full_refresh: true"):
        appended.planned()
    done = appended.run()
    assert not done.success
    assert "cannot continue from its last commit" in causes(done)["t"]
    assert "full_refresh: true" in causes(done)["t"]
    assert appended.version == before
    appended.agrees()
    done = appended.run(full_refresh=True)
    assert done.success, causes(done)
    assert appended.version == before + 1
    model = appended.model
    model.a = [tuple(row.values()) for row in appended.lake.look(f"SELECT id, k, v FROM uc.{appended.a} ORDER BY id")]
    model.table, model.taken = [], 0
    model.appends()
    appended.agrees()


@pytest.mark.stack
@pytest.mark.parametrize("appended", ["duckdb", pytest.param("spark", marks=pytest.mark.long)], indirect=True)
def test_a_plan_says_what_the_next_pass_appends(appended: Appended) -> None:
    appended.set_b(1, 10)
    appended.model.a = [(1, 1, 1), (2, 2, 2)]
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (1, 1, 1), (2, 2, 2)")
    a, b = f"ratify.{appended.a}", f"ratify.{appended.b}"
    expected = PassPlan("all rows", "no commit of it has rows of an input yet", {a: (None, 1), b: (None, 1)})
    assert appended.planned() == expected
    appended.check()
    # What was appended does not change with the other inputs.
    appended.set_b(1, 11)
    assert appended.planned() == PassPlan("nothing", "", {a: (1, 1), b: (1, 2)})
    appended.model.a.append((3, 1, 3))
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (3, 1, 3)")
    assert appended.planned() == PassPlan("new rows", "", {a: (1, 2), b: (1, 2)})
    appended.model.factor = 3
    appended.declare()
    assert "has changed" in appended.check()["continued although"]


# tests/components/test_appended_sequences.py has a short form.
@pytest.mark.stack
@pytest.mark.long
def test_rows_are_appended_once(appended: Appended, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)  # noqa: S311 rows, not keys
    appended.model.a = [(1, 1, 1), (2, 2, 2)]
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (1, 1, 1), (2, 2, 2)")
    appended.check()
    appended.model.a.append((3, 1, 3))
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (3, 1, 3)")
    killed(appended, monkeypatch, committed=False)
    killed(appended, monkeypatch, committed=True)
    appended.model.a.append((4, 1, 4))
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (4, 1, 4)")
    at_once(appended, chance, monkeypatch)
    assert "continued although" not in appended.check()
    rewritten(appended, UPDATE)


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.parametrize(("limit", "value"), [("VERSIONS_READ_AGAIN", 2), ("READ_AGAIN_SECONDS", 0)])
def test_versions_without_rows_are_read_once(
    appended: Appended, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Not again when the log of the input no longer has them."""
    appended.model.a = [(1, 1, 1)]
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (1, 1, 1)")
    appended.check()
    for number in range(2):
        appended.model.a.append((number, 1, -9))
        appended.lake.quick(f"INSERT INTO {appended.a} VALUES ({number}, 1, -9)")
    appended.check()
    version = appended.lake.catalog.version(f"ratify.{appended.gold}")
    monkeypatch.setattr(pass_scope, limit, value)
    for _ in range(2):
        assert appended.run().success
        assert appended.lake.catalog.version(f"ratify.{appended.gold}") == version + 1
    appended.check()


@pytest.mark.stack
def test_a_column_that_is_renamed_appends_no_row_again(appended: Appended) -> None:
    """It is none that the query reads; by comparing versions every row with a value in it would be new."""
    appended.model.a = [(1, 1, 1)]
    appended.lake.quick(f"DROP TABLE {appended.a}")
    # Our own writers refuse a table with column mapping.
    appended.lake.run(
        f"CREATE TABLE {appended.a} USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'name') "
        "AS SELECT 1 AS id, 1 AS k, 1 AS v, 'a' AS note"
    )
    appended.check()
    rewritten(appended, "ALTER TABLE {a} RENAME COLUMN note TO remark")


# tests/components/test_append_by_duckdb.py has a short form.
@pytest.mark.stack
@pytest.mark.long
def test_a_row_with_the_keys_of_one_in_the_table_is_an_error(appended: Appended) -> None:
    appended.declare(", keys: [id], columns: [{name: id, pii: true}]")
    appended.model.a = [(1, 1, 1)]
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (1, 1, 1)")
    appended.check()
    appended.lake.quick(f"INSERT INTO {appended.a} VALUES (1, 2, 2)")
    found = causes(appended.run())
    assert "the table already has rows with the keys of new ones: id=…" in found["t"]
    appended.agrees()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM s.a", ["s.a"]),
        ("SELECT * FROM s.a LEFT JOIN s.b ON true", ["s.a"]),
        ("SELECT * FROM s.a JOIN s.b ON true", ["s.a", "s.b"]),
        ("WITH c AS (SELECT x FROM s.a) SELECT x, y FROM c LATERAL VIEW explode(z) t AS y", ["s.a"]),
        ("SELECT x, (SELECT max(y) FROM s.b) AS y FROM s.a", ["s.a"]),
        ("SELECT x FROM s.a LEFT SEMI JOIN s.b ON true", ["s.a"]),
        ("WITH c AS (SELECT x FROM s.a) SELECT c.x, d.n FROM c LEFT JOIN (SELECT count(*) AS n FROM c) AS d ON true", []),
        ("SELECT count(*) FROM s.a", []),
        ("SELECT try_sum(x) FROM s.a", []),
        ("SELECT DISTINCT x FROM s.a", []),
        ("SELECT x FROM s.a LIMIT 3", []),
        ("(SELECT x FROM s.a) ORDER BY x LIMIT 3", []),
        ("SELECT x FROM ((SELECT x FROM s.a) ORDER BY x LIMIT 3) AS t", []),
        ("SELECT sum(x) OVER () AS y FROM s.a", []),
        ("SELECT x FROM s.a WHERE x IN (SELECT x FROM s.a)", []),
        ("SELECT x FROM s.a WHERE x IN (SELECT x FROM ratify.S.A)", []),
        ("SELECT x FROM s.a UNION SELECT x FROM s.b", []),
        ("SELECT x FROM s.a FULL JOIN s.b ON true", []),
        ("SELECT x FROM s.a TABLESAMPLE (5 PERCENT)", []),
    ],
)
def test_which_inputs_a_query_reads_row_by_row(text: str, expected: list[str]) -> None:
    assert [str(name) for name in row_wise_inputs(TableQuery.parsed(text, "databricks", "t.sql"))] == expected
