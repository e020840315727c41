"""A pass of a sync as a process of its own, which a test kills with -9.

Arguments: the destination in bronze, the source in bronze, the mode, the column of the key, whether it is `tracked`, and
what runs it.
"""

import sys

from components.syncs.sync_declaration import (
    DeletionGuards,
    SyncDeclaration,
    SyncExecutor,
    SyncMode,
    SyncSource,
    whole_table,
)
from components.syncs.sync_executors import pass_of
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.spark.spark_engine import Spark
from resources.sql.table_query import TableName, TableQuery


def sync_of(destination: str, source: str, mode: str, key: str, tracked: str, executor: str) -> SyncDeclaration:
    """Return the sync that these arguments say."""
    query = TableQuery.parsed(whole_table(TableName("bronze", source)), "databricks", "the test")
    return SyncDeclaration(
        name=source,
        source=SyncSource(query),
        destination=TableName("bronze", destination),
        mode=SyncMode(mode),
        keys=(key,),
        guards=DeletionGuards(tracked=tracked == "tracked"),
        executor=SyncExecutor(executor),
    )


def main(*arguments: str) -> None:
    """Run the pass; a line says when it begins, because the start of Python takes longer than a pass."""
    catalog, sync = UnityCatalog(), sync_of(*arguments)
    spark, duckdb = Spark(catalog=catalog, attempts=30), DuckDB(catalog=catalog)
    # The start of the engine is not what is to be killed.
    if sync.executor is SyncExecutor.SPARK:
        spark.types("SELECT 1")
    else:
        with duckdb.session() as session:
            session.attach()
    print("begins", flush=True)
    pass_of(spark, duckdb, sync).run()
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
