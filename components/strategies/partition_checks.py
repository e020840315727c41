"""The checks of a table with partitions."""

from collections.abc import Iterator

import dagster as dg

from components.checks.check_definitions import check_result, check_spec
from components.engine_failures import in_one_line
from components.sql_table import ValidatedQuery
from components.strategies.partitioned_rows import IN_A_PARTITION, stale_partitions
from components.strategies.table_partitions import TablePartitions
from components.table_asset import asset_key
from resources.declarations import TableDeclaration
from resources.spark.spark_engine import Spark

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
    def check(spark: Spark) -> Iterator[dg.AssetCheckResult]:
        finding = stale_partitions(spark, table, partitions).finding()
        yield check_result(key, UP_TO_DATE, finding, dg.AssetCheckSeverity.WARN)

    return check
