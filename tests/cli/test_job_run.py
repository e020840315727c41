"""Runs that a command executes itself: each belongs to a job of a code location, so the UI shows it beside the others.

tests/smoke/test_pages.py has the pages that show those of the demo.
"""

import os
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import dagster as dg
import psutil
import pytest

from ratify_lakehouse.cli.dagster_session import dagster_home
from ratify_lakehouse.cli.job_run import close_dead_runs, run_job
from ratify_lakehouse.settings import Settings

RUN = "1f0c9d8e-0000-4000-8000-000000000001"


@dg.asset
def works() -> None:
    """An asset."""


@dg.asset
def fails() -> None:
    """An asset that cannot be made."""
    raise ValueError("no")


@dg.asset_check(asset=works)
def checked() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False)


@dg.asset_check(asset=fails)
def counted() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def location(name: str = "orchestration.definitions") -> ModuleType:
    """A module that has the name of a code location's."""
    module = ModuleType(name)
    module.__dict__["defs"] = dg.Definitions(
        assets=[works, fails],
        asset_checks=[checked, counted],
        jobs=[
            dg.define_asset_job("ingest", tags={"of": "job"}),
            dg.define_asset_job("checks", selection=dg.AssetSelection.checks(checked, counted)),
        ],
        executor=dg.in_process_executor,
    )
    return module


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[dg.DagsterInstance]:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    with dg.DagsterInstance.from_config(str(dagster_home(Settings()))) as instance:
        yield instance


@pytest.mark.server
def test_a_run_belongs_to_the_job(instance: dg.DagsterInstance) -> None:
    done = run_job(instance, location(), "ingest", [works.key], run_id=RUN, tags={"a": "b"})
    assert done.success
    assert [check.check_name for check in done.get_asset_check_evaluations()] == ["checked"]
    (run,) = instance.get_runs()
    assert (run.run_id, run.job_name) == (RUN, "ingest")
    # The page of a job lists the runs that have the second of these tags.
    assert {"of": "job", "a": "b", ".dagster/repository": "__repository__@ratify"}.items() <= run.tags_for_storage().items()
    assert run.remote_job_origin
    assert run.remote_job_origin.location_name == "ratify"


@pytest.mark.server
def test_some_checks_of_a_job_of_checks(instance: dg.DagsterInstance) -> None:
    done = run_job(instance, location(), "checks", [], checks=[dg.AssetCheckKey(works.key, "checked")])
    assert [(check.asset_key, check.check_name) for check in done.get_asset_check_evaluations()] == [(works.key, "checked")]
    assert len(run_job(instance, location(), "checks", []).get_asset_check_evaluations()) == 2


@pytest.mark.server
def test_the_proof_has_a_location_of_its_own(instance: dg.DagsterInstance) -> None:
    run_job(instance, location("ratify_lakehouse.definitions.proof_definitions"), "ingest", [works.key])
    assert instance.get_runs()[0].tags["dagster/code_location"] == "cross_engine_proof"


@pytest.mark.server
def test_a_failure_is_part_of_the_result_and_nobody_tries_again(instance: dg.DagsterInstance) -> None:
    done = run_job(instance, location(), "ingest", [works.key, fails.key])
    assert not done.success
    assert [event.step_key for event in done.all_events if event.is_step_failure] == ["fails"]
    (run,) = instance.get_runs()
    assert run.tags["dagster/max_retries"] == "0"
    assert run.tags.get("dagster/will_retry", "false") == "false"


def test_runs_of_dead_processes_are_closed(instance: dg.DagsterInstance) -> None:
    dead = next(pid for pid in range(90_000, 1_000_000) if not psutil.pid_exists(pid))
    for pid in (dead, os.getpid()):
        job = location().__dict__["defs"].resolve_job_def("ingest")
        instance.create_run_for_job(job, tags={"ratify/process": str(pid)}, status=dg.DagsterRunStatus.STARTED)
    close_dead_runs(instance)
    closed = {int(run.tags["ratify/process"]): run.status for run in instance.get_runs()}
    assert closed == {dead: dg.DagsterRunStatus.FAILURE, os.getpid(): dg.DagsterRunStatus.STARTED}
