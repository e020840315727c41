"""Tables that exist, of each strategy, whose query gives other columns than before, or has other keys."""

import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.column_types import keeps_values, sql_type
from ratify_lakehouse.components.stored_table import check_stored_columns
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import QueryMismatch, TableMissing
from ratify_lakehouse.sql.spark_sql import comparable
from tests.components.begun_tables import begin_declared
from tests.components.declared_projects import Project, causes
from tests.engines.lakehouse import Lakehouse

DAILY = "partitions: {column: day, daily: {start: 2026-01-01, end: 2026-01-04}}"
STRATEGIES = {
    "full": "strategy: full",
    "full by DuckDB": "strategy: full, engine: duckdb",
    "incremental": "strategy: incremental",
    "partition": f"strategy: partition, {DAILY}",
    "partition by DuckDB": f"strategy: partition, engine: duckdb, {DAILY}",
    "append": "strategy: append",
    "append_by_period": "strategy: append_by_period, append_by_period: {period: day}",
    "append_by_period by DuckDB": "strategy: append_by_period, engine: duckdb, append_by_period: {period: day}",
    "scd2": "strategy: scd2",
}


def of_strategies(*usual: str, rare: Iterable[str] | None = None) -> pytest.MarkDecorator:
    """One test for each strategy; those that share the code of a usual one are in the long tier."""
    others = [each for each in STRATEGIES if each not in usual] if rare is None else rare
    return pytest.mark.parametrize("strategy", [*usual, *(pytest.param(each, marks=pytest.mark.long) for each in others)])


class Declared:
    """A declared table of one input, `bronze.a`."""

    def __init__(self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance) -> None:
        self.lake, self.project, self.instance = lake, project, instance
        self.a, self.t = f"{project.schema('bronze')}.a", f"{project.schema('gold')}.t"
        lake.spark.catalog.ensure_schemas((project.schema("bronze"),))
        lake.quick(f"CREATE TABLE {self.a} (day DATE, id INT, v INT) USING DELTA")
        lake.quick(f"INSERT INTO {self.a} VALUES (DATE '2026-01-01', 1, 10), (DATE '2026-01-01', 2, 20)")

    def declare(self, strategy: str, columns: str = "day, id, v", keys: str = "[day, id]", more: str = "") -> None:
        attributes = f"description: D, keys: {keys}, external: [{self.a}], {STRATEGIES[strategy]}{more}"
        declaration = f"type: ratify_lakehouse.SqlTable\nattributes: {{{attributes}}}\n"
        self.project.write("gold", "t", declaration, f"SELECT {columns} FROM bronze.a")

    def begin(self, strategy: str) -> None:
        """Declare the table, and make it as its first run leaves it; Spark does where the record of that is another."""
        self.declare(strategy)
        if strategy in ("full", "incremental", "partition", "partition by DuckDB"):
            (component,) = self.project.tables.sql_tables
            begin_declared(self.lake, component)
        else:
            assert self.run() == ""

    def run(self) -> str:
        """Run it as a whole, and return the first cause of its failure; empty if it succeeded."""
        (component,) = self.project.tables.sql_tables
        without_partitions = dg.map_asset_specs(
            lambda spec: spec.replace_attributes(partitions_def=None),
            [each for each in component.table_defs().assets or () if isinstance(each, dg.AssetsDefinition)],
        )
        resources = {"spark": self.lake.spark, "duckdb": self.lake.another_duckdb()}
        job = dg.Definitions(assets=without_partitions, resources=resources).resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=self.instance, raise_on_error=False)
        return causes(done).get("t", "" if done.success else "another step failed")

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.lake.quick(f"SELECT id, v FROM {self.t} ORDER BY id, v")]


@pytest.fixture
def declared(lake: Lakehouse, project: Project, quick_creation: None, no_previews: None) -> Iterator[Declared]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Declared(lake, project, instance)


DAY_ID = {"day": "date", "id": "int"}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            DAY_ID,
            "t has the column v, which its query does not return. Nothing was written: add it to the query, if only as",
        ),
        (DAY_ID, "as CAST(NULL AS INT) AS v; or drop the table"),
        (DAY_ID | {"v": "decimal(12,1)"}, "t, column v: it is int in the table, but its query returns decimal(12,1)."),
        (DAY_ID | {"v": "string"}, "t, column v: it is int in the table, but its query returns string."),
        (
            {"day": "timestamp", "id": "int", "v": "int"},
            "t, column day: it is date in the table, but its query returns timestamp.",
        ),
        (DAY_ID | {"V": "bigint", "more": "int"}, ""),
    ],
)
def test_what_a_query_gives_fits_the_columns_of_its_table(given: dict[str, str], error: str) -> None:
    stored = [SimpleNamespace(name=name, type_text=type_) for name, type_ in (DAY_ID | {"v": "int"}).items()]
    connection = SimpleNamespace(name="ratify")
    catalog: Any = SimpleNamespace(connection=connection, table=lambda _: SimpleNamespace(columns=stored))
    columns = tuple(Column(name, type_) for name, type_ in given.items())
    table = TableDeclaration("gold", "t", columns, "Of a test", Engine.SPARK, frozenset({"MERGE"}))
    with pytest.raises(QueryMismatch, match=re.escape(error)) if error else nullcontext():
        check_stored_columns(catalog, table)


