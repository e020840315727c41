"""The order in which files landed, for silver and gold, where of several rows with one key the last landed one counts."""

from collections.abc import Collection
from pathlib import Path
from string import Template

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, landing_place
from ratify_lakehouse.sql.spark_sql import at_version, literal, table_name
from ratify_lakehouse.sql.table_query import TableName, TableQuery

LANDING = "_landing"
"""Column that `landed_rows` adds to rows of landed files: struct<version: bigint, position: int, entry: bigint>, greatest
for the content that landed last."""

_LOADED = {column.name for column in LOAD_COLUMNS}
_SQL = Path(__file__).with_suffix(".sql")


def landed_rows(spark: Spark, full_name: str, version: int | None = None, ledger_version: int | None = None) -> str:
    """Return the query of a table of landed files that gives its rows with `LANDING`.

    Args:
        spark: The session.
        full_name: The table.
        version: Of the table; by default the latest.
        ledger_version: Of the ledger; by default the latest.

    Raises:
        TableMissing: the table does not exist.
    """
    ledger = spark.catalog.table(LANDED_FILES.full_name(spark.catalog.connection.name))
    place = landing_place({column.name or "" for column in ledger.columns or []})
    return Template(_SQL.read_text()).substitute(
        version=place[0],
        position=place[1],
        bronze=at_version(table_name(full_name), version),
        ledger=at_version(spark.sql_name(LANDED_FILES), ledger_version),
        table_id=literal(spark.catalog.table(full_name).table_id or ""),
    )


def spark_relation(spark: Spark, query: TableQuery, name: TableName, columns: Collection[str]) -> str:
    """Return what Spark reads for a table of a query: landed files have the column `LANDING` where the query reads it."""
    full_name = name.full_name(spark.catalog.connection.name)
    if LANDING in query.text and _LOADED.issubset(columns):
        return f"(\n{landed_rows(spark, full_name)}\n)"
    return table_name(full_name)


def with_landing(spark: Spark, text: str) -> str:
    """Return a query for Spark in which tables of landed files have the column `LANDING`.

    Raises:
        InvalidDeclaration: it is no query that can be parsed.
        TableMissing: it reads a table that does not exist.
    """
    query = TableQuery.parsed(text, "databricks", "the query")

    def relation(name: TableName) -> str:
        found = spark.catalog.table(name.full_name(spark.catalog.connection.name))
        return spark_relation(spark, query, name, {column.name or "" for column in found.columns or []})

    return query.resolved(relation)
