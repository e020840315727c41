"""Syncs of the strategy append by DuckDB: what they read, convert and refuse, and that rows are inserted once."""

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import duckdb_tables
from ratify_lakehouse.components.syncs.sync_connection import connection_steps
from ratify_lakehouse.components.syncs.sync_declaration import (
    MappedColumn,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_pass import SyncResult
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.snapshot import RETENTION, Snapshot
from ratify_lakehouse.delta.table_log import LogCommits, TableLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.errors import (
    HistoryNotContinued,
    LogUnreadable,
    QueryMismatch,
    RowsNotConverted,
    StorageUnavailable,
    SyncRefused,
    TableMissing,
)
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.declared_syncs import (
    assert_it_goes_on_once_that_is_acknowledged,
    declared,
    duckdb_pass,
    names,
    spark_pass,
    stored,
    table,
)
from tests.components.incremental_tables import KilledPass
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


def inserting(destination: str, source: SyncSource, **more: Any) -> SyncDeclaration:
    return declared(destination, SyncStrategy.APPEND, source, engine=SyncEngine.DUCKDB, **more)


def run(lake: Lakehouse, sync: SyncDeclaration) -> SyncResult:
    return duckdb_pass(lake, sync).run()


def test_rows_of_a_table_are_inserted_once(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v UNION ALL SELECT 1, 'a'")
    sync = inserting(destination, table(source))
    first, second = run(bronze, sync), run(bronze, sync)
    assert (first.counts.inserted, first.created, first.rows, first.version) == (2, True, 2, 1)
    assert (second.counts.inserted, second.unchanged, second.commit, second.version) == (0, True, None, 1)
    assert first.commit is not None
    assert (first.commit.engine, first.commit.rows_added) == ("DuckDB", 2)
    assert first.lineage["id"] == (f"bronze.{source}.id",)
    assert [row["change"] for row in first.sample] == ["insert", "insert"]
    # Rows that the table got since, also of deleted rows that were replaced by none.
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2, 'b')")
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (3, NULL)")
    assert run(bronze, sync).counts.inserted == 2

    # A run that ends after its commit, before it could say so.
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (4, 'd')")
    append = DuckDBSession.append

    def dying(*arguments: Any) -> Any:
        append(*arguments)
        raise KilledPass

    with monkeypatch.context() as patch:
        patch.setattr(DuckDBSession, "append", dying)
        with pytest.raises(KilledPass):
            run(bronze, sync)
    assert run(bronze, sync).counts.inserted == 0
    assert stored(bronze, destination, "id") == [(1,), (1,), (2,), (3,), (4,)]
    # Spark goes on where DuckDB ended, and the other way round: tests/components/test_syncs.py.
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    with pytest.raises(HistoryNotContinued, match=r"DELETE, version 4.* `ratify acknowledge"):
        run(bronze, sync)
    assert len(stored(bronze, destination)) == 5
    assert_it_goes_on_once_that_is_acknowledged(bronze, source, sync, run, quickly=True)


def test_two_runs_at_once_insert_once(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id FROM range(3)")
    sync = inserting(destination, table(source))
    append = DuckDBSession.append

    def after_another_run(*arguments: Any) -> Any:
        monkeypatch.setattr(DuckDBSession, "append", append)
        bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (9)")
        assert run(bronze, sync).counts.inserted == 4
        return append(*arguments)

    monkeypatch.setattr(DuckDBSession, "append", after_another_run)
    assert run(bronze, sync).counts.inserted == 0
    assert stored(bronze, destination) == [(0,), (1,), (2,), (9,)]


def test_a_first_run_that_is_overtaken_while_it_reads_inserts_once(
    bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id FROM range(3)")
    sync = inserting(destination, table(source))
    read = duckdb_tables.source_text

    def after_another_run(*arguments: Any) -> Any:
        monkeypatch.setattr(duckdb_tables, "source_text", read)
        assert run(bronze, sync).counts.inserted == 3
        bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (9)")
        return read(*arguments)

    monkeypatch.setattr(duckdb_tables, "source_text", after_another_run)
    assert run(bronze, sync).counts.inserted == 1
    assert stored(bronze, destination) == [(0,), (1,), (2,), (9,)]


def test_names_and_types_are_those_of_the_destination(bronze: Lakehouse, tmp_path: Path) -> None:
    _, destination = names()
    columns = "x INT, id BIGINT NOT NULL, n DECIMAL(6,2), at TIMESTAMP"
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} ({columns}) USING DELTA")
    file = tmp_path / "a.csv"
    file.write_text('ID,"the {amount}",at\n1,1.25,2026-01-02T03:04:05.678901Z\n-2,,\n')
    sync = inserting(destination, SyncSource(files=str(file), format="csv"), columns=(MappedColumn("n", "the {amount}"),))
    assert run(bronze, sync).counts.inserted == 2
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    shown = "x, id, CAST(n AS STRING), at"
    assert stored(bronze, destination, shown) == [(None, -2, None, None), (None, 1, "1.25", at)]
    # The same file is inserted once, and another content again.
    assert run(bronze, sync).counts.inserted == 0
    file.write_text('ID,"the {amount}",at\n3,1,\n')
    assert run(bronze, sync).counts.inserted == 1


def test_each_file_of_a_pattern_is_inserted_once(bronze: Lakehouse, tmp_path: Path) -> None:
    """By its columns' names, whatever their order; Spark makes a commit for each, DuckDB one for all."""
    _, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, v STRING) USING DELTA")
    sync = inserting(destination, SyncSource(files=str(tmp_path / "*.csv"), format="csv"))
    (tmp_path / "b.csv").write_text("id,v\n1,a\n")
    assert run(bronze, sync).counts.inserted == 1
    (tmp_path / "a.csv").write_text("V,id\nb,2\n")
    (tmp_path / "c.csv").write_text("id,v\n3,c\n")
    (tmp_path / "d.csv").write_text("v,id\n")
    assert duckdb_pass(bronze, sync).plan()[0].inserted == 2
    assert (run(bronze, sync).counts.inserted, run(bronze, sync).unchanged) == (2, True)
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 2

    (tmp_path / "b.csv").write_text("v,id\nx,1\n")
    (tmp_path / "aa.csv").write_text("id,v\n")
    by_spark = spark_pass(bronze, sync)
    assert by_spark.plan()[0].inserted == 1
    result = by_spark.run()
    assert (result.counts.inserted, list(result.versions), result.rows) == (1, [3, 4], 4)
    assert (by_spark.run().unchanged, run(bronze, sync).unchanged) == (True, True)
    assert stored(bronze, destination) == [(1, "a"), (1, "x"), (2, "b"), (3, "c")]


def test_what_was_inserted_is_known_when_its_txn_has_expired(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{destination} (id INT) USING DELTA TBLPROPERTIES ('{RETENTION}' = 'interval 1 hour')"
    )
    sync = inserting(destination, table(source))
    by_spark = spark_pass(bronze, sync)
    assert run(bronze, sync).counts.inserted == 1
    # As it is an hour later.
    monkeypatch.setattr(Snapshot, "txn_versions", lambda *_: {})
    assert (run(bronze, sync).unchanged, by_spark.run().unchanged) == (True, True)
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2)")
    assert (by_spark.run().counts.inserted, run(bronze, sync).unchanged) == (1, True)
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (3)")
    assert (run(bronze, sync).counts.inserted, by_spark.run().unchanged) == (1, True)
    assert stored(bronze, destination) == [(1,), (2,), (3,)]
    # The log may be cut, too.
    monkeypatch.setattr(TableLog, "committed_txns", lambda *_: ({}, 3, time.time()))
    for act in (lambda: run(bronze, sync), by_spark.run):
        with pytest.raises(SyncRefused, match=r"log begins at version 3.* UNSET TBLPROPERTIES"):
            act()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("1.5,1", "1 of 1 rows .* column id: 1.5 is not a valid bigint"),
        ("many,1", "column id: many is not a valid bigint"),
        (",1", "column id: it is NULL"),
        ("1,x", r"column n: x is not a valid decimal\(4,2\)"),
        ("1,1000", r"column n: 1000 is not a valid decimal\(4,2\)"),
        ("1,1,1", "cannot be read"),
    ],
)
def test_rows_that_do_not_fit(bronze: Lakehouse, tmp_path: Path, rows: str, text: str) -> None:
    _, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id BIGINT NOT NULL, n DECIMAL(4,2)) USING DELTA")
    (tmp_path / "a.csv").write_text(f"id,n\n{rows}\n")
    with pytest.raises(RowsNotConverted, match=text):
        run(bronze, inserting(destination, SyncSource(files=str(tmp_path / "a.csv"), format="csv")))
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 0


