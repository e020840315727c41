"""The sensors that request tables with partitions, and the tables that read one, as a whole.

An automation condition of Dagster's own asks for single partitions, all of them whenever an input without partitions has
changed. What is right for these tables is a run without chosen partitions, which computes those that are stale.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import dagster as dg
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor

from components.sql_table_component import PARTITIONS_TAG, STALE
from components.table_asset import asset_key
from components.table_policies import asked_for_as_a_whole, whole_tables
from orchestration.project_resources import RESOURCES
from orchestration.project_tables import declared_tables
from resources.settings import catalog_name


@cache
def definitions_of_whole_tables() -> dg.Definitions:
    """Return the declared tables as if none had partitions; the conditions are evaluated on these."""
    declared = declared_tables()
    given = dg.Definitions.merge(declared.definitions, dg.Definitions(resources=RESOURCES))
    return whole_tables(given, declared.partitioned)


def whole_table_keys() -> Sequence[dg.AssetKey]:
    """Return the tables that these sensors request."""
    declared = declared_tables()
    return asked_for_as_a_whole(declared.definitions, declared.partitioned)


def whole_run_tags(key: dg.AssetKey) -> Mapping[str, str]:
    """Return the tags of a run that computes the stale partitions of a table (see `PARTITIONS_TAG`)."""
    declared = declared_tables()
    (table,) = [each for each in declared.sql_tables if asset_key(each.table.declaration) == key]
    inputs = {dg.AssetKey(name.key_path(catalog_name())) for name in table.table.query.inputs}
    keys = table.partitioned.keys if table.partitioned else ()
    if not keys or inputs.isdisjoint(declared.partitioned):
        return {}
    return {
        "dagster/asset_partition_range_start": keys[0],
        "dagster/asset_partition_range_end": keys[-1],
        PARTITIONS_TAG: STALE,
    }


def whole_table_sensor(key: dg.AssetKey) -> dg.SensorDefinition:
    """Return the sensor of a table: it requests a run when the inputs are new and passed their blocking checks."""

    @dg.sensor(
        name=f"{'__'.join(key.path[1:])}_whole",
        target=dg.AssetSelection.assets(key),
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Requests the stale partitions of {'.'.join(key.path[1:])} when its inputs are new.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        cursor = dg.deserialize_value(context.cursor, AssetDaemonCursor) if context.cursor else None
        found = dg.evaluate_automation_conditions(
            defs=definitions_of_whole_tables(),
            instance=context.instance,
            asset_selection=dg.AssetSelection.assets(key),
            cursor=cursor,
        )
        context.update_cursor(dg.serialize_value(found.cursor))
        if not found.get_num_requested(key):
            return dg.SkipReason("No input is new, or one has not passed its blocking checks.")
        return dg.RunRequest(asset_selection=[key], tags=whole_run_tags(key))

    return sensor
