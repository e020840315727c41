"""From the folders of a project to a code location of Dagster, and the code location of the project at hand."""

from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from ratify_lakehouse.definitions.code_links import with_modules, with_repository_links
from ratify_lakehouse.definitions.project_folders import definitions_module
from ratify_lakehouse.definitions.project_tables import declared_tables, folder
from ratify_lakehouse.definitions.reprocess_job import reprocess_checks_job, reprocess_checks_sensor, reprocess_job
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.definitions.table_cleaning import clean_job
from ratify_lakehouse.definitions.table_maintenance import maintenance_job
from ratify_lakehouse.errors import NotConfigured

ANY_JOB = "__ASSET_JOB"
"""Dagster's own job of every asset, also of those with partitions."""


def project_definitions(
    *,
    resources: Mapping[str, dg.ConfigurableResource[Any]],
    jobs: Sequence[Any] = (),
    schedules: Sequence[dg.ScheduleDefinition] = (),
    sensors: Sequence[dg.SensorDefinition] = (),
) -> dg.Definitions:
    """Return what a project's code location has: what its folders define, with the jobs that maintain tables.

    Args:
        resources: By their names: `catalog`, `spark`, `duckdb`, `flink`, `kafka` and `landing`.
        jobs: The project's own; one that selects nothing is left out, with its schedules.
        schedules: Of these jobs, and of those that are added: `maintenance` and `clean`.
        sensors: The project's own, and those of the library that it wants (see `table_sensors`).

    Raises:
        InvalidDeclaration: a table reads one that nothing makes.
    """
    declared_tables().check_inputs()
    reprocess = reprocess_job()
    empty = _without_assets(jobs)
    added = dg.Definitions(
        jobs=[
            *(job for job in jobs if job.name not in empty),
            maintenance_job,
            clean_job,
            *([reprocess, reprocess_checks_job] if reprocess else []),
        ],
        schedules=[schedule for schedule in schedules if schedule.job_name not in empty],
        sensors=[*sensors, *([reprocess_checks_sensor(reprocess)] if reprocess else [])],
        resources=resources,
        executor=side_by_side_executor,
    )
    return with_repository_links(dg.Definitions.merge(with_modules(declared_tables().definitions), added), folder())


def _without_assets(jobs: Sequence[Any]) -> set[str]:
    """Return the names of jobs that select nothing, as all do in a project without tables: they would only confuse."""
    declared = declared_tables().definitions
    assets = [
        each for each in (*(declared.assets or ()), *(declared.asset_checks or ())) if isinstance(each, dg.AssetsDefinition)
    ]
    graph = AssetGraph.from_assets(assets)
    selections = {job.name: job.selection for job in jobs if isinstance(getattr(job, "selection", None), dg.AssetSelection)}
    return {name for name, chosen in selections.items() if not (chosen.resolve(graph) or chosen.resolve_checks(graph))}


@cache
def code_location() -> ModuleType:
    """Return the module whose `defs` are those of the project that a command runs in.

    Raises:
        NotConfigured: it has none.
    """
    module = definitions_module()
    if not isinstance(getattr(module, "defs", None), dg.Definitions):
        raise NotConfigured(f"{module.__name__} has no `defs`: assign to it what `project_definitions` returns.")
    return module


def job_named(name: str) -> str:
    """Return the name if the project has such a job; else that of Dagster's own job of every asset."""
    return name if code_location().defs.get_repository_def().has_job(name) else ANY_JOB
