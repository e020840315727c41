"""The sensors that request tables with partitions, and what reads one, as a whole.

An automation condition of Dagster's own asks for single partitions, all of them whenever an input without partitions has
changed. What is right for these tables is a run without chosen partitions, which computes those that are stale.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import dagster as dg
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor

from ratify_lakehouse.components.sql_table_component import PARTITIONS_TAG, STALE, SqlTable
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_policies import asked_for_as_a_whole, whole_tables
from ratify_lakehouse.definitions.project_definitions import code_location
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.source_jobs import job_of
from ratify_lakehouse.settings import catalog_name


@cache
def definitions_of_whole_tables() -> dg.Definitions:
    """Return the declared tables as if none had partitions; the conditions are evaluated on these."""
    resources = dg.Definitions(resources=code_location().defs.resources)
    return whole_tables(dg.Definitions.merge(declared_tables().with_conditions, resources))


def whole_assets() -> Sequence[dg.AssetsDefinition]:
    """Return the assets that these sensors request."""
    declared = declared_tables()
    return asked_for_as_a_whole(declared.with_conditions, declared.partitioned)


def whole_run_tags(key: dg.AssetKey) -> Mapping[str, str]:
    """Return the tags of a run that computes the stale partitions of a table (see `PARTITIONS_TAG`)."""
    table = _with_partitions(key)
    keys = table.partitioned.keys if table and table.partitioned else ()
    if not table or not keys:
        return {}
    inputs = {dg.AssetKey(name.key_path(catalog_name())) for name in table.table.query.inputs}
    if inputs.isdisjoint(declared_tables().partitioned):
        return {}
    return {**partition_range(keys), PARTITIONS_TAG: STALE}


def partition_range(keys: Sequence[str]) -> dict[str, str]:
    """Return the tags of a run for partitions that follow each other, at least one."""
    return {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}


def runs_without_tags(key: dg.AssetKey) -> bool:
    """Return whether any run computes the stale partitions of a table, which has some, without `whole_run_tags`."""
    table = _with_partitions(key)
    return bool(table and table.partitioned and table.partitioned.keys) and not whole_run_tags(key)


def _with_partitions(key: dg.AssetKey) -> SqlTable | None:
    tables = (table for table in declared_tables().sql_tables if table.partitioned)
    return next((table for table in tables if asset_key(table.table.declaration) == key), None)


def whole_table_sensor(asset: dg.AssetsDefinition) -> dg.SensorDefinition:
    """Return the sensor of an asset: it requests a run when the inputs are new and passed their blocking checks.

    One step may make several tables, as a table and its quarantine; one run makes them all.
    """
    keys = sorted(asset.keys)
    named = " and ".join(".".join(key.path[1:] or key.path) for key in keys)

    @dg.sensor(
        name=f"{asset.node_def.name}_whole",
        job=job_of("_".join(["update", *keys[0].path[1:]]), keys),
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Requests whatever is not up to date in {named} when the inputs are new.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        table = _with_partitions(keys[0])
        if table and table.partitioned and not table.partitioned.keys:
            # The cursor stays, so that what is new until then is seen on that day.
            return dg.SkipReason(f"The first partition begins on {table.partitioned.start}.")
        cursor = dg.deserialize_value(context.cursor, AssetDaemonCursor) if context.cursor else None
        found = dg.evaluate_automation_conditions(
            defs=definitions_of_whole_tables(),
            instance=context.instance,
            asset_selection=dg.AssetSelection.assets(*keys),
            cursor=cursor,
        )
        context.update_cursor(dg.serialize_value(found.cursor))
        if not any(found.get_num_requested(key) for key in keys):
            return dg.SkipReason("No input is new, or one has not passed its blocking checks.")
        return dg.RunRequest(asset_selection=keys, tags=whole_run_tags(keys[0]))

    return sensor
