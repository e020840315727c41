"""Strategy `incremental`: after random changes of their inputs, tables equal their query, in at most one version."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ratify_lakehouse.components import sql_table_component
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.declarations import ROW_TRACKING
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.begun_tables import begin_declared
from tests.components.changed_tables import QUERIES, Tables, only
from tests.components.declared_projects import causes


# tests/components/test_changes_differential.py has a short form.
@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 12))
def test_they_equal_their_queries_at_length(filled: Tables, seed: int) -> None:
    filled.chance.seed(seed)
    passes(filled, [filled.chance.randint(0, 4) for _ in range(20)])


def passes(tables: Tables, numbers: Sequence[int]) -> None:
    """A pass after each of these numbers of changes."""
    tables.check()
    for number in numbers:
        for _ in range(number):
            tables.change()
        found = tables.check()
        assert all(said["strategy"] == "incremental" for said in found.values()), found


# In `make test`, two passes of Spark are in test_whole_passes.py, and two of a table like this in test_changes_by_duckdb.py.
@pytest.mark.long
@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation", "no_previews")
@pytest.mark.parametrize("begun", [True, False])
def test_of_two_passes_at_once_the_later_one_decides(
    filled: Tables, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """A pass that reads older versions of the inputs, and comes to its commit after another one, begins again."""
    only(filled, "totals")
    declared = filled.project.tables.components[f"{filled.project.schema('gold')}.totals"]
    assert isinstance(declared, SqlTable)
    if begun:
        begin_declared(filled.lake, declared)
    else:
        filled.check()
    merge, passes_of = Spark.merge_changes, sql_table_component.materialize_changes
    seen = list[tuple[Spark, ValidatedQuery]]()

    def seeing(spark: Spark, table: ValidatedQuery, *again: Any, **more: Any) -> Iterator[Any]:
        seen.append((spark, table))
        yield from passes_of(spark, table, *again, **more)

    def after_another(*arguments: Any) -> WriteResult:
        monkeypatch.setattr(Spark, "merge_changes", merge)
        filled.lake.quick(f"INSERT INTO {filled.bronze}.a VALUES (8, 1, 80)")
        assert list(passes_of(*seen[0]))
        return merge(*arguments)

    monkeypatch.setattr(sql_table_component, "materialize_changes", seeing)
    monkeypatch.setattr(Spark, "merge_changes", after_another)
    filled.lake.quick(f"INSERT INTO {filled.bronze}.a VALUES (7, 1, 70)")
    done = filled.run()
    assert done.success, causes(done)
    assert len(seen) == 1
    assert filled.stored("totals") == filled.expected("totals")
    assert filled.version_or_none("totals") == 2


# tests/components/test_changes_killed.py kills a pass of Spark, and test_changes_by_duckdb.py one of DuckDB.
@pytest.mark.long
@pytest.mark.stack
@pytest.mark.parametrize("committed", [False, True])
def test_a_pass_that_is_killed_is_made_good(filled: Tables, committed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    only(filled, "totals")
    filled.check()
    merge = Spark.merge_changes

    def dying(*arguments: Any) -> WriteResult:
        if committed:
            merge(*arguments)
        raise KeyboardInterrupt("killed")

    filled.lake.quick(f"INSERT INTO {filled.bronze}.a VALUES (7, 1, 70)")
    monkeypatch.setattr(Spark, "merge_changes", dying)
    assert not filled.run().success
    monkeypatch.setattr(Spark, "merge_changes", merge)
    assert filled.version_or_none("totals") == 1 + committed
    said = filled.check()["totals"]
    changed = 0 if committed else 1
    assert said["keys affected"] == said["rows in"] == said["rows changed in inputs"] == changed
    (read,) = [record.data for record in said["inputs read"].records]
    assert read == {
        "input": f"ratify.{filled.bronze}.a",
        "from version": 2 - changed,
        "to version": 2,
        "rows changed": changed,
    }
    made = filled.lake.spark.catalog.table(f"ratify.{filled.project.schema('gold')}.totals")
    assert (made.properties or {})[ROW_TRACKING] == "false"


@pytest.mark.stack
@pytest.mark.long
def test_all_rows_are_computed_where_the_last_record_does_not_hold(filled: Tables) -> None:
    tables = filled
    said = tables.check()
    assert {name: each["computed in full because"] for name, each in said.items()} == dict.fromkeys(
        QUERIES, "the table is new"
    )
    tables.lake.quick(f"DELETE FROM {tables.project.schema('gold')}.totals WHERE k = 1")
    create = f"CREATE TABLE {tables.bronze}.b (k INT, w INT) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
    tables.lake.quick(f"DROP TABLE {tables.bronze}.b")
    tables.lake.quick(create)
    key, text = tables.queries["running"]
    tables.queries["running"] = key, text.replace("sum(v)", "max(v)")
    tables.declare("running")
    reasons = {name: each["computed in full because"] for name, each in tables.check().items()}
    assert reasons == {
        "totals": "version 2 of it, DELETE, does not record its input versions",
        "joined": f"{tables.bronze}.b was dropped and created again since",
        "running": "its query or declaration has changed",
    }
