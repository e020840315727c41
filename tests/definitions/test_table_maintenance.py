"""The job `maintenance`: which tables it maintains, what it leaves, and what their pages show of it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow.parquet
import pytest

from ratify_lakehouse.components.checks.upkeep_check import MAINTAINED
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions import table_maintenance
from ratify_lakehouse.definitions.maintenance_records import SCAN, MaintenanceOutcome
from ratify_lakehouse.definitions.runs_in_progress import targeted_by_runs
from ratify_lakehouse.definitions.side_by_side import side_by_side_executor
from ratify_lakehouse.definitions.table_maintenance import maintain_tables, maintenance_job
from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.delta.maintenance_rules import GovernedTable, Manager, rules_of
from ratify_lakehouse.errors import CatalogDenied
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]

pytestmark = pytest.mark.stack

EAGER = TableMaintenance(small_files=2)


class MaintainedTables:
    """Tables of a test, in place of those of the project."""

    def __init__(self, lake: Lakehouse, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.maintained = dict[dg.AssetKey, MaintainedTable]()

    def add(self, maintenance: TableMaintenance = EAGER, loads: int = 3, **more: Any) -> TableDeclaration:
        table = pairs(properties={"delta.enableRowTracking": "false"}, **more)
        self.maintained[asset_key(table)] = MaintainedTable(table, maintenance)
        if loads:
            self.lake.create(table)
        for load in range(loads):
            append(self.lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
        return table

    def run(self, **config: Any) -> dg.ExecuteInProcessResult:
        resources = {"catalog": self.lake.catalog, "duckdb": self.lake.another_duckdb()}
        return maintenance_job.execute_in_process(
            instance=self.instance,
            resources=resources,
            run_config={"ops": {maintain_tables.name: {"config": config}}},
            raise_on_error=False,
        )

    def seen(self, table: TableDeclaration) -> dict[str, Any]:
        """What the page of a table shows of its last observation."""
        (record,) = self.instance.fetch_observations(asset_key(table), limit=1).records
        assert record.asset_observation
        return {name: value.value for name, value in record.asset_observation.metadata.items()}


@pytest.fixture
def tables(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[MaintainedTables]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = MaintainedTables(lake, instance)
        monkeypatch.setattr(table_maintenance, "declared_tables", lambda: made)
        yield made


def report_of(done: dg.ExecuteInProcessResult) -> str:
    (output,) = [event for event in done.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    return str(output.step_output_data.metadata["maintenance"].value)


def test_a_table_over_its_thresholds_is_maintained_once(tables: MaintainedTables) -> None:
    many, few, never, missing = (
        tables.add(),
        tables.add(TableMaintenance()),
        tables.add(TableMaintenance(enabled=False)),
        pairs(),
    )
    tables.maintained[asset_key(missing)] = MaintainedTable(missing, EAGER)
    before = tables.lake.stored(many)
    done = tables.run()
    assert done.success
    assert tables.lake.stored(many) == before
    seen = tables.seen(many)
    assert (seen["outcome"], seen["files before"], seen["files"], seen["mergeable files before"]) == (
        "maintained",
        3,
        1,
        3,
    )
    assert seen["why"] == "3 of 3 files can become fewer (limit 2 and 20%). Compacted in 1 commit."
    assert (seen["versions since last maintenance"], seen["files since last maintenance"]) == (4, 3)
    assert "last maintenance" not in seen
    assert (seen[f"{SCAN} before"] > 0, seen[SCAN] > 0) == (True, True)
    assert "| compact | yes | `ratify maintain" in seen["maintenance"]
    seen = tables.seen(few)
    assert (seen["outcome"], seen["files before"], seen["files"]) == ("not due", 3, 3)
    assert SCAN not in seen
    for left in (never, missing):
        assert tables.instance.fetch_observations(asset_key(left), limit=1).records == []
    report = report_of(done)
    assert [report.count(f"| {outcome} |") for outcome in MaintenanceOutcome] == [1, 1, 0, 0, 1, 1, 0]
    assert report.splitlines()[2].startswith(f"| {tables.lake.full(many)} | maintained | 3 | 1 |")

    # The page's check has what was found after the maintenance, as that of another table has that it needs none.
    for table in (many, few):
        (record,) = tables.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(asset_key(table), MAINTAINED), limit=1
        )
        assert isinstance(record.evaluation, dg.AssetCheckEvaluation)
        assert record.evaluation.passed

    append(tables.lake.duckdb, many, "SELECT 9::BIGINT, 'a'", "a later load")
    assert tables.run(tables=[many.table_name]).success
    assert tables.seen(many)["files before"] == 2
    assert tables.run(tables=[many.table_name]).success
    seen = tables.seen(many)
    assert (seen["outcome"], seen["files"], seen["versions since last maintenance"]) == ("not due", 1, 0)
    assert seen["last maintenance"] > 0
    assert tables.lake.version(many) == 6


def test_deleted_rows_and_a_long_log_are_maintained_too(tables: MaintainedTables) -> None:
    table = tables.add(TableMaintenance(small_files=99, log_versions=4))
    tables.lake.insert(table, "SELECT range, 'b' FROM range(20)")
    tables.lake.run(f"DELETE FROM {tables.lake.full(table)} WHERE id = 7")
    left = tables.lake.stored(table)
    assert tables.run().success
    seen = tables.seen(table)
    assert (seen["deleted rows before"], seen["deleted rows"]) in ((1, 1), (1, 0), (0, 0))
    assert seen["versions since checkpoint before"] >= 4
    assert seen["versions since checkpoint"] == 0
    assert "Wrote a checkpoint." in seen["why"]
    assert tables.lake.stored(table) == left


def test_below_the_thresholds_it_compacts_what_it_can(tables: MaintainedTables) -> None:
    some, one = tables.add(TableMaintenance()), tables.add(TableMaintenance(), loads=1)
    assert tables.run(below_thresholds=True).success
    assert [tables.seen(table)["outcome"] for table in (some, one)] == ["maintained", "not due"]


def test_a_table_that_fails_does_not_stop_the_others(tables: MaintainedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, fine = tables.add(), tables.add()
    (tables.lake.folder(tables.lake.full(broken)) / "_delta_log" / f"{1:020d}.json").unlink()
    done = tables.run()
    assert not done.success
    (failed,) = done.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data
    text = str(failed.step_failure_data.user_failure_data.description)
    assert tables.lake.full(broken) in text
    assert tables.lake.full(fine) not in text
    assert tables.seen(fine)["outcome"] == "maintained"

    def denied(*_: object, **__: object) -> None:
        raise CatalogDenied("not yours")

    another = tables.add()
    with monkeypatch.context() as patched:
        patched.setattr(table_maintenance, "compact", denied)
        assert not tables.run(tables=[another.table_name]).success
    assert tables.run(tables=[another.table_name]).success


@pytest.mark.parametrize("manager", [Manager.DATABRICKS, Manager.OPEN_SOURCE, Manager.EXTERNAL])
def test_a_table_that_others_manage_is_named(
    tables: MaintainedTables, monkeypatch: pytest.MonkeyPatch, manager: Manager
) -> None:
    table = tables.add()
    rules = rules_of(GovernedTable(tables.lake.full(table), manager))
    monkeypatch.setattr("ratify_lakehouse.delta.maintenance_inspection.maintenance_rules", lambda *_: rules)
    done = tables.run()
    assert done.success
    assert tables.lake.version(table) == 3
    seen = tables.seen(table)
    assert (seen["outcome"], "files" in seen) == ("left to others", manager is not Manager.EXTERNAL)
    assert f"Managed by {manager}." in seen["maintenance"]
    records = tables.instance.all_logs(done.run_id)
    assert [entry.message for entry in records if int(entry.level) >= 30] == []


def test_an_unknown_table_is_named(tables: MaintainedTables) -> None:
    tables.add(loads=0)
    done = tables.run(tables=["bronze.nothing"])
    (failed,) = done.get_step_failure_events()
    assert "bronze.nothing: the project declares no such table" in str(failed.step_failure_data.error)


def test_a_table_that_a_run_is_about_to_write_is_left(tables: MaintainedTables) -> None:
    """Whether the run selected its assets, or is of all that its job has; when it has ended, the table is maintained."""
    table = tables.add()
    key, inside = asset_key(table), list[str]()

    @dg.asset(key=key)
    def writing(context: dg.AssetExecutionContext) -> None:
        assert targeted_by_runs(context.instance)[key] == context.run_id
        assert tables.run().success
        inside.append(tables.seen(table)["why"])

    location = dg.Definitions([writing], jobs=[dg.define_asset_job("whole")])
    for job in ("whole", "__ASSET_JOB"):
        done = location.resolve_job_def(job).execute_in_process(instance=tables.instance)
        assert inside.pop() == f"Run {done.run_id} is in progress and targets it."
        assert tables.lake.version(table) == 3
    assert targeted_by_runs(tables.instance) == {}
    assert tables.run().success
    assert tables.lake.version(table) == 4


YAML = """type: ratify_lakehouse.LandedFiles
attributes:
  description: Rows
  pattern: "{folder}/*.csv"
  columns: [{{name: code, type: string}}, {{name: name, type: string}}]
  maintenance: {{small_files: 2, sort: [code]}}
