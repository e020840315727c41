"""What runs a sync: Spark or DuckDB here, or a SQL warehouse of the workspace that the catalog is of."""

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.components.syncs.duckdb_pass import DuckDBPass
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncEngine
from ratify_lakehouse.components.syncs.sync_pass import SyncPass
from ratify_lakehouse.components.syncs.warehouse_pass import WarehousePass
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark


def pass_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> SyncPass | DuckDBPass | WarehousePass:
    """Return a pass of a sync; Spark is opened only for one that needs it."""
    if sync.engine is SyncEngine.WAREHOUSE:
        return warehouse_pass(duckdb, sync)
    if sync.engine is SyncEngine.DUCKDB:
        return DuckDBPass(spark, duckdb, sync)
    return SyncPass(spark, duckdb, sync)


def warehouse_pass(duckdb: DuckDB, sync: SyncDeclaration) -> WarehousePass:
    """Return a pass of a sync by the warehouse that the settings name."""
    return WarehousePass(SqlWarehouse(catalog=duckdb.catalog), duckdb, sync)
