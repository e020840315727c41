"""The order in which files landed, for silver and gold, where of several rows with one key the last landed one counts."""

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from ingest.file_source import LOAD_COLUMNS
from ingest.ledger.file_ledger import LANDED_FILES
from resources.declarations import TableDeclaration
from resources.spark.spark_engine import Spark
from resources.sql.spark_sql import literal, table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LANDING = "_landing"
"""Column that `read_input` adds to rows of landed files: struct<version: bigint, entry: bigint>, greatest for the content
that landed last."""

_SQL = Path(__file__).with_suffix(".sql")


def read_input(spark: Spark, table: TableDeclaration) -> "DataFrame":
    """Return a table's rows, as of now; those of landed files with `LANDING`.

    Raises:
        TableMissing: the table does not exist, or it is of landed files and there is no ledger.
    """
    if not set(LOAD_COLUMNS) <= set(table.columns):
        return spark.table(table)
    return spark.sql(landed_rows(spark, spark.full_name(table)))


def landed_rows(spark: Spark, full_name: str) -> str:
    """Return the query of a table of landed files that gives its rows with `LANDING`.

    Raises:
        TableMissing: the table does not exist.
    """
    return Template(_SQL.read_text()).substitute(
        bronze=table_name(full_name),
        ledger=spark.sql_name(LANDED_FILES),
        table_id=literal(spark.catalog.table(full_name).table_id or ""),
    )
