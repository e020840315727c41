"""Syncs by a SQL warehouse, through the real SDK, against a local server that runs its statements on Spark."""

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.syncs.sync_connection import connection_steps
from ratify_lakehouse.components.syncs.sync_declaration import DeletionGuards, MappedColumn, SyncSource, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.components.syncs.warehouse_pass import WarehousePass
from ratify_lakehouse.errors import HistoryNotContinued, RowsNotConverted, StatementFailed, SyncRefused, TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.catalog.workspace_server import CLIENT_ID, CLIENT_SECRET, WAREHOUSE
from tests.components.declared_syncs import assert_it_goes_on_once_that_is_acknowledged
from tests.components.warehouse_workspace import Workspace, csv, declared, names, table

pytestmark = pytest.mark.stack

TEXTS = (
    *("ä名😀", "it's", 'say "x"', "", None, "%s", ":name :rows", "two\nlines", "back\\slash \\n", "{rows} {{}}", "NULL"),
    *("a,b", " spaces ", "\ttab", "[1]", "0"),
)


@pytest.mark.long
def test_a_table_is_merged(workspace: Workspace) -> None:
    source, destination = names()
    values = "VALUES ('a', 1, 1.5D), ('a', NULL, 2D) AS t(k, n, v)"
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT * FROM {values}")
    sync = declared(destination, SyncStrategy.MERGE, table(source), "k", "n")
    result = workspace.run(sync)
    assert (result.counts.read, result.counts.inserted, result.created, result.version, result.rows) == (2, 2, True, 1, 2)
    assert workspace.began("INSERT", "DROP") == []
    workspace.lake.quick(f"UPDATE ratify.bronze.{source} SET v = 3 WHERE n IS NULL")
    workspace.lake.quick(f"INSERT INTO ratify.bronze.{destination} VALUES ('other', 9, 9)")
    result = workspace.run(sync)
    assert (result.counts.inserted, result.counts.updated, result.counts.deleted, result.version) == (0, 1, 0, 3)
    assert [row["change"] for row in result.sample] == ["update"]
    assert workspace.stored(destination) == [("a", 1, 1.5), ("a", None, 3.0), ("other", 9, 9.0)]
    # A run without changes sends no MERGE.
    merges = len(workspace.began("MERGE"))
    result = workspace.run(sync)
    assert (result.commit, result.version, len(workspace.began("MERGE"))) == (None, 3, merges)


def test_values_of_a_file_arrive_as_they_are_and_only_rows_that_differ_are_merged(
    workspace: Workspace, tmp_path: Path
) -> None:
    _, destination = names()
    rows = [(str(number), text, "1") for number, text in enumerate(TEXTS)]
    absent = str(TEXTS.index(None))
    workspace.lake.quick(
        f"CREATE TABLE ratify.bronze.{destination} AS SELECT * FROM "
        f"VALUES (0, '{TEXTS[0]}', '1'), ({absent}, NULL, '0'), (99, NULL, '0') AS t(id, text, v)"
    )
    source = csv(tmp_path / "a.csv", ("id", "text", "v"), *rows)
    sync = declared(destination, SyncStrategy.MERGE, source, "id", "text", batch=9)
    sync = replace(sync, columns=(MappedColumn("id", "id", "int"),))
    counts = workspace.run(sync).counts
    stored = [*((int(id_), text, v) for id_, text, v in rows), (99, None, "0")]
    assert workspace.stored(destination) == sorted(stored, key=repr)
    assert (counts.read, counts.inserted, counts.updated, counts.deleted) == (len(TEXTS), len(TEXTS) - 2, 1, 0)
    assert [len(workspace.began(statement)) for statement in ("INSERT INTO", "MERGE")] == [2, 1]
    assert [len(each) for each in workspace.fake.parameters if each] == [1, 1]
    assert workspace.staging() == set()


