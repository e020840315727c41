"""Writes of Spark whose rows were read before the fence of an erasure."""

import dagster as dg
import pytest

from ratify_lakehouse.components import table_asset
from ratify_lakehouse.components.query_engines import RowsToWrite, SparkQueries
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.engines.spark.merge_statements import TableChanges
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ReadBeforeErasure
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.incremental_tables import moved
from tests.engines.lakehouse import Lakehouse, engines, lake, pairs, quick_creation

__all__ = ["engines", "lake", "quick_creation"]

ROWS = "VALUES (1, 'Ann'), (2, 'Cy')"


def erase(lake: Lakehouse, source: TableDeclaration, target: TableDeclaration) -> None:
    lake.duckdb.log(lake.full(target)).commit(fencing, partitioned=True)
    for table in (source, target):
        lake.quick(f"DELETE FROM {table.table_name} WHERE v = 'Ann'")


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
@pytest.mark.parametrize("new_too", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_merge_that_has_read_before_reads_again_or_is_refused(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, new_too: bool
) -> None:
    """`new_too`: also one into a table that the run creates, and one of changes."""
    # Nobody looks at the rows that a write shows, which Spark would read.
    monkeypatch.setattr(table_asset, "preview_by_spark", lambda *_: dg.MetadataValue.table([], dg.TableSchema([])))
    source = lake.create(pairs(), ROWS)
    target = lake.create(pairs(Engine.SPARK, keys=("id",)))
    readings = list[int]()

    def read() -> object:
        rows = lake.spark.computed(lake.spark.table(source))
        readings.append(1)
        if len(readings) == 1:
            erase(lake, source, target)
        return rows

    lake.spark.merge_to_match(target, read)  # type: ignore[arg-type]
    assert (len(readings), lake.stored(target)) == (2, [(2, "Cy")])

    lake.insert(source, "VALUES (3, 'Ann')")
    text = f"SELECT id, v FROM ratify.{source.table_name}"
    queries = SparkQueries(lake.spark, TableQuery.parsed(text, "databricks", "a test"), target)
    with queries.validated(text) as rows:
        erase(lake, source, target)
        with pytest.raises(ReadBeforeErasure, match="Nothing was committed"):
            list(rows.write([RowsToWrite(target, "SELECT * FROM {rows}", 2)]))
    # Once Spark has begun its statement, only a look afterwards sees the fence; what is read then is without the row.
    lake.insert(source, "VALUES (3, 'Ann')")
    with moved(monkeypatch, Spark, "_committed", lambda: erase(lake, source, target)):
        lake.spark.merge_to_match(target, lambda: lake.spark.computed(lake.spark.table(source)))
    assert lake.stored(target) == [(2, "Cy")]
    lake.insert(source, "VALUES (3, 'Ann')")
    queries = SparkQueries(lake.spark, TableQuery.parsed(text, "databricks", "a test"), target)
    with queries.validated(text) as rows, moved(monkeypatch, Spark, "_committed", lambda: erase(lake, source, target)):
        with pytest.raises(ReadBeforeErasure, match="has them: try again") as refused:
            list(rows.write([RowsToWrite(target, "SELECT * FROM {rows}", 2)]))
        assert refused.value.committed == (lake.full(target), lake.version(target))
    if not new_too:
        return
    lake.quick(f"DELETE FROM {target.table_name} WHERE v = 'Ann'")
    # A table that the run creates after an erasure has no fence: that of the list of erased subjects stands for it.
    lake.spark.ensure_table(ERASED_SUBJECTS)
    new = pairs(Engine.SPARK, keys=("id",))
    queries = SparkQueries(lake.spark, TableQuery.parsed(text, "databricks", "a test"), new)
    with queries.validated(text) as rows:
        lake.duckdb.log(lake.full(ERASED_SUBJECTS)).commit(fencing, partitioned=True)
        with pytest.raises(ReadBeforeErasure):
            list(rows.write([RowsToWrite(new, "SELECT * FROM {rows}", 2)]))
    queries = SparkQueries(lake.spark, TableQuery.parsed(text, "databricks", "a test"), new)
    with queries.validated(text) as rows:
        list(rows.write([RowsToWrite(new, "SELECT * FROM {rows}", 2)]))
    assert lake.stored(new) == lake.stored(source)
    after = lake.version(target)
    lake.duckdb.log(lake.full(target)).commit(fencing, partitioned=True)
    changes = lake.spark.sql("SELECT 3L AS ratify_key_id, 3L AS id, 'Ann' AS v, true AS ratify_present")
    with pytest.raises(ReadBeforeErasure):
        lake.spark.merge_changes(target, TableChanges(changes), "{}", after)
    assert lake.stored(target) == [(2, "Cy")]
