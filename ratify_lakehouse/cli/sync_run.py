"""The run of `ratify sync run`, through Dagster."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from ratify_lakehouse.cli.dagster_session import dagster_instance
from ratify_lakehouse.cli.job_run import failure_of, run_job
from ratify_lakehouse.components.syncs.sync_assets import sync_key
from ratify_lakehouse.definitions.project_definitions import code_location, job_named
from ratify_lakehouse.definitions.project_tables import declared_tables

_SHOWN = ("rows read", "inserted", "updated", "deleted", "failed", "Delta version", "seconds")


def run_chosen(names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Run syncs, each in a run of its own, so that one that fails stops no other; return what they did, and what failed."""
    from_kafka, done, failed = set(declared_tables().from_kafka), list[dict[str, Any]](), list[str]()
    with dagster_instance() as instance:
        for name in names:
            key = sync_key(name)
            job = job_named("events" if key in from_kafka else "medallion")
            run = run_job(instance, code_location(), job, [key])
            if not run.success:
                failed.append(f"{name}: {failure_of(run)}")
                continue
            made = [event for event in run.get_asset_materialization_events() if event.asset_key == key]
            done += [_row(name, event.step_materialization_data.materialization) for event in made]
    return done, failed


def _row(name: str, made: dg.AssetMaterialization) -> dict[str, Any]:
    return {"sync": name, **{each: made.metadata[each].value for each in _SHOWN}}
