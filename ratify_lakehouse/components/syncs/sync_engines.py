"""What runs a sync: Spark or DuckDB here, or a SQL warehouse of the workspace that the catalog is of."""

from functools import partial

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.components.syncs.dead_letter_replay import ReplayedLetters, replay_dead_letters
from ratify_lakehouse.components.syncs.dead_letters import dead_letters
from ratify_lakehouse.components.syncs.duckdb_tables import DuckDBTables
from ratify_lakehouse.components.syncs.spark_tables import SparkTables
from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration, SyncEngine
from ratify_lakehouse.components.syncs.sync_pass import SyncPass
from ratify_lakehouse.components.syncs.sync_tables import OpenTables
from ratify_lakehouse.components.syncs.warehouse_pass import WarehousePass
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark


def tables_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> OpenTables:
    """Return what opens the engine of a sync, which is Spark or DuckDB, for an attempt."""
    tables = DuckDBTables if sync.engine is SyncEngine.DUCKDB else SparkTables
    return partial(tables.opened, spark, duckdb, sync)


def pass_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> SyncPass | WarehousePass:
    """Return a pass of a sync; Spark is opened only for one that needs it."""
    if sync.engine is SyncEngine.WAREHOUSE:
        return warehouse_pass(duckdb, sync)
    return SyncPass(tables_of(spark, duckdb, sync), duckdb.catalog, sync, spark.attempts)


def warehouse_pass(duckdb: DuckDB, sync: SyncDeclaration) -> WarehousePass:
    """Return a pass of a sync by the warehouse that the settings name."""
    return WarehousePass(SqlWarehouse(catalog=duckdb.catalog), duckdb, sync)


def replayed(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> ReplayedLetters:
    """Write the dead letters of a sync that fit now.

    Raises:
        As `replay_dead_letters`.
    """
    return replay_dead_letters(tables_of(spark, duckdb, sync), sync, pass_of(spark, duckdb, sync).run)


def letters_of(spark: Spark, duckdb: DuckDB, sync: SyncDeclaration) -> int:
    """Return how many rows of a sync are among the dead letters."""
    with tables_of(spark, duckdb, sync)() as tables:
        return dead_letters(tables, sync)
