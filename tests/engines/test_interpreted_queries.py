"""Queries over few rows: Spark interprets them in the block alone, and as before after it."""

from collections.abc import Generator
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from ratify_lakehouse.components.query_engines import SparkQueries
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.interpreted_queries import interpreted
from ratify_lakehouse.engines.spark.spark_sessions import SessionScope
from ratify_lakehouse.sql.table_query import TableQuery
from tests.engines.lakehouse import Lakehouse, pairs

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@pytest.fixture
def session(lake: Lakehouse) -> Generator[SparkSession]:
    """A session that compiles its queries, as one of a user's stack does."""
    with SessionScope().entered():
        found = lake.spark.session
        for key, value in COMPILED.items():
            found.conf.set(key, value)
        yield found


def is_compiled(session: SparkSession) -> bool:
    plan = session.sql("EXPLAIN SELECT id + 1 FROM range(100) WHERE id % 7 = 3").collect()[0][0]
    return "*(1)" in plan


@pytest.mark.stack
def test_only_those_of_the_block_are_interpreted(session: SparkSession) -> None:
    assert is_compiled(session)
    with interpreted(session), interpreted(session):
        assert not is_compiled(session)
        assert session.sql("SELECT sum(id) AS n FROM range(100)").collect()[0]["n"] == 4950
    assert is_compiled(session)
    with pytest.raises(ZeroDivisionError), interpreted(session):
        raise ZeroDivisionError
    assert {key: session.conf.get(key) for key in COMPILED} == COMPILED


class _Refusing:
    """A session of a server that permits some settings only."""

    def __init__(self) -> None:
        self.conf, self.found = self, dict(COMPILED)

    def get(self, key: str) -> str:
        return self.found[key]

    def set(self, key: str, value: str) -> None:
        if key.endswith("factoryMode"):
            raise IllegalArgumentException("Configuration spark.sql.codegen.factoryMode is not available.")
        self.found[key] = value


def test_a_server_that_does_not_permit_it_compiles_them() -> None:
    session: Any = _Refusing()
    with interpreted(session):
        pass
    assert session.found == COMPILED


@pytest.mark.stack
def test_they_are_few_if_all_tables_of_the_pass_have_few(lake: Lakehouse, session: SparkSession) -> None:
    table, written = pairs(Engine.SPARK, layer="silver", keys=("id",)), pairs(Engine.SPARK, layer="gold", keys=("id",))
    lake.create(table, "VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    query = TableQuery.parsed(f"SELECT id, v FROM {table.table_name}", "databricks", "a test")
    engine = SparkQueries(lake.spark, query, written)
    with engine.few_rows(3):
        assert not is_compiled(session)
    with engine.few_rows(2):
        assert is_compiled(session)


@pytest.mark.stack
def test_rows_that_no_log_tells_are_many(lake: Lakehouse, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create(pairs(Engine.SPARK, layer="silver", keys=("id",)))
    monkeypatch.setattr(TableLog, "opened", lambda *_: None)
    engine = SparkQueries(lake.spark, TableQuery.parsed("SELECT 1L AS id, 'a' AS v", "databricks", "a test"), table)
    with engine.few_rows(1_000):
        assert is_compiled(session)
