"""What runs a sync: Spark here, or a SQL warehouse of the workspace that the catalog is of."""

from components.syncs.sync_declaration import SyncDeclaration, SyncExecutor
from components.syncs.sync_pass import SyncPass
from components.syncs.warehouse_pass import WarehousePass
from resources.catalog.sql_warehouse import SqlWarehouse
from resources.duckdb.duckdb_engine import DuckDB
from resources.spark.spark_engine import Spark


def pass_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> SyncPass | WarehousePass:
    """Return a pass of a sync; Spark is not opened for one by a warehouse."""
    if sync.executor is SyncExecutor.WAREHOUSE:
        return warehouse_pass(duckdb, sync)
    return SyncPass(spark, duckdb, sync)


def warehouse_pass(duckdb: DuckDB, sync: SyncDeclaration) -> WarehousePass:
    """Return a pass of a sync by the warehouse that the settings name."""
    return WarehousePass(SqlWarehouse(catalog=duckdb.catalog), duckdb, sync)
