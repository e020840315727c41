"""The three engines on the session's one stack, and tables that no other test has."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.embedded.stack_state import StackState
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.group_commit import Ratified
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from tests.embedded.catalog.harness import client_of
from tests.engines.declared_tables import create_declared, insert_rows, set_properties
from tests.engines.quick_tables import QuickTables

# Each task of a shuffle costs more than the few rows of a test's table: with one, a pass takes a sixth less CPU.
_FEW_ROWS = {"spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True)
class Lakehouse:
    """The resources, all of one stack."""

    stack: StackState
    catalog: UnityCatalog
    spark: Spark
    duckdb: DuckDB
    quick_tables: QuickTables

    def another_duckdb(self, **more: Any) -> DuckDB:
        """An engine of its own, as another process has it."""
        return DuckDB(catalog=another_catalog(self.stack), **more)

    def full(self, table: TableDeclaration) -> str:
        return table.full_name("ratify")

    def run(self, sql: str) -> list[dict[str, Any]]:
        return self.spark.rows(self.spark.sql(sql))

    @cached_property
    def admin(self) -> httpx.Client:
        """The catalog's own client."""
        return client_of(self.stack.catalog.url, self.stack.catalog.token_file.read_text().strip())

    def create(self, table: TableDeclaration, rows: str = "") -> TableDeclaration:
        """Create a table as `Spark.ensure_table` does, and insert rows: in milliseconds, by the catalog's API alone.

        Take this wherever neither CREATE TABLE nor the writer of the rows is what is tested.

        Args:
            table: The table, which must not be there.
            rows: A query of DuckDB, such as `VALUES (1, 'a'), (2, NULL)`; empty for none. They become version 1.
        """
        create_declared(self.admin, table)
        if rows:
            self.insert(table, rows)
        return table

    def created(self, table: TableDeclaration) -> bool:
        """Create a table unless another process does so at the same moment; return whether this one did."""
        try:
            self.create(table)
        except (AssertionError, httpx.HTTPStatusError):
            self.version(table)
            return False
        return True

    def insert(self, table: TableDeclaration, rows: str, **info: Any) -> int:
        """Append rows as INSERT of Spark does: see `create`. Return the version."""
        return insert_rows(self.admin, table, rows, **info)

    def alter(self, table: TableDeclaration, properties: Mapping[str, str]) -> int:
        """Set properties as ALTER TABLE of Spark does. Return the version."""
        return set_properties(self.admin, table.table_name, properties)

    def drop(self, *tables: TableDeclaration) -> None:
        """Drop tables, which may be missing, as DROP TABLE does."""
        for table in tables:
            answer = self.admin.delete(f"/tables/{self.full(table)}")
            assert answer.status_code in (200, 404), answer.text

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query by DuckDB, whose tables are `uc.<schema>.<table>`; Spark takes 20 times as long."""
        with self.duckdb.session() as session:
            session.attach()
            return session.rows(sql)

    def look(self, sql: str) -> list[dict[str, Any]]:
        """As `read`, with the names of the columns."""
        with self.duckdb.session() as session:
            session.attach()
            return session.records(sql)

    def quick(self, sql: str, record: str = "") -> list[dict[str, Any]]:
        """As `run`, in milliseconds, where what Spark does is not the subject: see `QuickTables`."""
        return self.quick_tables.run(sql, record)

    def ensure(self, table: TableDeclaration) -> None:
        """Create a table, and its schema, where they are missing: see `create`."""
        try:
            self.version(table)
        except TableMissing:
            self.create(table)

    def version(self, table: TableDeclaration) -> int:
        return self.catalog.version(self.full(table))

    def rows(self, table: TableDeclaration) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.spark.rows(self.spark.table(table)))

    def stored(self, table: TableDeclaration) -> list[tuple[Any, ...]]:
        """As `rows`, read by DuckDB."""
        return sorted(self.read(f"FROM uc.{table.table_name}"))

    def folder(self, full_name: str) -> Path:
        """Where the files of a table are."""
        return folder_of(self.catalog, full_name)

    def commit(self, table: TableDeclaration, version: int) -> list[dict[str, Any]]:
        """The actions of one ratified version, read from the table's log on disk."""
        log = self.folder(self.full(table)) / "_delta_log"
        files = [*log.glob(f"{version:020d}*.json"), *log.glob(f"_staged_commits/{version:020d}*.json")]
        # A commit that lost the race may have left its proposal behind; the published file is the one that won.
        return [json.loads(line) for line in files[0].read_text().splitlines()]


def folder_of(catalog: UnityCatalog, full_name: str) -> Path:
    """Return where the files of a table are."""
    return Path(unquote(urlsplit(catalog.table(full_name).storage_location or "").path))


def another_catalog(stack: StackState, **more: Any) -> UnityCatalog:
    return UnityCatalog(host=stack.catalog.url, token=stack.catalog.token_file.read_text().strip(), **more)


def pairs(writer: Engine = Engine.DUCKDB, **more: Any) -> TableDeclaration:
    """A declaration of a new table with `id` and `v`."""
    values: dict[str, Any] = {
        "layer": "bronze",
        "name": f"t_{uuid4().hex[:10]}",
        "columns": (Column("id", "bigint"), Column("v", "string")),
        "comment": "of a test",
        "writer": writer,
        "operations": frozenset({"WRITE" if writer is Engine.DUCKDB else "MERGE"}),
    }
    return TableDeclaration(**values | more)


def append(duckdb: DuckDB, table: TableDeclaration, select: str, *loads: str) -> Ratified:
    with duckdb.session() as session:
        return session.append(table, select, loads)


@pytest.fixture(scope="session")
def engines(stack: StackState) -> Generator[Lakehouse]:
    assert stack.spark is not None
    catalog = another_catalog(stack)
    spark = Spark(catalog=catalog, remote=stack.spark.remote, conf=_FEW_ROWS)
    duckdb = DuckDB(catalog=catalog)
    # An engine of its own, so that what a test does to the other one is not done to this.
    other = DuckDB(catalog=another_catalog(stack), threads=1)
    yield Lakehouse(stack, catalog, spark, duckdb, QuickTables(other))
    other.close()
    duckdb.close()
    spark.close()


@pytest.fixture
def lake(engines: Lakehouse, home: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "SPARK_REMOTE", "LANDING_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(home))
    return engines


@pytest.fixture
def quick_creation(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a pass of Spark writes be created by `Lakehouse.create`: as by CREATE TABLE, without its seconds.

    Take this where the rows are the subject. `test_declared_tables.py` compares such tables with Spark's.
    """
    monkeypatch.setattr(Spark, "_created", lambda _, table: lake.created(table))
