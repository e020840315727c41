"""The Dagster definitions of a sync: its asset, what its page shows of a run, its check, and its schedule."""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import check_result, check_spec
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.engine_failures import in_one_line
from ratify_lakehouse.components.lineage_graph import COLUMN_LINEAGE
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncEngine, SyncStrategy
from ratify_lakehouse.components.syncs.sync_engines import letters_of, pass_of, warehouse_pass
from ratify_lakehouse.components.syncs.sync_pass import SyncResult
from ratify_lakehouse.components.table_asset import SIDE_BY_SIDE, table_kinds
from ratify_lakehouse.components.table_policies import with_freshness, with_policies
from ratify_lakehouse.components.table_preview import rows_table
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.settings import Settings, catalog_name
from ratify_lakehouse.wording import counted

GROUP = "syncs"
AS_COMMITTED, NO_DEAD_LETTERS = "rows_as_committed", "no_dead_letters"
_VERSION = "Delta version"
_VERSIONS = "Delta versions"
_COMMITS_READ = 10_000
_METRICS = {
    "inserted": ("numTargetRowsInserted", "numOutputRows"),
    "updated": ("numTargetRowsUpdated",),
    "deleted": ("numTargetRowsDeleted",),
}


def sync_key(name: str) -> dg.AssetKey:
    """Return the asset key of a sync: several may write to one table."""
    return dg.AssetKey([GROUP, name])


def sync_definitions(sync: SyncDeclaration, tags: Mapping[str, str], schedule: str) -> dg.Definitions:
    """Return the definitions of a sync.

    Args:
        sync: The sync.
        tags: Of its asset.
        schedule: Cron, in UTC; empty: it runs when its source has a new version.
    """
    query, catalog = sync.source.query, catalog_name()
    engine = "databricks" if sync.engine is SyncEngine.WAREHOUSE else sync.engine.value
    deps = [dg.AssetKey(name.key_path(catalog)) for name in query.inputs] if query else []
    spec = dg.AssetSpec(
        key=sync_key(sync.name),
        deps=deps,
        description=f"{sync.comment}: {sync.strategy} into {sync.destination}",
        group_name=GROUP,
        kinds=table_kinds(engine),
        owners=[f"team:{sync.owner}"],
        tags=dict(tags),
        code_version=sync.code_version,
        metadata={
            "dagster/table_name": sync.destination.full_name(catalog),
            "strategy": sync.strategy.value,
            **({"query": dg.MetadataValue.md(f"```sql\n{query.text}\n```")} if query else {"file": sync.source.files}),
        },
    )

    @dg.multi_asset(
        name=f"{GROUP}__{sync.name}",
        op_tags={} if sync.engine is SyncEngine.DUCKDB else {SIDE_BY_SIDE: sync.engine.value},
        specs=[with_policies(spec) if deps and not schedule else with_freshness(spec)],
    )
    @in_one_line(f"sync {sync.name}", lambda: sync.personal.concerned(str(sync.destination)))
    def write(spark: Spark, duckdb: DuckDB) -> dg.MaterializeResult[Any]:
        return materialization(sync, pass_of(spark, duckdb, sync).run())

    if not schedule:
        return dg.Definitions(assets=[write], asset_checks=[_checks(sync)])
    scheduled = dg.ScheduleDefinition(
        f"sync_{sync.name}",
        target=dg.AssetSelection.assets(spec.key) | dg.AssetSelection.checks_for_assets(spec.key),
        cron_schedule=schedule,
        execution_timezone=Settings().ratify_time_zone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs the sync {sync.name}.",
    )
    return dg.Definitions(assets=[write], asset_checks=[_checks(sync)], schedules=[scheduled])


def materialization(sync: SyncDeclaration, result: SyncResult) -> dg.MaterializeResult[Any]:
    """Return the materialization of a sync, for Dagster."""
    counts, catalog = result.counts, catalog_name()
    deps = {
        column: [
            dg.TableColumnDep(dg.AssetKey([catalog, *source.split(".")[:2]]), source.split(".", 2)[2]) for source in sources
        ]
        for column, sources in result.lineage.items()
        if sources
    }
    metadata: dict[str, Any] = {
        "dagster/row_count": result.rows,
        "dagster/column_schema": dg.TableSchema([dg.TableColumn(name, type_) for name, type_ in result.types.items()]),
        COLUMN_LINEAGE: dg.TableColumnLineage(deps),
        _VERSION: result.version,
        "committed": result.commit is not None,
        "rows read": counts.read,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "failed": counts.failed,
        "seconds": round(result.seconds, 3),
        "source versions": {name: found.version for name, found in result.inputs.items()},
    }
    if result.created:
        metadata["created"] = True
    if len(result.versions) > 1:
        metadata[_VERSIONS] = list(result.versions)
    if result.unchanged:
        metadata["nothing was read because"] = "neither the source nor the destination has changed since the last run"
    if commit := result.commit:
        metadata["last commit"] = f"version {commit.version}: {commit.operation} by {commit.engine}"
        metadata["last commit at"] = dg.MetadataValue.timestamp(commit.timestamp)
    if result.sample:
        metadata["sample of the changes"] = rows_table(result.sample, result.sample[0])
    return dg.MaterializeResult(
        asset_key=sync_key(sync.name), metadata=metadata, data_version=dg.DataVersion(str(result.version))
    )


