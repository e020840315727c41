"""A lakehouse without Spark, in one process: the catalog, DuckDB, and tables that other programs change."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import CatalogAddress
from tests.engines.declared_tables import insert_rows
from tests.engines.quick_tables import QuickTables


@dataclass(frozen=True)
class Sparkless:
    """The resources. What a test asks of Spark, as `Lakehouse` has it, is done by `QuickTables`, or left."""

    catalog: UnityCatalog
    admin: httpx.Client
    spark: Spark
    duckdb: DuckDB
    tables: QuickTables

    def quick(self, sql: str) -> list[dict[str, Any]]:
        return self.tables.run(sql)

    def run(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement; one that only Spark runs changes nothing."""
        try:
            return self.tables.run(sql)
        except NotImplementedError:
            return []

    def version(self, table: TableDeclaration) -> int:
        return self.catalog.version(table.full_name("ratify"))

    def insert(self, table: TableDeclaration, rows: str, **info: Any) -> int:
        """Append rows, as `Lakehouse.insert`."""
        return insert_rows(self.admin, table, rows, **info)

    def create(self, table: TableDeclaration) -> None:
        """Create a table that is missing."""
        assert self.spark.ensure_table(table)


@contextmanager
def sparkless_on(address: CatalogAddress) -> Generator[Sparkless]:
    """A lakehouse without Spark on a running catalog."""
    with address.client() as admin, ExitStack() as stack:
        catalog = UnityCatalog(host=address.url, token=address.token)
        one, other = (stack.enter_context(closing(DuckDB(catalog=catalog, threads=1))) for _ in range(2))
        yield Sparkless(catalog, admin, Spark(catalog=catalog), one, QuickTables(other))


@pytest.fixture(scope="module")
def sparkless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sparkless]:
    with catalog_here(tmp_path_factory.mktemp("catalog")) as address, sparkless_on(address) as made:
        yield made
