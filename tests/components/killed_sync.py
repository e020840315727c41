"""A pass of a sync as a process of its own, which a test kills with -9.

Arguments: the destination in bronze, the source in bronze, the strategy, the column of the key, whether it is `tracked`, and
what runs it.
"""

import sys

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.syncs.sync_declaration import (
    DeletionGuards,
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_engines import pass_of
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableName, TableQuery


def sync_of(destination: str, source: str, strategy: str, key: str, tracked: str, engine: str) -> SyncDeclaration:
    """Return the sync that these arguments say."""
    query = TableQuery.parsed(whole_table(TableName("bronze", source)), "databricks", "the test")
    return SyncDeclaration(
        name=source,
        source=SyncSource(query),
        destination=TableName("bronze", destination),
        strategy=SyncStrategy(strategy),
        keys=(key,),
        guards=DeletionGuards(tracked=tracked == "tracked"),
        engine=SyncEngine(engine),
    )


def main(*arguments: str) -> None:
    """Run the pass; a line says when it begins, because the start of Python takes longer than a pass."""
    catalog, sync = UnityCatalog(), sync_of(*arguments)
    spark, duckdb = Spark(catalog=catalog, attempts=30), DuckDB(catalog=catalog)
    # The start of the engine is not what is to be killed.
    if sync.engine is SyncEngine.SPARK:
        spark.types("SELECT 1")
    else:
        with duckdb.session() as session:
            session.attach()
    print("begins", flush=True)
    pass_of(spark, duckdb, sync).run()
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