def _checks(sync: SyncDeclaration) -> dg.AssetChecksDefinition:
    key, skips = sync_key(sync.name), sync.row_errors is RowErrors.SKIP
    text = "The rows that the last run reported are those of its commit's metrics."
    specs = [check_spec(AS_COMMITTED, asset=key, description=text)]
    if skips:
        text = "No row of the source waits among the dead letters."
        specs.append(check_spec(NO_DEAD_LETTERS, asset=key, description=text))

    @dg.multi_asset_check(name=f"sync_{sync.name}_checks", specs=specs)
    @in_one_line(f"sync {sync.name}", lambda: sync.personal.concerned(str(sync.destination)))
    def checks(context: dg.AssetCheckExecutionContext, spark: Spark, duckdb: DuckDB) -> Any:
        event = context.instance.get_latest_materialization_event(key)
        found = event.asset_materialization if event else None
        reported, full_name = found.metadata if found else {}, sync.destination.full_name(spark.catalog.connection.name)
        if sync.engine is SyncEngine.WAREHOUSE:
            yield rows_as_committed(key, reported, lambda: warehouse_pass(duckdb, sync).queries.history(full_name))
        else:
            appended = sync.engine is SyncEngine.DUCKDB and sync.strategy is SyncStrategy.APPEND
            history = partial(spark.recent_commits, full_name, _COMMITS_READ)
            yield rows_as_committed(key, reported, history, shared=appended)
        if skips:
            waiting = letters_of(spark, duckdb, sync)
            text = f"{counted(waiting, 'row')} waiting in {DEAD_LETTERS.table_name}; see `ratify replay {sync.name}`."
            found = Finding(not waiting, text if waiting else "No row waits.", {"rows": waiting}, warns=True)
            yield check_result(key, NO_DEAD_LETTERS, found)

    return checks


def rows_as_committed(
    key: dg.AssetKey, reported: Mapping[str, dg.MetadataValue[Any]], history: Any, *, shared: bool = False
) -> dg.AssetCheckResult:
    """Return whether a materialization reported what the metrics of its commit say.

    Args:
        key: The sync's.
        reported: The metadata of the materialization.
        history: Returns the destination's commits.
        shared: Whether the commit may also have rows of other pending appends.
    """

    def result(passed: bool, text: str, **metadata: Any) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            asset_key=key, check_name=AS_COMMITTED, passed=passed, description=text, metadata=metadata
        )

    if not reported:
        return result(False, "It has not been materialized yet.")
    numbers = {name: int(reported[name].value) for name in _METRICS}  # pyright: ignore[reportArgumentType]
    version, committed = int(reported[_VERSION].value), bool(reported["committed"].value)  # pyright: ignore[reportArgumentType]
    if not committed:
        return result(not any(numbers.values()), "The last run committed nothing.", **numbers)
    versions: list[int] = reported[_VERSIONS].value if _VERSIONS in reported else [version]  # pyright: ignore[reportAssignmentType]
    commits: list[Commit] = list(islice((each for each in history() if each.version in versions), len(versions)))
    if len(commits) < len(versions):
        return result(False, f"Version {version}, which the last run reported, is not in the history.", **numbers)
    by_merge = commits[0].operation == "MERGE"
    held = {
        name: sum(next((each.metrics[metric] for metric in metrics if metric in each.metrics), 0) for each in commits)
        for name, metrics in _METRICS.items()
        if by_merge or name == "inserted"
    }
    differing = [name for name, value in held.items() if value < numbers[name] or (value > numbers[name] and not shared)]
    text = f"version {version}, {commits[0].operation}, has {', '.join(f'{value} {name}' for name, value in held.items())}"
    return result(not differing, text, **numbers)
