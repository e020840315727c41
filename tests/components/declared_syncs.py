"""Declared syncs of tables in `bronze`, for the tests of syncs."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.checks.acknowledged_commits import ACKNOWLEDGED_COMMITS, acknowledge, acknowledging
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_declaration import (
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.components.syncs.sync_pass import SyncPass, SyncResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.engines.lakehouse import Lakehouse, append
from tests.engines.quick_tables import QuickTables


def names() -> tuple[str, str]:
    """Of a source and a destination that no other test has."""
    unique = uuid4().hex[:10]
    return f"from_{unique}", f"to_{unique}"


def declared(destination: str, strategy: SyncStrategy, source: SyncSource, *keys: str, **more: Any) -> SyncDeclaration:
    name = more.pop("name", destination)
    return SyncDeclaration(name, source, TableName("bronze", destination), strategy, keys, create_if_missing=True, **more)


def table(name: str) -> SyncSource:
    return SyncSource(TableQuery.parsed(whole_table(TableName("bronze", name)), "databricks", "source"))


def spark_pass(lake: Lakehouse, sync: SyncDeclaration) -> SyncPass:
    """A pass of a sync, whatever its engine is."""
    return cast("SyncPass", pass_of(lake.spark, lake.duckdb, replace(sync, engine=SyncEngine.SPARK)))


def duckdb_pass(lake: Lakehouse, sync: SyncDeclaration, duckdb: DuckDB | None = None) -> SyncPass:
    """As `spark_pass`; by default by the DuckDB of the lakehouse."""
    return cast("SyncPass", pass_of(lake.spark, duckdb or lake.duckdb, replace(sync, engine=SyncEngine.DUCKDB)))


def run(lake: Lakehouse, sync: SyncDeclaration) -> SyncResult:
    return pass_of(lake.spark, lake.duckdb, sync).run()


def run_by_duckdb(lake: Lakehouse, sync: SyncDeclaration, columns: str = "") -> SyncResult:
    """As `run`, in milliseconds: Spark goes on where DuckDB ended (`test_sync_duckdb.py`, `test_sync_duckdb_merge.py`).

    `columns`: of the destination, if that is to be created before: otherwise Spark does it.
    """
    if columns:
        lake.quick(f"CREATE TABLE ratify.{sync.destination} ({columns}) USING DELTA")
    return duckdb_pass(lake, sync).run()


def stored(lake: Lakehouse, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of a table in `bronze`, in their order; NULL is first."""
    rows = (tuple(row.values()) for row in lake.quick(f"SELECT {columns} FROM ratify.bronze.{name}"))
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def dead_letters_of(lake: Lakehouse, sync: SyncDeclaration) -> int:
    """As `dead_letters`, not by Spark."""
    try:
        letters = lake.quick(f"SELECT rows FROM {DEAD_LETTERS.table_name} WHERE sync = '{sync.name}'")
    except TableMissing:
        return 0
    return sum(letter["rows"] for letter in letters)


@pytest.fixture
def bronze(lake: Lakehouse) -> Lakehouse:
    lake.catalog.ensure_schemas(("bronze", "ops"))
    return lake


@contextmanager
def lake_in(folder: Path) -> Iterator[Lakehouse]:
    """A lakehouse whose Spark was not started."""
    with pytest.MonkeyPatch.context() as patch, catalog_here(folder) as server:
        patch.setenv("RATIFY_HOME", str(folder / "home"))
        catalog, another = (UnityCatalog(host=server.url, token=server.token) for _ in range(2))
        with closing(DuckDB(catalog=catalog)) as duckdb, closing(DuckDB(catalog=another)) as other:
            yield Lakehouse(cast("Any", None), catalog, Spark(catalog=catalog), duckdb, QuickTables(other))


@pytest.fixture
def quick_lake(tmp_path: Path) -> Iterator[Lakehouse]:
    """A lakehouse whose Spark was not started."""
    with lake_in(tmp_path) as lake:
        yield lake


def erase(lake: Lakehouse, full_name: str, *ids: int) -> None:
    """Delete rows of a table as an erasure does, in a commit that is acknowledged."""
    listed = ", ".join(map(str, ids))
    delete = (
        f"MERGE INTO {full_name} AS t USING (SELECT explode(array({listed})) AS id) AS s "
        "ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    lake.spark.commit(full_name, lambda: lake.spark.rows(lake.spark.sql(delete)), acknowledging("An erasure"))


def erase_quickly(lake: Lakehouse, full_name: str, *ids: int) -> None:
    """As `erase`, not by Spark."""
    lake.quick(f"DELETE FROM {full_name} WHERE id IN ({', '.join(map(str, ids))})", acknowledging("An erasure"))


def acknowledge_quickly(lake: Lakehouse, full_name: str, version: int) -> None:
    """As `acknowledge`, not by Spark: what the strategy append asks of the version, which was not acknowledged before."""
    values = {"table_id": f"'{lake.catalog.table(full_name).table_id}'", "version": str(version)}
    columns = (f"{values.get(column.name, 'NULL')} AS {column.name}" for column in ACKNOWLEDGED_COMMITS.columns)
    lake.created(ACKNOWLEDGED_COMMITS)
    # Other processes write to this table, too.
    append(lake.duckdb, ACKNOWLEDGED_COMMITS, f"SELECT {', '.join(columns)}", f"version {version} of {full_name}")


def assert_it_goes_on_once_that_is_acknowledged(
    bronze: Lakehouse,
    source: str,
    sync: SyncDeclaration,
    run: Callable[[Lakehouse, SyncDeclaration], SyncResult],
    *,
    quickly: bool = False,
) -> None:
    """Rows that were inserted stay; what is deleted before it was read is not inserted, also if its like was or comes.

    `quickly`: whether Spark neither acknowledges nor erases.
    """
    destination, rows = sync.destination.table, f"ratify.bronze.{source}"
    before = stored(bronze, destination, "id")
    deleted = bronze.catalog.version(rows)
    if quickly:
        acknowledge_quickly(bronze, rows, deleted)
    else:
        acknowledge(bronze.spark, rows, [deleted], "Of a test")
    assert run(bronze, sync).counts.inserted == 0
    bronze.quick(f"INSERT INTO {rows} VALUES (1, 'a'), (7, 'erased'), (8, 'b')")
    (erase_quickly if quickly else erase)(bronze, rows, 2, 7)
    bronze.quick(f"INSERT INTO {rows} VALUES (2, 'b'), (8, 'b')")
    assert run(bronze, sync).counts.inserted == 4
    assert stored(bronze, destination, "id") == sorted([*before, (1,), (2,), (8,), (8,)])
