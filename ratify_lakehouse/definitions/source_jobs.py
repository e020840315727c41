"""The jobs of what comes in: files that land and records of topics, each with all that is made of them in the same run."""

from collections.abc import Collection, Iterable
from typing import Any

import dagster as dg

from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.project_tables import declared_tables, sources


def _in_one_job(keys: Iterable[dg.AssetKey]) -> list[dg.AssetKey]:
    """Return the assets that one job can have, whose partitions are of one kind; others follow by their sensors."""
    partitioned = {
        asset_key(table.table.declaration): table.partitioned.definition
        for table in declared_tables().sql_tables
        if table.partitioned
    }
    every = list(keys)
    first = next((partitioned[key] for key in every if key in partitioned), None)
    return [key for key in every if partitioned.get(key, first) == first]


_OF_FILES = _in_one_job(declared_tables().with_dependents(asset_key(source.table) for source in sources()))
_OF_TOPICS = _in_one_job(declared_tables().from_kafka)

ingest_job = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.assets(*_OF_FILES),
    description="Load all waiting files into bronze, and update the tables built from them.",
)

events_job = dg.define_asset_job(
    "events",
    selection=dg.AssetSelection.assets(*_OF_TOPICS),
    description="Read new records of topics, and update the tables built from them.",
)


def job_of(name: str, keys: Collection[dg.AssetKey]) -> Any:
    """Return the job whose row of the timeline shows a sensor's runs: of what comes in, or else one of its own.

    Args:
        name: Of one of its own.
        keys: The assets that the sensor requests.
    """
    for job, assets in ((ingest_job, _OF_FILES), (events_job, _OF_TOPICS)):
        if set(keys) <= set(assets):
            return job
    return dg.define_asset_job(name, selection=dg.AssetSelection.assets(*keys), description="What its sensor requests.")
