"""Syncs of the strategies merge, mirror and full by DuckDB: what they find, write and refuse beside what the model says."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.components.syncs import duckdb_tables, prepared_changes, spark_tables, sync_pass
from ratify_lakehouse.components.syncs.sync_declaration import (
    DeletionGuards,
    MappedColumn,
    RowErrors,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
)
from ratify_lakehouse.components.syncs.sync_engines import letters_of, pass_of
from ratify_lakehouse.components.syncs.sync_pass import SyncResult
from ratify_lakehouse.components.syncs.written_keys import written_keys_table
from ratify_lakehouse.errors import RowsNotConverted, SyncRefused, UnsafeTable
from ratify_lakehouse.sql.table_query import TableQuery
from tests.components.declared_syncs import dead_letters_of, declared, duckdb_pass, names, spark_pass, stored, table
from tests.components.incremental_tables import moved
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


def by_duckdb(destination: str, strategy: SyncStrategy, source: SyncSource, *keys: str, **more: Any) -> SyncDeclaration:
    return declared(destination, strategy, source, *keys, engine=SyncEngine.DUCKDB, **more)


def run(lake: Lakehouse, sync: SyncDeclaration) -> SyncResult:
    return duckdb_pass(lake, sync).run()


def counted(result: SyncResult) -> tuple[int, int, int]:
    return result.counts.inserted, result.counts.updated, result.counts.deleted


def test_a_table_is_merged_and_spark_goes_on(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(
        f"CREATE TABLE ratify.bronze.{source} AS SELECT id, concat('ä', id) AS v, CAST(NULL AS INT) AS n FROM range(5)"
    )
    sync = by_duckdb(destination, SyncStrategy.MERGE, table(source), "id", "n")
    first, second = run(bronze, sync), run(bronze, sync)
    assert (counted(first), first.created, first.rows, first.version) == ((5, 0, 0), True, 5, 1)
    assert (counted(second), second.unchanged, second.commit, second.version) == ((0, 0, 0), True, None, 1)
    assert first.commit is not None
    assert (first.commit.operation, first.commit.engine) == ("MERGE", "DuckDB")
    assert first.lineage["id"] == (f"bronze.{source}.id",)

    bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'new' WHERE id = 1")
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 2")
    counts, sample = duckdb_pass(bronze, sync).plan()
    assert (counts.inserted, counts.updated) == (0, 1)
    assert sample == [{"change": "update", "id": 1, "v": "new", "n": None}]
    assert counted(run(bronze, sync)) == (0, 1, 0)
    # Spark takes its records for those of its own passes, and the other way round.
    by_spark = replace(sync, engine=SyncEngine.SPARK)
    assert spark_pass(bronze, by_spark).run().unchanged
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (9, 'x', NULL)")
    assert spark_pass(bronze, by_spark).run().counts.inserted == 1
    assert run(bronze, sync).unchanged
    # What somebody else has changed is put right.
    bronze.quick(f"UPDATE ratify.bronze.{destination} SET v = 'theirs' WHERE id = 3")
    assert counted(run(bronze, sync)) == (0, 1, 0)
    assert stored(bronze, destination, "id, v") == [(0, "ä0"), (1, "new"), (2, "ä2"), (3, "ä3"), (4, "ä4"), (9, "x")]


def test_another_writer_in_between_is_seen(bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, 'a' AS v FROM range(3)")
    sync = by_duckdb(destination, SyncStrategy.MIRROR, table(source), "id")
    run(bronze, sync)
    bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'b' WHERE id = 1")
    original: Callable[..., Any] = duckdb_tables.merge_changes

    def after_another_writer(*arguments: Any) -> Any:
        monkeypatch.setattr(duckdb_tables, "merge_changes", original)
        bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (7, 'theirs')")
        return original(*arguments)

    monkeypatch.setattr(duckdb_tables, "merge_changes", after_another_writer)
    assert counted(run(bronze, sync)) == (0, 1, 1)
    assert stored(bronze, destination) == [(0, "a"), (1, "b"), (2, "a")]


@pytest.mark.parametrize("engine", [SyncEngine.DUCKDB, pytest.param(SyncEngine.SPARK, marks=pytest.mark.long)])
def test_a_pass_that_read_an_older_source_does_not_win(
    bronze: Lakehouse, monkeypatch: pytest.MonkeyPatch, engine: SyncEngine
) -> None:
    """Another one reads and writes after this one has read, and before it compares."""
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, 'a' AS v FROM range(2)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id BIGINT, v STRING)")
    sync = by_duckdb(destination, SyncStrategy.FULL, table(source))

    def another() -> None:
        bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'b'")
        duckdb_pass(bronze, sync, bronze.another_duckdb()).run()

    seam = (prepared_changes, "RowConversion") if engine is SyncEngine.DUCKDB else (spark_tables, "find_destination")
    with moved(monkeypatch, *seam, another):
        pass_of(bronze.spark, bronze.duckdb, replace(sync, engine=engine)).run()
    assert stored(bronze, destination) == [(0, "b"), (1, "b")]
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 1
    bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'c'")

    def right_already() -> None:
        bronze.quick(f"UPDATE ratify.bronze.{source} SET v = 'b'")
        assert duckdb_pass(bronze, sync, bronze.another_duckdb()).run().commit is None

    write = (duckdb_tables, "overwrite") if engine is SyncEngine.DUCKDB else (sync_pass, "write_changes")
    with moved(monkeypatch, *write, right_already):
        pass_of(bronze.spark, bronze.duckdb, replace(sync, engine=engine)).run()
    assert stored(bronze, destination) == [(0, "b"), (1, "b")]


def test_what_a_mirror_may_delete(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, id % 2 AS p FROM range(6)")
    sync = by_duckdb(destination, SyncStrategy.MIRROR, table(source), "id", guards=DeletionGuards(max_fraction=0.4))
    run(bronze, sync)
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE p = 0 OR id = 1")
    with pytest.raises(SyncRefused, match="would delete 4 of 6 rows"):
        run(bronze, sync)
    scoped = replace(sync, guards=DeletionGuards(scope=("p",)))
    assert counted(run(bronze, scoped)) == (0, 0, 1)
    bronze.quick(f"DELETE FROM ratify.bronze.{source}")
    with pytest.raises(SyncRefused, match="has no rows, so all 5 rows"):
        run(bronze, replace(sync, guards=DeletionGuards()))
    assert len(stored(bronze, destination)) == 5
    assert counted(run(bronze, replace(sync, guards=DeletionGuards(empty_source=True)))) == (0, 0, 5)
    assert stored(bronze, destination) == []


def test_a_table_is_replaced_where_it_differs(bronze: Lakehouse, tmp_path: Path) -> None:
    _, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (x INT, id BIGINT, at TIMESTAMP) USING DELTA")
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (7, 1, NULL)")
    file = tmp_path / "a.csv"
    file.write_text("id,at\n1,2026-01-02T03:04:05Z\n1,2026-01-02T03:04:05Z\n,\n")
    sync = by_duckdb(destination, SyncStrategy.FULL, SyncSource(files=str(file), format="csv"))
    first = run(bronze, sync)
    # Another declaration has no record, so that its rows are compared.
    second = run(bronze, replace(sync, batch=7, latest=("id",)))
    assert (counted(first), counted(second), second.unchanged, first.rows) == ((3, 0, 1), (0, 0, 0), False, 3)
    shown = "coalesce(x, 0), coalesce(id, 0), coalesce(unix_micros(at), 0)"
    at = round(dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC).timestamp()) * 1_000_000
    assert stored(bronze, destination, shown) == [(0, 0, 0), *[(0, 1, at)] * 2]
    file.write_text("id,at\n")
    assert counted(run(bronze, sync)) == (0, 0, 3)
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 3


def test_types_that_duckdb_alone_has(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 5 AS n")
    text = f"SELECT uuid '00000000-0000-0000-0000-000000000001' AS u, sum(n) AS total FROM bronze.{source} GROUP BY ALL"
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (u STRING, total DECIMAL(38,0)) USING DELTA")
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES ('no uuid', 1)")
    sync = by_duckdb(destination, SyncStrategy.MERGE, SyncSource(TableQuery.parsed(text, "duckdb", "x.sql")), "u")
    assert counted(run(bronze, sync)) == (1, 0, 0)
    assert counted(run(bronze, replace(sync, comment="other", latest=("total",)))) == (0, 0, 0)
    assert [str(n) for _, n in stored(bronze, destination)] == ["5", "1"]


@pytest.mark.parametrize(
    ("columns", "rows", "error", "text"),
    [
        ("id BIGINT, v STRING", "(1, 'a'), (1, 'b')", SyncRefused, "has several rows with the same id"),
        ("id BIGINT NOT NULL, v INT", "(1, 1)", RowsNotConverted, "column v: new is not a valid int"),
        ("id BIGINT, v STRING) PARTITIONED BY (v", "(1, 'a')", UnsafeTable, "is partitioned"),
    ],
)
def test_what_cannot_be_done_is_refused(
    bronze: Lakehouse, columns: str, rows: str, error: type[Exception], text: str
) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1L AS id, 'new' AS v")
    make = bronze.run if "PARTITIONED" in columns else bronze.quick
    make(f"CREATE TABLE ratify.bronze.{destination} ({columns.replace(') PARTITIONED', ') USING DELTA PARTITIONED')})")
    make(f"INSERT INTO ratify.bronze.{destination} VALUES {rows}")
    with pytest.raises(error, match=text):
        run(bronze, by_duckdb(destination, SyncStrategy.MERGE, table(source), "id"))
    assert bronze.catalog.version(f"ratify.bronze.{destination}") == 1


def test_several_rows_of_one_key(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, n FROM range(3) AS r(n)")
    sync = by_duckdb(destination, SyncStrategy.MERGE, table(source), "id")
    with pytest.raises(RowsNotConverted, match="have the same id: id=1"):
        run(bronze, sync)
    assert counted(run(bronze, replace(sync, latest=("n",)))) == (1, 0, 0)
    assert stored(bronze, destination) == [(1, 2)]


def test_a_mirror_spares_what_others_wrote(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT * FROM VALUES (0, 0), (1, 1), (2, 2) AS t(id, v)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} AS SELECT * FROM VALUES (9, 9) AS t(id, v)")
    sync = by_duckdb(destination, SyncStrategy.MIRROR, table(source), "id", guards=DeletionGuards(tracked=True))
    assert counted(run(bronze, sync)) == (3, 0, 0)
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES (5, 5)")
    assert counted(run(bronze, sync)) == (1, 0, 1)
    assert stored(bronze, destination) == [(0, 0), (2, 2), (5, 5), (9, 9)]
    # The key that it has deleted is no longer its own, and the one that it has inserted is.
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (1, 7)")
    bronze.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 5")
    counts, sample = duckdb_pass(bronze, sync).plan()
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 0, 1)
    assert [(row["change"], row["id"]) for row in sample] == [("delete", 5)]
    keys = bronze.quick(f"SELECT id, pass_id FROM ops.{written_keys_table(sync.name)} ORDER BY id")
    assert keys == [{"id": id_, "pass_id": ""} for id_ in (0, 2, 5)]


def test_rows_that_do_not_fit_wait_until_they_do(bronze: Lakehouse, tmp_path: Path) -> None:
    """Rows that the source has no more, or that fit now, leave the dead letters."""
    _, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT NOT NULL, n INT)")
    file = tmp_path / "rows.csv"
    file.write_text("id,n\n1,1\n2,many\n,3\n4,4,4\n")
    source = SyncSource(files=str(file), format="csv")
    sync = by_duckdb(destination, SyncStrategy.MIRROR, source, "id", row_errors=RowErrors.SKIP)
    assert (run(bronze, sync).counts.failed, stored(bronze, destination)) == (3, [(1, 1)])
    assert (letters_of(bronze.spark, bronze.duckdb, sync), dead_letters_of(bronze, sync)) == (3, 3)
    file.write_text("id,n\n1,1\n2,2\n")
    run(bronze, sync)
    assert (dead_letters_of(bronze, sync), stored(bronze, destination)) == (0, [(1, 1), (2, 2)])


def test_a_number_is_not_cut_off_unless_it_is_cast(bronze: Lakehouse) -> None:
    """As Spark casts it, which does not round."""
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 2.75D AS n")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT)")
    sync = by_duckdb(destination, SyncStrategy.MERGE, table(source), "id")
    with pytest.raises(RowsNotConverted, match=r"2\.75 would lose digits as int"):
        run(bronze, sync)
    run(bronze, replace(sync, columns=(MappedColumn("n", "n", "int"),)))
    assert stored(bronze, destination) == [(1, 2)]