def test_a_query_is_a_source(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, 'a' AS v FROM range(4)")
    text = f"SELECT v, count(*) AS n, sum(id) AS total FROM bronze.{source} GROUP BY ALL"
    sync = inserting(destination, SyncSource(TableQuery.parsed(text, "duckdb", "x.sql")))
    assert [(step.name, step.lacks) for step in connection_steps(bronze.spark, bronze.duckdb, sync)] == [
        ("the catalog, the source and the destination", ""),
        ("the destination can be written", ""),
    ]
    assert duckdb_pass(bronze, sync).plan()[0].inserted == 1
    assert run(bronze, sync).counts.inserted == 1
    assert stored(bronze, destination) == [("a", 4, 6)]


@pytest.mark.parametrize(
    ("prepare", "error", "text"),
    [
        (lambda _: None, TableMissing, "does not exist"),
        (lambda name: f"CREATE TABLE {name} (other INT) USING DELTA", SyncRefused, "has no column id"),
        (lambda name: f"CREATE TABLE {name} (id BIGINT, y INT NOT NULL) USING DELTA", SyncRefused, "needs y"),
    ],
)
def test_what_cannot_be_done_is_refused(
    bronze: Lakehouse, prepare: Callable[[str], str | None], error: type[Exception], text: str
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1L AS id")
    if statement := prepare(f"ratify.bronze.{destination}"):
        bronze.quick(statement)
    sync = SyncDeclaration(**{**vars(inserting(destination, table(source))), "create_if_missing": False})
    with pytest.raises(error, match=text):
        run(bronze, sync)


def test_a_type_that_no_table_has(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    text = f"SELECT id, INTERVAL 1 DAY AS i FROM bronze.{source}"
    with pytest.raises(QueryMismatch, match="INTERVAL"):
        run(bronze, inserting(destination, SyncSource(TableQuery.parsed(text, "duckdb", "x.sql"))))


def test_a_version_that_the_source_lost_says_what_to_do(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    sync = inserting(destination, table(source))
    run(bronze, sync)
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2)")

    def lost(*_: Any) -> Iterator[Commit]:
        raise LogUnreadable("Version 1 is gone.")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "rewrites", lost)
        with pytest.raises(HistoryNotContinued, match=r"Version 1 is gone\. Use the strategy merge"):
            run(bronze, sync)
    assert stored(bronze, destination) == [(1,)]


def test_storage_that_does_not_answer_for_a_moment(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was inserted before is not known then: nothing is inserted."""
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    sync = inserting(destination, table(source))
    run(bronze, sync)
    opened = LogCommits.opened

    def silent(commits: LogCommits, full_name: str) -> TableLog:
        if full_name.endswith(destination):
            raise StorageUnavailable("It does not answer.")
        return opened(commits, full_name)

    with monkeypatch.context() as patch:
        patch.setattr(LogCommits, "opened", silent)
        with pytest.raises(StorageUnavailable):
            run(bronze, sync)
    assert run(bronze, sync).unchanged
    assert stored(bronze, destination) == [(1,)]