GONE, DECIMAL, TEXT, TIME = {
    "day, id": "t has the column v, which its query does not return. Nothing was written: add it to the query",
    "day, id, v + 0.5 AS v": "t, column v: it is int in the table, but its query returns decimal(12,1).",
    "day, id, CAST(v AS STRING) AS v": "t, column v: it is int in the table, but its query returns string.",
    "CAST(day AS TIMESTAMP) AS day, id, v": "t, column day: it is date in the table, but its query returns timestamp.",
}.items()
WRONG = {
    "full": TIME,
    "full by DuckDB": DECIMAL,
    "incremental": TEXT,
    "partition": GONE,
    "partition by DuckDB": GONE,
    "append": TIME,
    "append_by_period": TEXT,
    "append_by_period by DuckDB": GONE,
    "scd2": DECIMAL,
}


@pytest.mark.stack
@of_strategies("full", "full by DuckDB", "partition by DuckDB", "append_by_period by DuckDB")
def test_a_column_that_is_gone_or_has_another_type_is_an_error(declared: Declared, strategy: str) -> None:
    declared.begin(strategy)
    before, version = declared.rows(), declared.lake.catalog.version(f"ratify.{declared.t}")
    declared.lake.quick(f"INSERT INTO {declared.a} VALUES (DATE '2026-01-02', 3, 30)")
    columns, error = WRONG[strategy]
    declared.declare(strategy, columns)
    assert error in declared.run()
    assert (declared.rows(), declared.lake.catalog.version(f"ratify.{declared.t}")) == (before, version)
    if "DuckDB" not in strategy:
        # Spark refuses what is too great for the column.
        declared.declare(strategy, "day, id, CAST(v AS BIGINT) AS v")
        declared.run()
        assert set(before) < set(declared.rows()) or strategy == "append"


@pytest.mark.stack
@pytest.mark.parametrize(
    ("strategy", "at_length"),
    [("full", False), *(pytest.param(each, True, marks=pytest.mark.long) for each in ("full", "incremental", "partition"))],
)
def test_fewer_keys_are_an_error_while_a_row_is_there_twice(declared: Declared, strategy: str, *, at_length: bool) -> None:
    declared.begin(strategy)
    latest = ", unique: {latest: [id]}"
    error = "t has several rows with the same day (day=datetime.date(2026, 1, 1)), of which its query returns one."
    declared.declare(strategy, keys="[day]", more=latest)
    assert error in declared.run()
    if not at_length:
        return
    assert error in declared.run()
    declared.lake.quick(f"DROP TABLE {declared.t}")
    assert declared.run() == ""
    assert declared.rows() == [(2, 20)]


# Fewer keys are found by the same look: `test_fewer_keys_are_an_error_while_a_row_is_there_twice`.
@pytest.mark.stack
@pytest.mark.long
def test_more_rows_by_another_program_are_found_by_a_full_table(declared: Declared) -> None:
    declared.begin("full")
    declared.lake.quick(f"INSERT INTO {declared.t} SELECT day, id, 7 FROM {declared.t} WHERE id = 1")
    assert "t has several rows with the same day, id (day=datetime.date(2026, 1, 1), id=1)" in declared.run()


@pytest.mark.stack
@of_strategies("full", rare=("append", "scd2"))
def test_maps_are_an_error_where_rows_are_compared(declared: Declared, strategy: str) -> None:
    declared.declare(strategy, f"day, id, v, {MAPS}")
    error = declared.run()
    if strategy == "append":
        assert (error, len(declared.rows())) == ("", 2)
    else:
        assert "t, column m: the query returns array<map<string,int>>, and Spark compares no maps" in error
        with pytest.raises(TableMissing):
            declared.lake.catalog.table(f"ratify.{declared.t}")


MAPS = "array(map('v', v)) AS m"


@pytest.mark.stack
def test_maps_are_planned_where_no_rows_are_compared(declared: Declared) -> None:
    declared.declare("append", f"day, id, v, {MAPS}")
    (component,) = declared.project.tables.sql_tables
    assert component.plan(declared.lake.spark, declared.lake.duckdb).computes == "all rows"
    # What the plan asks is asked before rows are computed: it refuses the others.
    declared.declare("scd2", f"day, id, v, {MAPS}")
    (component,) = declared.project.tables.sql_tables
    with pytest.raises(QueryMismatch, match="Spark compares no maps"):
        component.plan(declared.lake.spark, declared.lake.duckdb)


@pytest.mark.parametrize("type_", ["int", "struct<map:int>", "struct<variant:int>", "array<struct<variant: string>>"])
def test_types_that_spark_compares(type_: str) -> None:
    assert comparable(type_)
    assert not any(map(comparable, (f"map<string,{type_}>", f"struct<a:map<int,{type_}>>", "struct<b:variant>", "variant")))


@pytest.mark.parametrize(
    ("stored", "given", "keeps"),
    [
        ("int", "bigint", True),
        ("bigint", "tinyint", True),
        ("string", "string", True),
        ("decimal(10,2)", "decimal(10, 2)", True),
        ("decimal(10,2)", "decimal(12,2)", False),
        ("struct<a:int>", "struct<a: int>", True),
        ("struct<a:int>", "struct<b:int>", False),
        ("int", "double", False),
        ("float", "double", False),
        ("date", "timestamp", False),
        ("string", "int", False),
    ],
)
def test_types_that_keep_values(stored: str, given: str, keeps: bool) -> None:
    assert keeps_values(sql_type(stored), sql_type(given)) == keeps
