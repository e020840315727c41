"""Tables that a run of landed files updates as well: those that are made of them, down to gold."""

from collections.abc import Collection, Sequence

import dagster as dg

from ratify_lakehouse.components.table_policies import whole_tables
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.sensors.whole_table_sensor import definitions_of_whole_tables, runs_without_tags
from ratify_lakehouse.definitions.source_jobs import ingest_job


def made_of(instance: dg.DagsterInstance, loaded: Collection[dg.AssetKey]) -> Sequence[dg.AssetKey]:
    """Return the tables that a run which loads bronze tables can update as well, down to gold.

    They are those that their automation conditions would ask for together with these tables: no input is missing, in
    progress elsewhere, or has failed a blocking check.

    Args:
        instance: Where runs are recorded.
        loaded: The bronze tables.
    """
    whole = whole_tables(definitions_of_whole_tables(), asked_for=loaded)
    graph = whole.resolve_asset_graph()
    with_tags = [key for key in declared_tables().partitioned if not runs_without_tags(key)]
    known = dg.AssetSelection.assets(*(key for key in loaded if graph.has(key)))
    within = known.downstream() & ingest_job.selection - dg.AssetSelection.assets(*with_tags).downstream()
    found = dg.evaluate_automation_conditions(defs=whole, instance=instance, asset_selection=within)
    return sorted(key for key in within.resolve(graph) if key not in loaded and found.get_num_requested(key))
