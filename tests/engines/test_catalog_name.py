"""A catalog whose name has to be quoted in SQL, as `my-lake`: both engines create, write and read its tables."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.embedded.stack_state import StackState
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_sessions import SparkSessions
from ratify_lakehouse.sql.spark_sql import table_name
from tests.engines.lakehouse import Lakehouse, another_catalog, append, pairs

NAME = "my-lake"


def test_only_what_needs_it_is_quoted() -> None:
    assert table_name("ratify.bronze.t") == "ratify.bronze.t"
    assert table_name("my-lake.bronze.t") == "`my-lake`.bronze.t"
    assert table_name("1`2.bronze.größe") == "`1``2`.bronze.`größe`"


@pytest.fixture
def hyphened(lake: Lakehouse, stack: StackState) -> Iterator[tuple[Spark, DuckDB]]:
    catalog = another_catalog(stack, name=NAME)
    if NAME not in {found.name for found in catalog.client.catalogs.list()}:
        catalog.client.catalogs.create(NAME)
    assert stack.spark is not None
    spark, duckdb = Spark(catalog=catalog, remote=stack.spark.remote), DuckDB(catalog=catalog)
    # A session of its own: Spark's builder gives every resource of this process the same one.
    sessions = SparkSessions(stack.spark.remote, catalog, {}, 30)
    sessions._shared = SparkSession.builder.remote(stack.spark.remote).create()
    spark._opened = sessions
    token = stack.catalog.token_file.read_text().strip()
    for key, value in (("", "io.unitycatalog.spark.UCSingleCatalog"), (".uri", stack.catalog.url), (".token", token)):
        spark.session.conf.set(f"spark.sql.catalog.{NAME}{key}", value)
    yield spark, duckdb
    duckdb.close()
    spark.close()


@pytest.mark.stack
def test_both_engines_write_and_read(hyphened: tuple[Spark, DuckDB]) -> None:
    spark, duckdb = hyphened
    appended, merged = pairs(), pairs(Engine.SPARK, keys=("id",))
    assert [spark.ensure_table(table) for table in (appended, merged, appended)] == [True, True, False]
    append(duckdb, appended, "SELECT 1::BIGINT AS id, 'a' AS v", "load-1")
    assert spark.count(appended) == spark.count(appended, 1) == 1
    written = spark.merge_to_match(merged, lambda: spark.table(appended))
    assert (written.version, written.rows) == (1, 1)
    assert spark.history(spark.full_name(merged))[0].operation == "MERGE"
    with duckdb.session() as session:
        assert session.rows(f"SELECT id, v FROM uc.{merged.layer}.{merged.name}") == [(1, "a")]
    assert spark.truncate(spark.full_name(merged)) is not None
    assert spark.count(merged) == 0
