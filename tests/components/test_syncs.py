"""Syncs over the lakehouse: each strategy, what they create and refuse, and what they do twice."""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import spark_tables, sync_pass
from ratify_lakehouse.components.syncs.sync_connection import connection_steps
from ratify_lakehouse.components.syncs.sync_declaration import (
    MappedColumn,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import HistoryNotContinued, RowsNotConverted, SyncRefused, TableMissing, UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.declared_syncs import (
    assert_it_goes_on_once_that_is_acknowledged,
    declared,
    names,
    run,
    run_by_duckdb,
    spark_pass,
    stored,
    table,
)
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


def test_rows_are_inserted_once(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 2 AS id, 'b' AS v")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    assert run_by_duckdb(bronze, sync, "id INT, v STRING").counts.inserted == 1
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (1, 'a'), (1, 'a')")
    assert run(bronze, sync).counts.inserted == 2
    # DuckDB goes on where Spark ended.
    assert run_by_duckdb(bronze, sync).unchanged
    assert stored(bronze, destination) == [(1, "a"), (1, "a"), (2, "b")]
    # Another sync of the same rows is another one.
    assert run_by_duckdb(bronze, replace(sync, name=f"{destination}_2")).counts.inserted == 3
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    # Spark's refusal is in the next test.
    with pytest.raises(HistoryNotContinued, match=r"DELETE, version 2.* `ratify acknowledge"):
        run_by_duckdb(bronze, sync)
    assert len(stored(bronze, destination)) == 6


# tests/components/test_sync_duckdb.py has the short form.
@pytest.mark.long
def test_rows_are_inserted_once_after_an_erasure(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v UNION ALL SELECT 1, 'a'")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    run(bronze, sync)
    bronze.run(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    assert_it_goes_on_once_that_is_acknowledged(bronze, source, sync, run)


# tests/components/test_sync_duckdb.py has it by DuckDB; the pass is the same.
@pytest.mark.long
def test_of_two_inserts_at_once_the_later_one_reads_again(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read what the other one inserts, and rows that came after those."""
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    run_by_duckdb(bronze, sync, "id INT")
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (2)")
    write, first = sync_pass.write_changes, list[Any]()

    def of_the_first(*arguments: Any) -> WriteResult:
        def of_the_second(*others: Any) -> WriteResult:
            monkeypatch.setattr(sync_pass, "write_changes", write)
            first.append(write(*arguments))
            return write(*others)

        monkeypatch.setattr(sync_pass, "write_changes", of_the_second)
        bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (3)")
        assert run(bronze, sync).counts.inserted == 1
        return first[0]

    monkeypatch.setattr(sync_pass, "write_changes", of_the_first)
    run(bronze, sync)
    assert stored(bronze, destination) == [(1,), (2,), (3,)]


def changed_by_another(bronze: Lakehouse, patch: pytest.MonkeyPatch, owner: Any, name: str, statement: str) -> None:
    """Let another writer change a table before the next call of a function."""
    original = getattr(owner, name)

    def after_another_writer(*arguments: Any, **more: Any) -> Any:
        patch.setattr(owner, name, original)
        bronze.quick(statement)
        return original(*arguments, **more)

    patch.setattr(owner, name, after_another_writer)


def test_a_merge_reads_what_changed(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass puts right what somebody else has changed in the destination, while this one wrote to it."""
    source, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{source} TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') "
        "AS SELECT id, 'a' AS v FROM range(50)"
    )
    sync = declared(destination, SyncStrategy.MERGE, table(source), "key", columns=(MappedColumn("key", "id"),))
    assert run_by_duckdb(bronze, sync, "key BIGINT, v STRING").counts.read == 50
    bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'b' WHERE id = 7")
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 8")
    theirs = f"UPDATE ratify.bronze.{destination} SET v = 'theirs' WHERE key = 9"
    changed_by_another(bronze, monkeypatch, Spark, "merge_changes", theirs)
    counts = run(bronze, sync).counts
    assert (counts.read, counts.updated, counts.deleted) == (1, 1, 0)
    # To see what Spark would read and write takes half as long as the pass, which DuckDB makes.
    counts, _ = spark_pass(bronze, sync).plan()
    assert (counts.read, counts.updated) == (49, 1)
    assert run_by_duckdb(bronze, sync).counts.updated == 1
    assert stored(bronze, destination, "count_if(v = 'a'), count_if(v = 'b'), count(*)") == [(49, 1, 50)]


@pytest.mark.long
def test_what_others_change_before_a_pass_reads_the_destination_is_repaired(
    bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{source} TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') "
        "AS SELECT id, 'a' AS v FROM range(3)"
    )
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    run_by_duckdb(bronze, sync, "id BIGINT, v STRING")
    bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'b' WHERE id = 1")
    theirs = f"UPDATE ratify.bronze.{destination} SET v = 'theirs' WHERE id = 2"
    changed_by_another(bronze, monkeypatch, spark_tables, "find_destination", theirs)
    run(bronze, sync)
    run(bronze, sync)
    assert stored(bronze, destination) == [(0, "a"), (1, "b"), (2, "a")]


# tests/components/test_sync_duckdb.py has it by DuckDB.
@pytest.mark.long
def test_names_and_types_are_those_of_the_destination(bronze: Lakehouse, tmp_path: Path) -> None:
    _, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{destination} (Id INT NOT NULL, price DECIMAL(6,2), day DATE, note STRING, extra INT)"
    )
    file = tmp_path / "orders.jsonl"
    lines = [
        {"id": "1", "cents{}": 1.25, "at": "2026-01-02", "note": "x"},
        {"id": "2", "cents{}": None, "at": None, "note": None},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = (MappedColumn("price", "cents{}", "decimal(6,2)"), MappedColumn("day", "at"))
    sync = declared(destination, SyncStrategy.MERGE, SyncSource(files=str(file), format="json"), "id", columns=columns)
    result = run(bronze, sync)
    wanted = [(1, Decimal("1.25"), dt.date(2026, 1, 2), "x", None), (2, None, None, None, None)]
    assert stored(bronze, destination) == wanted
    assert (result.counts.inserted, result.version) == (2, 1)
    assert run(bronze, sync).commit is None
    assert [(step.name, step.lacks) for step in connection_steps(bronze.spark, bronze.duckdb, sync)][-1] == (
        "the columns fit",
        "",
    )


def test_rows_that_do_not_fit(bronze: Lakehouse, tmp_path: Path) -> None:
    _, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT NOT NULL, n INT)")
    file = tmp_path / "rows.csv"
    file.write_text("id,n\n1,1\n2,many\n,3\n4,4,4\n")
    sync = declared(destination, SyncStrategy.MIRROR, SyncSource(files=str(file), format="csv"), "id")
    with pytest.raises(RowsNotConverted, match="3 of 4 rows") as refused:
        run(bronze, sync)
    for reason in ("column n: many is not a valid int", "column id: it is NULL", "the line has other fields"):
        assert reason in str(refused.value)
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 0


def test_a_query_by_duckdb_is_a_source(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v UNION ALL SELECT 1, 'b' UNION ALL SELECT 2, 'c'"
    )
    text = f"SELECT id, string_agg(v, ',' ORDER BY v) AS v FROM bronze.{source} GROUP BY ALL"
    sync = declared(destination, SyncStrategy.FULL, SyncSource(TableQuery.parsed(text, "duckdb", "x.sql")))
    result = run(bronze, sync)
    assert stored(bronze, destination) == [(1, "a,b"), (2, "c")]
    assert result.lineage["v"] == (f"bronze.{source}.v",)
    assert run(bronze, sync).unchanged


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"keys": ("nothing",)}, SyncRefused, "nothing, the key"),
    ({"source": table("missing")}, TableMissing, "missing"),
    ({"create_if_missing": False}, TableMissing, "create_if_missing"),
    ({"columns": (MappedColumn("v", "w"),)}, SyncRefused, "no column w"),
    ({"columns": (MappedColumn("id", "v"),)}, SyncRefused, "Two columns"),
    ({"doubled": True}, RowsNotConverted, "same id: id=1"),
    ({"mapped": True}, SyncRefused, "column mapping"),
    ({"lacking": True}, SyncRefused, "has no column v"),
    ({"needing": True}, SyncRefused, "needs must"),
    ({"unsafe": True}, UnsafeDeclaration, "TIMESTAMP_NTZ"),
]
BY_SPARK = {"doubled", "mapped", "lacking", "unsafe"}
"""What Spark finds in words of its own; all else is found alike."""


