"""What runs a sync: Spark or DuckDB here, or a SQL warehouse of the workspace that the catalog is of."""

from components.syncs.duckdb_pass import DuckDBPass
from components.syncs.sync_declaration import SyncDeclaration, SyncExecutor
from components.syncs.sync_pass import SyncPass
from components.syncs.warehouse_pass import WarehousePass
from resources.catalog.sql_warehouse import SqlWarehouse
from resources.duckdb.duckdb_engine import DuckDB
from resources.spark.spark_engine import Spark


def pass_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> SyncPass | DuckDBPass | WarehousePass:
    """Return a pass of a sync; Spark is opened only for one that needs it."""
    if sync.executor is SyncExecutor.WAREHOUSE:
        return warehouse_pass(duckdb, sync)
    if sync.executor is SyncExecutor.DUCKDB:
        return DuckDBPass(spark, duckdb, sync)
    return SyncPass(spark, duckdb, sync)


def warehouse_pass(duckdb: DuckDB, sync: SyncDeclaration) -> WarehousePass:
    """Return a pass of a sync by the warehouse that the settings name."""
    return WarehousePass(SqlWarehouse(catalog=duckdb.catalog), duckdb, sync)
