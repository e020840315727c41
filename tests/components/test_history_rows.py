"""Tables of the strategy `scd2` as they are declared: their versions, what is refused, and what a run says of them."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.errors import TableMissing
from tests.components.begun_tables import begin_history
from tests.components.declared_projects import Project, causes, failed_checks, metadata
from tests.engines.lakehouse import Lakehouse

SQL = "SELECT id, v, changed FROM bronze.a"
ROWS = "id, v, CAST(valid_from AS STRING) AS since, CAST(valid_to AS STRING) AS until, current"


class Followed:
    """A declared table over one input."""

    def __init__(self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance) -> None:
        self.lake, self.project, self.instance = lake, project, instance
        self.a, self.t = f"{project.schema('bronze')}.a", f"{project.schema('gold')}.t"
        lake.spark.catalog.ensure_schemas((project.schema("bronze"),))
        lake.quick(f"CREATE TABLE {self.a} (id INT, v STRING, changed DATE) USING DELTA")
        self.declare()

    def declare(self, sql: str = SQL, history: str = "{updated_at: changed}", more: str = "") -> None:
        attributes = f"{{description: D, strategy: scd2, keys: [id], external: [{self.a}], history: {history}{more}}}"
        self.project.write("gold", "t", f"type: ratify_lakehouse.SqlTable\nattributes: {attributes}\n", sql)

    def write(self, rows: str) -> None:
        self.lake.quick(f"INSERT OVERWRITE {self.a} VALUES {rows}")

    def run(self, *, checks: bool = False) -> dg.ExecuteInProcessResult:
        declared = self.project.tables.definitions
        resources = {"spark": self.lake.spark, "duckdb": self.lake.another_duckdb()}
        chosen = declared.asset_checks if checks else None
        given = dg.Definitions(assets=declared.assets, asset_checks=chosen, resources=resources)
        job = given.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    @property
    def table(self) -> SqlTable:
        table = self.project.tables.components[self.t]
        assert isinstance(table, SqlTable)
        return table

    def plan(self) -> PassPlan:
        return self.table.plan(self.lake.spark, self.lake.duckdb)

    def versions(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.lake.quick(f"SELECT {ROWS} FROM {self.t} ORDER BY id, since")]


@pytest.fixture
def followed(lake: Lakehouse, project: Project, quick_creation: None, no_previews: None) -> Iterator[Followed]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Followed(lake, project, instance)


@pytest.mark.stack
@pytest.mark.parametrize("begun", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_late_row_is_placed_and_the_version_of_one_that_is_gone_ends(followed: Followed, begun: bool) -> None:
    name = f"ratify.{followed.a}"
    followed.write("(1, 'a', DATE '2026-01-01'), (2, 'b', DATE '2026-01-01')")
    assert followed.plan() == PassPlan("all rows", "the table is new", {name: (None, 1)})
    if begun:
        since = "'2026-01-01', '2026-01-01', NULL, true"
        assert isinstance(followed.table.table, HistoryQuery)
        begin_history(followed.lake, followed.table.table, f"VALUES (1, 'a', {since}), (2, 'b', {since})")
    else:
        done = followed.run()
        assert done.success, causes(done)
        assert metadata(done, "gold", "t")["rows inserted"] == 2
    version = followed.lake.catalog.version(f"ratify.{followed.t}")
    assert followed.plan() == PassPlan("nothing", "", {name: (1, 1)})
    followed.write("(1, 'a', DATE '2026-01-05'), (2, 'b', DATE '2026-01-01')")
    assert followed.plan() == PassPlan("all rows", "an input has a new version", {name: (1, 2)})
    # One comes late, one is gone.
    followed.write("(1, 'c', DATE '2026-01-03'), (1, 'a', DATE '2026-01-04')")
    done = followed.run(checks=True)
    assert failed_checks(done) == set()
    found = metadata(done, "gold", "t")
    types = {column.name: column.type for column in found["dagster/column_schema"].columns}
    assert types == {
        "id": "int",
        "v": "string",
        "changed": "date",
        "valid_from": "date",
        "valid_to": "date",
        "current": "boolean",
    }
    assert (found["strategy"], found["Delta version"], found["rows inserted"]) == ("scd2", version + 1, 2)
    versions = followed.versions()
    assert versions[:3] == [
        (1, "a", "2026-01-01", "2026-01-03", False),
        (1, "c", "2026-01-03", "2026-01-04", False),
        (1, "a", "2026-01-04", None, True),
    ]
    assert versions[3][:3] == (2, "b", "2026-01-01")
    assert not versions[3][4]


@pytest.mark.stack
def test_what_cannot_be_placed_is_an_error_and_nothing_is_written(followed: Followed) -> None:
    followed.write("(1, 'a', NULL), (2, 'b', DATE '2026-01-02')")
    assert "changed is NULL in rows such as id=1, so it is unknown" in causes(followed.run())["t"]
    followed.write("(1, 'a', DATE '2026-01-02'), (1, 'b', DATE '2026-01-02')")
    assert "several rows of the query have the same id, changed: id=1, changed=" in causes(followed.run())["t"]
    followed.declare("SELECT id, v, CAST(changed AS STRING) AS changed FROM bronze.a")
    assert "column changed: it says since when a row is valid, but is a string: write CAST" in causes(followed.run())["t"]
    followed.declare(history="{}")
    assert "several rows of the query have the same id: id=1" in causes(followed.run())["t"]
    followed.declare("SELECT *, 1 AS Valid_To FROM bronze.a")
    assert "the query returns Valid_To, a column that the strategy scd2 adds" in causes(followed.run())["t"]
    with pytest.raises(TableMissing):
        followed.lake.catalog.table(f"ratify.{followed.t}")


@pytest.mark.stack
@pytest.mark.long
def test_a_column_that_is_ignored_makes_no_version_and_a_new_one_does(followed: Followed) -> None:
    followed.declare("SELECT id, v FROM bronze.a", "{ignore: [v]}")
    followed.write("(1, 'a', NULL)")
    assert followed.run().success
    ((_, _, since, _, _),) = followed.versions()
    followed.write("(1, 'b', NULL)")
    assert followed.run().success
    assert followed.versions() == [(1, "b", since, None, True)]
    # A column more in the query is one more in the table; earlier versions do not have it.
    followed.declare("SELECT id, v, 7 AS n FROM bronze.a", "{ignore: [v]}")
    followed.write("(1, 'b', NULL)")
    done = followed.run()
    assert done.success, causes(done)
    first, second = followed.lake.quick(f"SELECT * FROM {followed.t} ORDER BY valid_from")
    assert (first["n"], first["valid_to"], second["n"], second["current"]) == (None, second["valid_from"], 7, True)
