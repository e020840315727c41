"""The check of a table with partitions."""

from collections.abc import Iterator
from contextlib import nullcontext

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding, together
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.sql_table import ValidatedQuery
from ratify_lakehouse.components.strategies.partition_pass import OUTSIDE, OUTSIDE_DESCRIBED
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.strategies.table_passes import stale_partitions
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark

COMPLETE = "partitions_complete"
"""Name of the check that a table has the rows of its query, as they are now."""


def partitions_check(table: ValidatedQuery, partitions: TablePartitions) -> dg.AssetChecksDefinition:
    """Return the check that no partition is stale, and that the last run found no row of the query without a partition.

    It names the partitions that changed rows of the inputs affect; the next run computes these.
    """
    declaration = table.declaration
    key = asset_key(declaration)
    text = "Every partition is computed from the inputs as they are, and each row of the query belongs to one."

    @dg.multi_asset_check(
        name=f"{declaration.layer}_{declaration.name}_partitions",
        specs=[check_spec(COMPLETE, asset=key, description=text)],
    )
    @in_one_line(declaration.table_name, lambda: table.personal.concerned(declaration.table_name))
    def check(context: dg.AssetCheckExecutionContext, spark: Spark, duckdb: DuckDB) -> Iterator[dg.AssetCheckResult]:
        with nullcontext() if declaration.writer is Engine.SPARK else duckdb.session() as session:
            stale = stale_partitions(spark, table, partitions, session).finding()
        yield check_result(key, COMPLETE, together(stale, _outside(context.instance, key)))

    return check


def _outside(instance: dg.DagsterInstance, key: dg.AssetKey) -> Finding:
    """Return whether the last run found rows of the query that belong to no partition, and so are not in the table."""
    event = instance.get_latest_materialization_event(key)
    found = event.asset_materialization.metadata if event and event.asset_materialization else {}
    rows = int(str(found[OUTSIDE].value)) if OUTSIDE in found else 0
    text = str(found[OUTSIDE_DESCRIBED].value) if rows else "The last run found no row without a partition."
    return Finding(not rows, text, {OUTSIDE: rows})
