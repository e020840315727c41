"""The passes that make tables: of each strategy, by Spark, or by DuckDB where a session of it is given."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg

from ratify_lakehouse.components.sql_table import ValidatedQuery, resolve
from ratify_lakehouse.components.strategies.append_pass import ASKED_FOR, AppendPass
from ratify_lakehouse.components.strategies.appended_rows import AppendedRows
from ratify_lakehouse.components.strategies.appended_rows_by_duckdb import AppendedRowsByDuckDB
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.changed_rows_by_duckdb import ChangedRowsByDuckDB
from ratify_lakehouse.components.strategies.history_pass import HistoryQuery
from ratify_lakehouse.components.strategies.history_rows import HistoryPass
from ratify_lakehouse.components.strategies.history_rows_by_duckdb import HistoryPassByDuckDB
from ratify_lakehouse.components.strategies.incremental_pass import IncrementalPass
from ratify_lakehouse.components.strategies.partition_pass import PartitionScope
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.components.strategies.pass_results import materialize_passes
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.stale_partitions import StalePartitions
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableName

Results = Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]


class PartitionedRows(PartitionScope[QueryInputs], ChangedRows):
    """One pass of Spark over a table with partitions."""


class PartitionedRowsByDuckDB(PartitionScope[AttachedInputs], ChangedRowsByDuckDB):
    """One pass of DuckDB over a table with partitions."""


def materialize_changes(
    spark: Spark,
    table: ValidatedQuery,
    again: DaysAgain | None = None,
    session: DuckDBSession | None = None,
    *,
    full_refresh: bool = False,
) -> Results:
    """Make a table equal to its query's rows, as `materialize` does, by computing those that may have changed.

    Args:
        spark: Creates the tables; it is the engine, too, where no session is given.
        table: The table.
        again: The rows of these days are computed as well.
        session: Of DuckDB, as the engine.
        full_refresh: Compute all rows, whatever has changed.

    Raises:
        As materialize.
    """

    def begun(why_full: str = "") -> ChangedRows | ChangedRowsByDuckDB:
        if session:
            return ChangedRowsByDuckDB(session, spark, table, again, why_full)
        return ChangedRows(spark, table, again, why_full)

    first = partial(begun, ASKED_FOR) if full_refresh else begun
    yield from materialize_passes(spark, table, first, begun, follows_inputs=True)


def materialize_history(spark: Spark, table: HistoryQuery, session: DuckDBSession | None = None) -> Results:
    """Bring the history of a query's rows up to date.

    Args:
        spark: As of `materialize_changes`.
        table: The table.
        session: As of `materialize_changes`.

    Raises:
        QueryMismatch: it is not known since when a row is as it is.
        As sql_table.materialize.
    """
    yield from materialize_passes(spark, table, lambda: _of_history(spark, table, session), follows_inputs=True)


def materialize_appended(
    spark: Spark,
    table: ValidatedQuery,
    driving: TableName,
    session: DuckDBSession | None = None,
    *,
    full_refresh: bool = False,
) -> Results:
    """Append the rows that a table's query gives for the new rows of an input.

    Args:
        spark: As of `materialize_changes`.
        table: The table, without keys.
        driving: The input, which the query reads row by row.
        session: As of `materialize_changes`.
        full_refresh: Replace what the table has by the rows for all rows of the input.

    Raises:
        HistoryNotContinued: the input did not only get rows, or it is not known which ones the table has.
        UnsafeTable: a full refresh, and the table only allows appends.
        As materialize.
    """
    yield from materialize_passes(
        spark, table, lambda: _appending(spark, table, driving, session, full_refresh=full_refresh)
    )


def materialize_partitions(
    spark: Spark,
    table: ValidatedQuery,
    partitions: TablePartitions,
    chosen: Sequence[str] | None,
    session: DuckDBSession | None = None,
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult | dg.AssetMaterialization]:
    """Make partitions of a table equal to their rows in its query.

    Args:
        spark: As of `materialize_changes`.
        table: The table, without a quarantine.
        partitions: All of them.
        chosen: The ones to compute; None: the stale ones, each of which gets a materialization of its own.
        session: As of `materialize_changes`.

    Raises:
        PartitionMissing: one of the chosen ones does not exist.
        As sql_table.materialize.
    """
    if chosen is not None:
        partitions.check(chosen, table.declaration.table_name)
    passes = list[PartitionedRows | PartitionedRowsByDuckDB]()

    def begun() -> PartitionedRows | PartitionedRowsByDuckDB:
        passes.append(_of_partitions(spark, table, partitions, chosen, session))
        return passes[-1]

    for result in materialize_passes(spark, table, begun):
        if isinstance(result, dg.MaterializeResult) and chosen is None:
            yield from passes[-1].materializations(result)
        yield result


def stale_partitions(
    spark: Spark, table: ValidatedQuery, partitions: TablePartitions, session: DuckDBSession | None = None
) -> StalePartitions:
    """Return which partitions of a table are not as its inputs are now."""
    one = _of_partitions(spark, table, partitions, None, session)
    declaration = resolve(one, table).declaration
    found = one.stale(one.record(declaration), declaration)[0]
    return replace(found, hidden=partitions.column in declaration.personal)


def plan_table(
    spark: Spark,
    table: ValidatedQuery,
    session: DuckDBSession | None,
    *,
    driving: TableName | None = None,
    partitions: TablePartitions | None = None,
) -> PassPlan:
    """Return what the next pass over a table would do, from what the catalog and the logs say: nothing is computed.

    Args:
        spark: As of `materialize_changes`.
        table: The table.
        session: As of `materialize_changes`.
        driving: Of a table of the strategy append: the input.
        partitions: Of a table of the strategy partition: all of them.

    Raises:
        HistoryNotContinued, QueryMismatch, TableMissing: it would fail.
    """
    one: IncrementalPass[Any] | AppendPass[Any]
    if driving:
        one = _appending(spark, table, driving, session, planned=True)
    elif isinstance(table, HistoryQuery):
        one = _of_history(spark, table, session)
    elif partitions:
        one = _of_partitions(spark, table, partitions, None, session)
    else:
        one = ChangedRowsByDuckDB(session, spark, table) if session else ChangedRows(spark, table)
    return one.plan(resolve(one, table).declaration)


def _of_history(spark: Spark, table: HistoryQuery, session: DuckDBSession | None) -> HistoryPass | HistoryPassByDuckDB:
    return HistoryPassByDuckDB(session, spark, table) if session else HistoryPass(spark, table)


def _appending(
    spark: Spark,
    table: ValidatedQuery,
    driving: TableName,
    session: DuckDBSession | None,
    *,
    full_refresh: bool = False,
    planned: bool = False,
) -> AppendedRows | AppendedRowsByDuckDB:
    if session:
        return AppendedRowsByDuckDB(session, spark, table, driving, full_refresh=full_refresh, planned=planned)
    return AppendedRows(spark, table, driving, full_refresh=full_refresh, planned=planned)


def _of_partitions(
    spark: Spark,
    table: ValidatedQuery,
    partitions: TablePartitions,
    chosen: Sequence[str] | None,
    session: DuckDBSession | None,
) -> PartitionedRows | PartitionedRowsByDuckDB:
    if session:
        return PartitionedRowsByDuckDB(session, spark, table).of(partitions, chosen)
    return PartitionedRows(spark, table).of(partitions, chosen)
