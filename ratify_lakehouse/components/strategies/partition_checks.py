"""The checks of a table with partitions."""

from collections.abc import Iterator
from contextlib import nullcontext

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.partition_pass import IN_A_PARTITION
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.strategies.table_passes import stale_partitions
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark

UP_TO_DATE = "partitions_up_to_date"
"""Name of the check that no partition is stale."""


def in_a_partition_spec(declaration: TableDeclaration) -> dg.AssetCheckSpec:
    """Return the spec of the check that each row has a partition; the asset itself yields its result."""
    text = "Each row of the query belongs to a partition; those that do not are not in the table."
    return dg.AssetCheckSpec(IN_A_PARTITION, asset=asset_key(declaration), description=text)


def up_to_date_check(table: ValidatedQuery, partitions: TablePartitions) -> dg.AssetChecksDefinition:
    """Return the check that no partition is stale: it names those that changed rows of the inputs affect."""
    declaration = table.declaration
    key = asset_key(declaration)
    text = "No rows have changed in the inputs that a partition was not computed from."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_partitions",
        specs=[check_spec(UP_TO_DATE, asset=key, description=text)],
    )
    @in_one_line(declaration.table_name, lambda: table.personal.concerned(declaration.table_name))
    def check(spark: Spark, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with nullcontext() if declaration.writer is Engine.SPARK else duckdb.session() as session:
            finding = stale_partitions(spark, table, partitions, session).finding()
        yield check_result(key, UP_TO_DATE, finding, dg.AssetCheckSeverity.WARN)

    return check
