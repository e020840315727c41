"""The catalog, Spark and DuckDB for one command, outside of a Dagster run."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing


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
    return ".".join(name_parts(catalog.connection.name, table))


def name_parts(catalog: str, table: str) -> list[str]:
    """Return catalog, schema and name of a table given as schema.table or catalog.schema.table.

    Raises:
        TableMissing: it is given otherwise, or a part is empty.
    """
    parts = table.split(".")
    if len(parts) not in (2, 3) or not all(part.strip() for part in parts):
        raise TableMissing(f"{table!r} is not a table name: write schema.table or catalog.schema.table.")
    return parts if len(parts) == 3 else [catalog, *parts]


@contextmanager
def engines() -> Generator[Engines]:
    """The resources that the settings name, closed at the end of the block."""
    catalog = UnityCatalog()
    opened = Engines(catalog, Spark(catalog=catalog), DuckDB(catalog=catalog))
    try:
        yield opened
    finally:
        opened.close()