"""


def test_what_yaml_declares_is_what_the_job_does(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files land one by one, the job sorts their rows into one file, and nothing that follows takes it for new data."""
    name = f"t_{uuid4().hex[:10]}"
    root = tmp_path / f"maintained_{name}"
    folder = root / "bronze" / name
    folder.mkdir(parents=True)
    (root / "__init__.py").touch()
    (folder / "defs.yaml").write_text(YAML.format(folder=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    declared = DeclaredTables(importlib.import_module(root.name))
    monkeypatch.setattr(table_maintenance, "declared_tables", lambda: declared)
    (landed := tmp_path / "landing" / name).mkdir(parents=True)
    landing = LandingZone(url=str(landed.parent))
    resources = {"catalog": lake.catalog, "duckdb": lake.another_duckdb(), "spark": lake.spark, "landing": landing}
    defs = dg.Definitions.merge(
        declared.definitions, dg.Definitions(jobs=[maintenance_job], resources=resources, executor=side_by_side_executor)
    )
    table = declared.sources[0].table
    key, loading = asset_key(table), defs.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:

        def land(number: int, *warning: str) -> dict[str, Any]:
            (landed / f"{number}.csv").write_text(f"code,name\nb{number},x\na{number},y\n")
            done = loading.execute_in_process(instance=instance, asset_selection=[key])
            found = {check.check_name: check.passed for check in done.get_asset_check_evaluations()}
            assert tuple(check for check, passed in found.items() if not passed) == warning
            (event,) = done.asset_materializations_for_node(f"bronze__{name}")
            return {name: value.value for name, value in event.metadata.items()}

        land(3)
        for number in (1, 2):
            land(number, MAINTAINED)
        config = {"tables": [f"bronze.{name}", "ops.landed_files"], "below_thresholds": True}
        maintaining = defs.resolve_job_def("maintenance")
        run_config = {"ops": {maintain_tables.name: {"config": config}}}
        assert maintaining.execute_in_process(instance=instance, run_config=run_config).success
        assert lake.version(table) == 4
        full_name = lake.full(table)
        (file,) = lake.run(f"SELECT DISTINCT _metadata.file_path AS path FROM {full_name}")
        rows = pyarrow.parquet.read_table(file["path"].removeprefix("file://")).to_pydict()
        assert rows["code"] == ["a1", "a2", "a3", "b1", "b2", "b3"]
        # The same content again is no new row, and nothing is missing of what was loaded before.
        said = land(1)
        assert (said["dagster/row_count"], said["rows added"]) == (6, 0)
        said = land(4, MAINTAINED)
        assert (said["dagster/row_count"], said["rows added"]) == (8, 2)
    sys.modules.pop(root.name, None)
