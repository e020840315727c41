"""The catalog, Spark and DuckDB for one command, outside of a Dagster run."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import TableMissing
from resources.spark.spark_engine import Spark


@dataclass(frozen=True)
class Engines:
    """The resources of one command."""

    catalog: UnityCatalog
    spark: Spark
    duckdb: DuckDB

    def full_name(self, table: str) -> str:
        """Return the three-part name of a table; as the function `full_name`."""
        return full_name(self.catalog, table)

    def close(self) -> None:
        """Close the engines that were opened."""
        self.spark.close()
        self.duckdb.close()


def full_name(catalog: UnityCatalog, table: str) -> str:
    """Return the three-part name of a table given as schema.table or catalog.schema.table.

    Raises:
        TableMissing: it is given otherwise.
    """
    match table.count("."):
        case 1:
            return f"{catalog.connection.name}.{table}"
        case 2:
            return table
        case _:
            raise TableMissing(f"{table} names no table: give it as schema.table or catalog.schema.table.")


@contextmanager
def engines() -> Generator[Engines]:
    """The resources that the settings name, closed at the end of the block."""
    catalog = UnityCatalog()
    opened = Engines(catalog, Spark(catalog=catalog), DuckDB(catalog=catalog))
    try:
        yield opened
    finally:
        opened.close()