def refused() -> Iterator[Any]:
    for more, error, text in REFUSED:
        by_spark = not BY_SPARK.isdisjoint(more)
        if not by_spark:
            yield pytest.param(SyncEngine.DUCKDB, more, error, text)
        yield pytest.param(SyncEngine.SPARK, more, error, text, marks=() if by_spark else pytest.mark.long)


@pytest.mark.parametrize(("engine", "more", "error", "text"), [*refused()])
def test_what_cannot_be_done_is_refused(
    bronze: Lakehouse, engine: SyncEngine, more: dict[str, Any], error: type[Exception], text: str
) -> None:
    source, destination = names()
    given, into = dict(more), f"CREATE TABLE ratify.bronze.{destination} (id INT"
    rows = "SELECT 1 AS id, 'a' AS v" + (" UNION ALL SELECT 1, 'b'" if given.pop("doubled", False) else "")
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS {rows}")
    if given.pop("unsafe", False):
        # Not as a table, which would hide its schema from DuckDB.
        query = f"SELECT id, TIMESTAMP_NTZ'2026-01-01' AS v FROM bronze.{source}"
        given["source"] = SyncSource(TableQuery.parsed(query, "databricks", "x.sql"))
    if given.pop("mapped", False):
        bronze.run(f"{into}, v STRING) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    if given.pop("lacking", False):
        bronze.quick(f"{into})")
    if given.pop("needing", False):
        bronze.quick(f"{into}, v STRING, must INT NOT NULL)")
    sync = replace(declared(destination, SyncStrategy.MERGE, table(source), "id", engine=engine), **given)
    with pytest.raises(error, match=text):
        run(bronze, sync)
    (*_, last) = connection_steps(bronze.spark, bronze.duckdb, sync)
    assert bool(last.lacks) != (error is RowsNotConverted)
    try:
        assert bronze.catalog.version(f"ratify.bronze.{destination}") == 0
    except TableMissing:
        assert "mapped" not in more
