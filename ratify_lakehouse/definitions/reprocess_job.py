"""The job that computes days again: their rows in every table that is made of bronze and has the day.

What is loaded into bronze stays as it is. A table whose partitions are days gets those of these days; one of the strategy
`changes` with a `day` gets the keys that have these days in its query or in the table, beside what has changed; all other
tables are brought up to date. A job of ops has no asset checks: those of the tables are a job of their own, which follows.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import cache

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.sql_table_component import SqlTable, TableResult
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.table_asset import as_event, asset_key
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.runs_in_progress import PROCESS_TAG
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import NotConfigured


@cache
def reprocessed_days() -> TablePartitions | None:
    """Return the days that can be computed again: from the first to the last partition of the tables; None without any."""
    found = [table.partitioned for table in declared_tables().sql_tables if table.partitioned]
    daily = [(each.start, each.end) for each in found if each.start]
    if not daily:
        return None
    ends = [end for _, end in daily if end]
    return TablePartitions("day", min(start for start, _ in daily), max(ends) if len(ends) == len(daily) else None)


@cache
def reprocessed_tables() -> Sequence[SqlTable]:
    """Return the tables that are computed again, each after its inputs: those that do not depend on Kafka."""
    declared = declared_tables()
    tables = {asset_key(table.table.declaration): table for table in declared.sql_tables}
    ordered = list[dg.AssetKey]()
    from_kafka = set(declared.from_kafka)
    waiting = [key for key in tables if key not in from_kafka]
    deps = {key: _deps(table) for key, table in tables.items()}
    while waiting:
        ready = [key for key in waiting if not deps[key].intersection(waiting)]
        ordered += ready
        waiting = [key for key in waiting if key not in ready]
    return [tables[key] for key in ordered]


def _deps(table: SqlTable) -> set[dg.AssetKey]:
    key = asset_key(table.table.declaration)
    return {dg.AssetKey([key.path[0], name.schema, name.table]) for name in table.table.query.inputs} - {key}


class Reprocessed(dg.Config):
    """Which days, and of which tables."""

    first: str = Field(default="", description="The first day, as 2013-01-31; empty: the partition that was chosen")
    last: str = Field(default="", description="The last day; empty: the first")
    tables: list[str] = Field(default=[], description="Tables as schema.table; none: all that the job computes again")


def chosen_tables(names: Sequence[str]) -> Sequence[SqlTable]:
    """Return the tables that are named as schema.table, or all.

    Raises:
        NotConfigured: there is none of a name that is computed again.
    """
    tables = {table.table.declaration.table_name: table for table in reprocessed_tables()}
    if unknown := [name for name in names if name not in tables]:
        raise NotConfigured(f"{', '.join(unknown)}: no such table is computed again; there are {', '.join(tables)}.")
    return [table for name, table in tables.items() if not names or name in names]


def checked_days(first: str, last: str) -> tuple[dt.date, dt.date]:
    """Return the first and the last of the days that are to be computed again.

    Raises:
        PartitionMissing: there is no such day.
        NotConfigured: no table has days as partitions, or the last day is before the first.
    """
    days = reprocessed_days()
    if days is None:
        raise NotConfigured("No table has days as partitions: declare `partitions` with `daily` in its defs.yaml.")
    days.check([first, last], "the tables")
    if last < first:
        raise NotConfigured(f"The last day, {last}, is before the first, {first}.")
    return dt.date.fromisoformat(first), dt.date.fromisoformat(last)


def checks_of(tables: Sequence[SqlTable]) -> list[dg.AssetCheckKey]:
    """Return the checks that belong to tables or to their quarantines, but for those that run with the tables themselves."""
    keys = {asset_key(declaration) for table in tables for declaration in table.written}
    return [check for check in declared_tables().checks if check.asset_key in keys]


@dg.op(description="Recomputes days, in each table after its inputs.")
def reprocess_days(context: dg.OpExecutionContext, config: Reprocessed, spark: Spark, duckdb: DuckDB) -> None:
    """Compute the days of the run's partition, or of its configuration, again."""
    if not config.first and not context.has_partition_key:
        raise NotConfigured("Choose a day: a partition of this job, or `first` in its configuration.")
    first = config.first or context.partition_key
    began, ended = checked_days(first, config.last or first)
    for table in chosen_tables(config.tables):
        context.log.info("%s, %s to %s", table.table.declaration.table_name, began, ended)
        for event in _reprocessed(context.instance, spark, duckdb, table, began, ended):
            context.log_event(event)


def _reprocessed(
    instance: dg.DagsterInstance, spark: Spark, duckdb: DuckDB, table: SqlTable, first: dt.date, last: dt.date
) -> Iterator[dg.AssetMaterialization]:
    partitions, chosen = table.partitioned, None
    if partitions and partitions.start:
        chosen = [key for key in partitions.keys if first.isoformat() <= key <= last.isoformat()]
        if not chosen:
            return
    again = DaysAgain(table.day, first, last) if table.day else None
    for result in table.results(spark, duckdb, chosen, again):
        yield from _reported(instance, result, chosen)


def _reported(
    instance: dg.DagsterInstance, result: TableResult, chosen: Sequence[str] | None
) -> Iterator[dg.AssetMaterialization]:
    """The materializations of a result; one of a check is reported here, because a job of ops has no checks."""
    if isinstance(result, dg.AssetMaterialization):
        yield result
    elif isinstance(result, dg.MaterializeResult):
        yield from (as_event(result, partition) for partition in chosen or [None])
    elif result.asset_key and result.check_name:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=result.asset_key,
                check_name=result.check_name,
                passed=bool(result.passed),
                metadata=result.metadata,
                severity=result.severity,
                description=result.description,
            )
        )


def reprocess_job() -> dg.JobDefinition | None:
    """Return the job, whose partitions are the days; None where no table has days as partitions."""
    days = reprocessed_days()
    if days is None:
        return None

    @dg.job(
        name="reprocess",
        partitions_def=days.definition,
        description="Recompute a day: its rows in every table built from bronze.",
    )
    def reprocess() -> None:
        reprocess_days()

    return reprocess


reprocess_checks_job = dg.define_asset_job(
    "reprocess_checks",
    selection=dg.AssetSelection.checks(*checks_of(reprocessed_tables())),
    description="Check the tables that the job `reprocess` computes, after each of its runs.",
)


def reprocess_checks_sensor(reprocess: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor that requests the checks after a run of the job; `ratify reprocess` makes them itself."""

    @dg.run_status_sensor(
        dg.DagsterRunStatus.SUCCESS,
        name="reprocess_checks_sensor",
        monitored_jobs=[reprocess],
        request_job=reprocess_checks_job,
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Requests the checks of the tables after a run of the job `reprocess`.",
    )
    def sensor(context: dg.RunStatusSensorContext) -> dg.RunRequest | dg.SkipReason:
        if PROCESS_TAG in context.dagster_run.tags:
            return dg.SkipReason("The command that made the run checks the tables itself.")
        return dg.RunRequest(run_key=context.dagster_run.run_id)

    return sensor