@pytest.mark.long
def test_rows_by_duckdb_keep_their_types(workspace: Workspace, tmp_path: Path) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    text = (
        "SELECT id, 1.25::DECIMAL(6,2) AS d, TIMESTAMPTZ '2026-01-02 03:04:05.678901+02' AS t, DATE '2026-01-02' AS day, "
        "'x'::BLOB AS b, [1, NULL] AS l, sum(id) OVER () AS h, 0.1::DOUBLE AS f, true AS ok "
        f"FROM bronze.{source}"
    )
    sync = declared(destination, SyncStrategy.MERGE, SyncSource(TableQuery.parsed(text, "duckdb", "x.sql")), "id")
    workspace.run(sync)
    shown = ", ".join(f"CAST({name} AS STRING)" for name in ("d", "day", "b", "h"))
    shown = f"id, unix_micros(t), {shown}, l, f, ok"
    at = round(dt.datetime(2026, 1, 2, 1, 4, 5, tzinfo=dt.UTC).timestamp()) * 1_000_000 + 678_901
    expected = [(1, at, "1.25", "2026-01-02", "x", "1", [1, None], 0.1, True)]
    assert workspace.stored(destination, shown) == expected
    assert workspace.run(sync).commit is None
    # Texts of JSON lines that look like times stay as they are; the columns are those of the destination.
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 1, "at": "2026-01-02T00:00:00Z"}) + "\n")
    lines = SyncSource(files=str(tmp_path / "a.jsonl"), format="json")
    workspace.run(declared(f"{destination}_2", SyncStrategy.MERGE, lines, "id"))
    assert workspace.stored(f"{destination}_2") == [(1, "2026-01-02T00:00:00Z")]


