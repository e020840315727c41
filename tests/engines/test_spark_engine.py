"""Spark: tables made once, MERGE and its counts, no version if nothing changed, and errors of a stopped server."""

import datetime as dt
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import ComputedInputs
from ratify_lakehouse.engines.spark.merge_statements import TableChanges
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_sessions import SessionScope
from ratify_lakehouse.errors import CommitConflict, QueryFailed, SparkUnavailable
from tests.engines.lakehouse import Lakehouse, another_catalog, pairs


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs(Engine.SPARK, layer="silver", keys=("id",)))


def merge_to_match(lake: Lakehouse, table: TableDeclaration, values: str) -> Any:
    return lake.spark.merge_to_match(table, lambda: lake.spark.sql(f"SELECT * FROM VALUES {values} AS t(id, v)"))


@pytest.mark.stack
def test_merge_to_match_inserts_updates_and_deletes(lake: Lakehouse) -> None:
    table = pairs(Engine.SPARK, layer="silver", keys=("id",))
    assert lake.spark.ensure_table(table)
    assert not lake.spark.ensure_table(table)
    first = merge_to_match(lake, table, "(1L, 'a'), (2L, CAST(NULL AS STRING)), (3L, 'c'), (5L, 'e')")
    assert (first.version, first.rows, first.commit.version, first.commit.rows_added) == (1, 4, 1, 4)
    second = merge_to_match(lake, table, "(1L, 'a'), (2L, 'b'), (4L, 'd'), (5L, CAST(NULL AS STRING))")
    counts = {name: second.commit.metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted")}
    assert counts == {"Inserted": 1, "Updated": 2, "Deleted": 1}
    assert lake.rows(table) == [(1, "a"), (2, "b"), (4, "d"), (5, None)]
    again = merge_to_match(lake, table, "(4L, 'd'), (2L, 'b'), (5L, CAST(NULL AS STRING)), (1L, 'a')")
    assert (again.commit, again.version, again.rows) == (None, 2, 4)
    assert lake.version(table) == 2


@pytest.mark.stack
def test_changes_do_not_follow_others_that_they_were_computed_without(lake: Lakehouse, table: TableDeclaration) -> None:
    """Though the two were computed against different versions, so that the Delta `txn` of the second is the greater."""
    record = ComputedInputs("query", 0, {}, "id").to_json()

    def merge(value: str, after: int) -> None:
        changes = f"SELECT 1L AS ratify_key_id, 1L AS id, '{value}' AS v, true AS ratify_present"
        lake.spark.merge_changes(table, TableChanges(lake.spark.sql(changes)), record, after)

    lake.insert(table, "VALUES (2, 'others')")
    merge("first", 0)
    with pytest.raises(CommitConflict, match="after version 1 first"):
        merge("second", 1)
    assert lake.stored(table) == [(1, "first"), (2, "others")]
    merge("second", 2)
    assert lake.stored(table)[0] == (1, "second")


@pytest.mark.stack
def test_computed_rows_belong_to_the_session_that_computed_them(lake: Lakehouse) -> None:
    """In a thread that opened another session first, as each thread of a run may."""

    def in_scopes() -> list[list[dict[str, Any]]]:
        found = list[list[dict[str, Any]]]()
        for scope in (SessionScope(), SessionScope()):
            with scope.entered():
                rows = lake.spark.computed(lake.spark.sql("SELECT 7 AS id"))
                found.append(lake.spark.rows(rows))
        return found

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(in_scopes).result() == [[{"id": 7}], [{"id": 7}]]


@pytest.mark.stack
def test_history_has_every_commit(lake: Lakehouse, table: TableDeclaration) -> None:
    merge_to_match(lake, table, "(1L, 'a')")
    with lake.duckdb.session() as session:
        session.append(table, "SELECT 2::BIGINT, 'b'", ["two"])
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 1")
    history = lake.spark.history(lake.full(table))
    assert [(c.version, c.engine, c.operation) for c in history] == [
        (3, Engine.SPARK, "DELETE"),
        (2, Engine.DUCKDB, "WRITE"),
        (1, Engine.SPARK, "MERGE"),
        (0, Engine.SPARK, "CREATE TABLE"),
    ]
    assert [c.version for c in lake.spark.history(lake.full(table), 2)] == [3, 2]
    assert history[2].user_metadata
    assert [c.timestamp for c in history] == sorted((c.timestamp for c in history), reverse=True)


@pytest.mark.stack
def test_a_merge_that_met_another_commit_reads_again(lake: Lakehouse, table: TableDeclaration, tmp_path: Path) -> None:
    """While the first MERGE waits for the rows of its source, DuckDB appends a row, which the second must delete."""
    from pyspark.sql.functions import udf

    lake.insert(table, "VALUES (1, 'a')")
    assert lake.spark.session, "a function belongs to a session"
    reads, asked, appended = list[int](), tmp_path / "asked", tmp_path / "appended"

    def wait_for(file: Path) -> None:
        for _ in range(600):
            if file.exists():
                break
            time.sleep(0.1)

    @udf("string")
    def waiting(value: str) -> str:
        # The MERGE fixes its snapshot when it is planned, before it asks its source for rows.
        asked.touch()
        wait_for(appended)
        return value

    def read() -> Any:
        reads.append(1)
        frame = lake.spark.sql(f"SELECT 1L AS id, '{'x' if len(reads) == 1 else 'z'}' AS v")
        return frame.withColumn("v", waiting("v")) if len(reads) == 1 else frame

    def append() -> None:
        duckdb = lake.another_duckdb()
        try:
            with duckdb.session() as session:
                wait_for(asked)
                session.append(table, "SELECT 2::BIGINT, 'b'", ["two"])
        finally:
            appended.touch()
            duckdb.close()

    other = threading.Thread(target=append)
    other.start()
    done = lake.spark.merge_to_match(table, read)
    other.join()
    assert len(reads) == 2
    assert [(c.version, c.operation) for c in lake.spark.history(lake.full(table), 2)] == [(3, "MERGE"), (2, "WRITE")]
    assert (done.version, done.rows) == (3, 1)
    assert lake.rows(table) == [(1, "z")]


@pytest.mark.stack
def test_a_conflict_on_every_attempt_is_raised(lake: Lakehouse, table: TableDeclaration) -> None:
    reads = list[int]()

    def read() -> Any:
        reads.append(1)
        raise CommitConflict("another writer, each time")

    impatient = Spark(catalog=lake.catalog, remote=lake.spark.remote, attempts=2)
    with pytest.raises(CommitConflict, match="each time"):
        impatient.merge_to_match(table, read)
    assert len(reads) == 2
    assert lake.version(table) == 0


@pytest.mark.stack
def test_errors_of_a_query_stay_what_they_are(lake: Lakehouse) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.run("SELECT * FROM ratify.bronze.no_such_table")


@pytest.mark.stack
def test_text_that_is_no_utf8_is_an_error_of_the_query(lake: Lakehouse) -> None:
    with pytest.raises(QueryFailed, match="make_valid_utf8"):
        lake.run("SELECT named_struct('t', CAST(X'61FF' AS STRING)) AS v")


@pytest.mark.stack
def test_a_query_is_sent_when_its_rows_are_used(lake: Lakehouse) -> None:
    rows = lake.spark.query("SELECT 2 AS n, '{rows}' AS braces")
    assert lake.spark.rows(lake.spark.query("SELECT n + 1 AS n, braces FROM {rows}", rows=rows)) == [
        {"n": 3, "braces": "{rows}"}
    ]
    assert lake.spark.types("SELECT 2 AS n") == {"n": "int"}
    missing = lake.spark.query("SELECT * FROM ratify.bronze.no_such_table")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.spark.rows(missing)


@pytest.mark.stack
def test_sessions_are_utc_and_open_again(lake: Lakehouse) -> None:
    spark = Spark(catalog=another_catalog(lake.stack), remote=lake.spark.remote)
    assert spark.rows(spark.sql("SELECT current_timezone() AS zone")) == [{"zone": "UTC"}]
    spark.close()
    spark.close()
    assert spark.rows(spark.sql("SELECT 1 AS one")) == [{"one": 1}]


def test_a_channel_that_another_thread_has_closed_is_no_spark() -> None:
    spark = Spark(catalog=UnityCatalog(host="http://127.0.0.1:9", token="t"), remote="sc://127.0.0.1:9")
    channel = grpc.insecure_channel("127.0.0.1:9")
    channel.close()
    with pytest.raises(SparkUnavailable, match="closed"), spark._translating():
        channel.unary_unary("/spark.connect.SparkConnectService/Config")(b"")
    with pytest.raises(ValueError, match="of its own"), spark._translating():
        raise ValueError("of its own")


@pytest.mark.stack
def test_declared_columns_are_those_of_the_table(lake: Lakehouse) -> None:
    columns = (
        Column("id", "bigint", "the key", nullable=False),
        Column("at", "timestamp"),
        Column("price", "decimal(10,2)"),
        Column("tags", "array<string>"),
        Column("place", "struct<lat:double,lon:double>"),
    )
    made = pairs(Engine.SPARK, columns=columns)
    lake.spark.ensure_table(made)
    assert lake.spark.table(made).dtypes == [(column.name, column.type) for column in columns]
    with lake.duckdb.session() as session:
        session.append(made, "SELECT 1, TIMESTAMP '2013-01-01 01:02:03', 4.5, ['a', 'b'], {'lat': 1, 'lon': 2}", ["one"])
        there = session.rows(f"SELECT * FROM uc.bronze.{made.name}")
    moment = dt.datetime(2013, 1, 1, 1, 2, 3, tzinfo=dt.UTC)
    assert there == [(1, moment, Decimal("4.50"), ["a", "b"], {"lat": 1.0, "lon": 2.0})]
    (row,) = lake.spark.rows(lake.spark.table(made))
    assert row["at"].astimezone(dt.UTC) == moment
    assert {**row, "at": moment} == dict(zip(made.column_names, there[0], strict=True))


@pytest.mark.stack
def test_a_column_that_is_declared_later_is_added_by_a_commit_that_says_whose_it_is(
    lake: Lakehouse, table: TableDeclaration
) -> None:
    assert not lake.spark.ensure_table(replace(table, columns=(*table.columns, Column("w", "int"))))
    with lake.duckdb.session() as session:
        session.add_columns(table, [Column("x", "int")])
    found = [(commit.operation, commit.is_ours) for commit in lake.spark.recent_commits(lake.full(table), 2)]
    assert found == [("ADD COLUMNS", True)] * 2


@pytest.mark.server
def test_no_spark_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    spark = Spark(
        catalog=UnityCatalog(host="http://127.0.0.1:1", token="x"), remote=f"sc://127.0.0.1:{port}", retry_seconds=1
    )
    with pytest.raises(SparkUnavailable, match=rf"127\.0\.0\.1:{port}.*Check that it runs \(`ratify status`\)"):
        spark.sql("SELECT 1")
