"""The catalog, Spark and DuckDB for one command, outside of a Dagster run."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.spark.spark_engine import Spark


@dataclass(frozen=True)
class Engines:
    """The resources of one command."""

    catalog: UnityCatalog
    spark: Spark
    duckdb: DuckDB

    def full_name(self, table: str) -> str:
        """Return the three-part name of a table given as schema.table or catalog.schema.table."""
        return table if table.count(".") == 2 else f"{self.catalog.connection.name}.{table}"

    def close(self) -> None:
        """Close the engines that were opened."""
        self.spark.close()
        self.duckdb.close()


@contextmanager
def engines() -> Generator[Engines]:
    """The resources that the settings name, closed at the end of the block."""
    catalog = UnityCatalog()
    opened = Engines(catalog, Spark(catalog=catalog), DuckDB(catalog=catalog))
    try:
        yield opened
    finally:
        opened.close()
