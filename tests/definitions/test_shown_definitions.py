"""What the pages of the UI show of the definitions themselves: jobs, the job of a sensor's runs, icons, configuration."""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path

import dagster as dg
import pytest
from dagster import Field

from orchestration.definitions import defs
from ratify_lakehouse.definitions import project_definitions as module
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.definitions.source_jobs import events_job, ingest_job, job_of
from resources.project_resources import RESOURCES


def test_each_kind_has_an_icon() -> None:
    """Of those that the installed UI draws."""
    build = Path(str(distribution("dagster-webserver").locate_file("dagster_webserver/webapp/build/_next")))
    scripts = (path.read_text(errors="replace") for path in build.rglob("*.js"))
    drawn = next(set(re.findall(r'[{,]"?(\w+)"?:\{icon:', text)) for text in scripts if 'content:"Delta Lake"' in text)
    kinds = {spec.key.to_user_string(): spec.kinds for spec in defs.resolve_all_asset_specs()}
    assert {key: rest for key, given in kinds.items() if (rest := given - drawn) or not given} == {}
    assert {"csv", "kafka", "deltalake", "duckdb", "spark", "flink", "gold"} <= set[str]().union(*kinds.values())


def test_the_runs_of_a_sensor_have_the_name_of_a_job() -> None:
    """But for those of automation conditions, which Dagster itself runs without one."""
    sensors = [each for each in defs.get_repository_def().sensor_defs if each.name != "automation"]
    jobs = {each.name: [target.job_name for target in each.targets] for each in sensors}
    assert jobs
    assert {name: named for name, named in jobs.items() if [job for job in named if job.startswith("__")]} == {}
    assert {name for named in jobs.values() for name in named} == {"ingest", "events", "reprocess_checks"}


def test_what_neither_files_nor_topics_make_has_a_job_of_its_own() -> None:
    files, topics = (list(each.selection.resolve(defs.resolve_asset_graph())) for each in (ingest_job, events_job))
    assert job_of("own", files[:2]) is ingest_job
    assert job_of("own", topics[-1:]) in (ingest_job, events_job)
    elsewhere = [dg.AssetKey(["ratify", "gold", "elsewhere"])]
    assert (job_of("own", elsewhere).name, job_of("own", [*files, *elsewhere]).name) == ("own", "own")


class NoTables:
    """As a new project declares them."""

    definitions = dg.Definitions()

    def check_inputs(self) -> None: ...


def test_a_project_without_tables_has_no_empty_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        dg.define_asset_job("tables", dg.AssetSelection.all()),
        dg.define_asset_job("checks", dg.AssetSelection.checks()),
        module.maintenance_job,
    ]
    schedules = [dg.ScheduleDefinition(name=f"of_{job.name}", job=job, cron_schedule="@daily") for job in jobs]
    monkeypatch.setattr(module, "declared_tables", NoTables)
    monkeypatch.setattr(module, "reprocess_job", lambda: None)
    given = {"jobs": jobs[:2], "schedules": schedules, "resources": RESOURCES}
    found = module.project_definitions(**given).get_repository_def()
    assert {job.name for job in found.get_all_jobs()} == {"maintenance", "clean"}
    assert {schedule.job_name for schedule in found.schedule_defs} == {"maintenance"}


def test_each_field_of_a_run_is_described_and_may_be_left_out() -> None:
    """So "Materialize all" asks for no configuration."""
    for job in defs.get_repository_def().get_all_jobs():
        every = dict(described("", Field(job.run_config_schema.run_config_schema_type)))
        found = {path: field for path, field in every.items() if path.startswith((".ops", ".resources"))}
        assert [path for path, field in found.items() if field.is_required] == []
        options = {path: field for path, field in found.items() if ".config." in path and "io_manager" not in path}
        assert [path for path, field in options.items() if not field.description] == []


def described(path: str, field: Field) -> Iterator[tuple[str, Field]]:
    yield path, field
    fields: Mapping[str, Field] = getattr(field.config_type, "fields", None) or {}
    for name, below in fields.items():
        yield from described(f"{path}.{name}", below)


def test_all_tables_can_be_materialized_by_one_click() -> None:
    """The UI refuses what no job has as a whole; partitions are then the same, or all of them are computed."""
    every = defs.resolve_asset_graph().materializable_asset_keys
    whole = defs.get_repository_def().get_job("__ASSET_JOB")
    assert every == set(whole.asset_layer.executable_asset_keys)
    assert set(declared_tables().keys) <= every
