"""The order in which files landed, for silver and gold, where of several rows with one key the last landed one counts."""

from pathlib import Path
from string import Template

from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, landing_place
from ratify_lakehouse.sql.spark_sql import at_version, literal, table_name

LANDING = "_landing"
"""Column that `landed_rows` adds to rows of landed files: struct<version: bigint, position: int, entry: bigint>, greatest
for the content that landed last."""

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
