"""A pass of a sync as a process of its own, which a test kills with -9.

Arguments: the destination in bronze, the source in bronze, the mode, the column of the key, and whether it is `tracked`.
"""

import sys

from components.syncs.sync_declaration import DeletionGuards, SyncDeclaration, SyncMode, SyncSource, whole_table
from components.syncs.sync_pass import SyncPass
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.spark.spark_engine import Spark
from resources.sql.table_query import TableName, TableQuery


def main(destination: str, source: str, mode: str, key: str, tracked: str) -> None:
    """Run the pass; a line says when it begins, because the start of Python takes longer than a pass."""
    catalog = UnityCatalog()
    query = TableQuery.parsed(whole_table(TableName("bronze", source)), "databricks", "the test")
    sync = SyncDeclaration(
        name=source,
        source=SyncSource(query),
        destination=TableName("bronze", destination),
        mode=SyncMode(mode),
        keys=(key,),
        guards=DeletionGuards(tracked=tracked == "tracked"),
    )
    spark = Spark(catalog=catalog, attempts=30)
    # The session's start is not what is to be killed.
    spark.types("SELECT 1")
    print("begins", flush=True)
    SyncPass(spark, DuckDB(catalog=catalog), sync).run()
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
