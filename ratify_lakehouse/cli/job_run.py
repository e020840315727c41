"""Runs of the jobs of a code location that a command executes in its own process."""

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any
from uuid import uuid4

import dagster as dg
import psutil
import yaml
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from ratify_lakehouse.cli.dagster_session import workspace_file
from ratify_lakehouse.definitions.runs_in_progress import PROCESS_TAG

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration that silences Dagster's log, because the command itself reports what happens."""


def run_job(
    instance: dg.DagsterInstance,
    location: ModuleType,
    job: str,
    keys: Sequence[dg.AssetKey],
    *,
    checks: Sequence[dg.AssetCheckKey] = (),
    run_id: str = "",
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.JobExecutionResult:
    """Execute a job for some of its assets, with their checks, and return what became of it; errors are part of that.

    The run names the code location that the job is of, which `execute_in_process` does not: without it, the UI shows the run
    neither on the timeline nor on the job's page.

    Args:
        instance: Where the run is recorded.
        location: The module of the code location; its `defs` have the job.
        job: The job.
        keys: The assets; none for a job of ops or of checks.
        checks: Of a job of checks, those to execute; none: all.
        run_id: Of the run, for who listens to its events; by default a new one.
        config: Run configuration.
        tags: Of the run.
    """
    definition = location.defs.resolve_job_def(job)
    chosen = {"asset_selection": set(keys)} if keys else {"asset_check_selection": set(checks)} if checks else {}
    part = definition.get_subset(**chosen) if chosen else definition
    run = instance.create_run_for_job(
        part,
        run_id=run_id or str(uuid4()),
        run_config={**(config or {}), **_QUIET},
        # The daemon would try a run again whose process has died: the command that is run again does that.
        tags={**definition.run_tags, **(tags or {}), PROCESS_TAG: str(os.getpid()), "dagster/max_retries": "0"},
        asset_selection=frozenset(keys) or None,
        remote_job_origin=_origin(location, job),
    )
    # The run says which assets of the job it is for; of its checks, Dagster lets it say nothing here.
    return execute_run(InMemoryJob(part if checks else definition), run, instance)


def failure_of(run: dg.JobExecutionResult | dg.ExecuteInProcessResult) -> str:
    """Return why a run failed: the first cause of its first failed step."""
    failed = [event for event in run.all_node_events if event.is_step_failure and event.step_failure_data.error]
    return failure_of_step(failed[0]) if failed else "the run failed; its log says why"


def failure_of_step(event: dg.DagsterEvent) -> str:
    """Return why a step failed: its error, without the one in which Dagster wraps it."""
    error = event.step_failure_data.error
    return (error.cause or error).message.strip() if error else "its log says why"


def close_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark the runs of killed commands as failed: while a run seems to be in progress, its assets are not requested."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        pid = run.tags.get(PROCESS_TAG)
        if pid and not psutil.pid_exists(int(pid)):
            instance.report_run_failed(run, "The process of this run has ended.")


def _origin(location: ModuleType, job: str) -> RemoteJobOrigin | None:
    """Where the UI finds the job: in the code location that the workspace has of the module; None if it has none."""
    modules = [entry["python_module"] for entry in yaml.safe_load(workspace_file().read_text())["load_from"]]
    names = [module["location_name"] for module in modules if module["module_name"] == location.__name__]
    if not names:
        # A project need not show the proof.
        return None
    repository = location.defs.get_repository_def().name
    return RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(names[0]), repository), job)