def test_a_version_is_inserted_once(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v UNION ALL SELECT 1, 'a'")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    first, second = workspace.run(sync), workspace.run(sync)
    assert (first.counts.inserted, second.counts.inserted, second.unchanged) == (2, 0, True)
    assert workspace.stored(destination) == [(1, "a"), (1, "a")]


@pytest.mark.long
def test_rows_are_inserted_once(workspace: Workspace, tmp_path: Path) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'a' AS v UNION ALL SELECT 1, 'a'")
    sync = declared(destination, SyncStrategy.APPEND, table(source))
    assert (workspace.run(sync).counts.inserted, workspace.run(sync).counts.inserted) == (2, 0)
    workspace.lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES (1, 'a'), (2, 'b')")
    assert workspace.run(sync).counts.inserted == 2
    assert workspace.stored(destination) == [(1, "a"), (1, "a"), (1, "a"), (2, "b")]
    # Another sync of the same rows is another one.
    assert workspace.run(replace(sync, name=f"{destination}_2")).counts.inserted == 4
    workspace.lake.quick(f"DELETE FROM ratify.bronze.{source} WHERE id = 1")
    with pytest.raises(HistoryNotContinued, match="DELETE, version 2"):
        workspace.run(sync)
    assert_it_goes_on_once_that_is_acknowledged(workspace.lake, source, sync, lambda _, sync: workspace.run(sync))
    file = declared(destination, SyncStrategy.APPEND, csv(tmp_path / "a.csv", ("id", "v"), ("7", "x")))
    assert [workspace.run(file).counts.inserted for _ in range(2)] == [1, 0]
    assert len(workspace.stored(destination)) == 13


@pytest.mark.long
def test_each_file_of_a_pattern_is_inserted_once(workspace: Workspace, tmp_path: Path) -> None:
    _, destination = names()
    sync = declared(destination, SyncStrategy.APPEND, SyncSource(files=str(tmp_path / "*.csv"), format="csv"))
    for name, inserted in (("b.csv", 1), ("a.csv", 1)):
        csv(tmp_path / name, ("id", "v"), ("7", name))
        assert [workspace.run(sync).counts.inserted for _ in range(2)] == [inserted, 0]
    assert workspace.stored(destination) == [("7", "a.csv"), ("7", "b.csv")]


@pytest.mark.long
def test_a_statement_that_is_sent_twice_inserts_once(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    engine = workspace.fake.engine

    def twice(statement: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        assert engine
        if statement.startswith(("MERGE", "INSERT")):
            engine(statement, parameters)
        return engine(statement, parameters)

    workspace.fake.engine = twice
    assert workspace.run(declared(destination, SyncStrategy.APPEND, table(source))).counts.inserted == 1
    assert workspace.stored(destination) == [(1,)]


@pytest.mark.long
def test_rows_are_not_inserted_again_if_the_history_has_no_mark(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    engine = workspace.fake.engine

    def unmarked(statement: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        assert engine
        return engine(re.sub(r"(WHEN NOT MATCHED) AND source.ratify_mark = '[^']*'", r"\1", statement), parameters)

    workspace.fake.engine = unmarked
    with pytest.raises(StatementFailed, match="does not say whether the 1 rows"):
        workspace.run(declared(destination, SyncStrategy.APPEND, table(source)))
    assert workspace.stored(destination) == [(1,)]


@pytest.mark.long
def test_uploads_that_are_sent_twice_count_once(workspace: Workspace, tmp_path: Path) -> None:
    _, destination = names()
    engine = workspace.fake.engine

    def twice(statement: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        assert engine
        if statement.startswith("INSERT"):
            engine(statement, parameters)
        return engine(statement, parameters)

    workspace.fake.engine = twice
    sync = declared(destination, SyncStrategy.APPEND, csv(tmp_path / "a.csv", ("id",), ("1",), ("1",)))
    assert workspace.run(sync).counts.inserted == 2
    assert workspace.stored(destination) == [("1",), ("1",)]


@pytest.mark.long
def test_a_mirror_deletes(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id FROM range(2)")
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{destination} AS SELECT id FROM range(1, 3)")
    sync = declared(destination, SyncStrategy.MIRROR, table(source), "id")
    with pytest.raises(SyncRefused, match="would delete 1 of 2 rows"):
        workspace.run(replace(sync, guards=DeletionGuards(max_fraction=0.4)))
    assert workspace.version(destination) == 0
    result = workspace.run(sync)
    assert (result.counts.inserted, result.counts.deleted, result.version) == (1, 1, 1)
    assert workspace.stored(destination) == [(0,), (1,)]


@pytest.mark.long
def test_what_a_mirror_may_not_delete(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, id % 2 AS part FROM range(4)")
    sync = declared(destination, SyncStrategy.MIRROR, table(source), "id")
    workspace.run(sync)
    workspace.lake.quick(f"DELETE FROM ratify.bronze.{source} WHERE part = 0 OR id = 3")
    # Of the other part the source has no rows.
    scoped = replace(sync, guards=DeletionGuards(scope=("part",)))
    assert workspace.run(scoped).counts.deleted == 1
    workspace.lake.quick(f"DELETE FROM ratify.bronze.{source}")
    with pytest.raises(SyncRefused, match="has no rows, so all 3 rows"):
        workspace.run(sync)
    assert (workspace.version(destination), workspace.stored(destination, "id")) == (2, [(0,), (1,), (2,)])
    assert workspace.run(replace(sync, guards=DeletionGuards(empty_source=True))).counts.deleted == 3


@pytest.mark.long
def test_a_table_is_replaced_where_it_differs(workspace: Workspace, tmp_path: Path) -> None:
    _, destination = names()
    file = tmp_path / "a.csv"
    sync = declared(destination, SyncStrategy.FULL, csv(file, ("id", "v"), ("1", "a"), ("1", "a"), ("2", None)))
    assert workspace.run(sync).counts.inserted == 3
    assert workspace.run(sync).commit is None
    csv(file, ("id", "v"), ("1", "a"), ("2", ""))
    result = workspace.run(sync)
    assert (result.counts.inserted, result.counts.deleted, result.version) == (2, 3, 2)
    assert workspace.stored(destination) == [("1", "a"), ("2", "")]


@pytest.mark.long
def test_rows_that_do_not_fit_write_nothing(workspace: Workspace, tmp_path: Path) -> None:
    _, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, n INT)")
    file = tmp_path / "a.csv"
    sync = declared(destination, SyncStrategy.MERGE, csv(file, ("id", "n"), ("1", "1"), ("2", "many")), "id")
    with pytest.raises(RowsNotConverted, match=r"1 of 2 rows.*column n: many is not a valid int"):
        workspace.run(sync)
    csv(file, ("id", "n"), ("1", "1"), ("1", "2"))
    with pytest.raises(RowsNotConverted, match="have the same id: id=1"):
        workspace.run(sync)
    workspace.run(replace(sync, latest=("n",)))
    assert workspace.stored(destination) == [(1, 2)]
    csv(file, ("id", "n"), ("1", "1", "1"))
    with pytest.raises(RowsNotConverted, match="cannot be read"):
        workspace.run(sync)
    csv(file, ("id", "n"), ("1", "2"))
    with pytest.raises(TableMissing, match=r"does not exist\. Create it"):
        workspace.run(replace(sync, destination=TableName("bronze", "nowhere"), create_if_missing=False))
    with pytest.raises(SyncRefused, match="has no column m"):
        workspace.run(replace(sync, columns=(MappedColumn("m", "n"),)))
    assert (workspace.version(destination), workspace.staging()) == (1, set())


@pytest.mark.long
def test_a_table_of_the_legacy_metastore(workspace: Workspace) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id, 'new' AS v")
    workspace.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.legacy")
    workspace.sql(f"CREATE TABLE spark_catalog.legacy.{destination} (id INT, v STRING) USING DELTA")
    to = TableName("legacy", destination, "hive_metastore")
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id", to=to, create_if_missing=False)
    assert (workspace.run(sync).counts.inserted, workspace.run(sync).commit) == (1, None)
    assert workspace.sql(f"SELECT * FROM spark_catalog.legacy.{destination}") == [(1, "new")]
    workspace.sql(f"DROP TABLE spark_catalog.legacy.{destination}")


@pytest.mark.long
def test_by_oauth(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    for name, value in (
        ("UNITY_HOST", workspace.fake.url),
        ("UNITY_CLIENT_ID", CLIENT_ID),
        ("UNITY_CLIENT_SECRET", CLIENT_SECRET),
        ("UNITY_WAREHOUSE_ID", WAREHOUSE),
        ("UNITY_CATALOG", "ratify"),
    ):
        monkeypatch.setenv(name, value)
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    assert WarehousePass(SqlWarehouse(catalog=UnityCatalog()), workspace.lake.duckdb, sync).run().counts.inserted == 1
    assert (set(workspace.fake.callers), len(workspace.fake.tokens)) == ({CLIENT_ID}, 1)
    workspace.fake.callers.clear()
    workspace.run(sync)
    assert set(workspace.fake.callers) == {"admin@example.com"}


@pytest.mark.long
def test_a_plan_and_a_check_write_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = names()
    workspace.lake.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT 1 AS id")
    duckdb = workspace.lake.duckdb.model_copy(update={"catalog": workspace.warehouse.catalog})
    monkeypatch.setenv("UNITY_HOST", workspace.fake.url)
    monkeypatch.setenv("UNITY_WAREHOUSE_ID", WAREHOUSE)
    sync = declared(destination, SyncStrategy.MERGE, table(source), "id")
    counts, sample = pass_of(workspace.lake.spark, duckdb, sync).plan()
    assert (counts.inserted, sample) == (1, [{"change": "insert", "id": 1}])
    (step,) = connection_steps(workspace.lake.spark, duckdb, sync)
    assert (step.found, step.lacks) == ("1 rows fit, of which a run would write 1", "")
    assert workspace.began("CREATE", "INSERT", "MERGE") == []
    (step,) = connection_steps(workspace.lake.spark, duckdb, replace(sync, create_if_missing=False))
    assert "does not exist" in step.lacks
