"""A bronze table as Dagster runs it, and its checks: all pass on what it wrote, and each finds the harm it is there for."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from components.checks.check_definitions import files_check, history_checks, landing_check
from components.checks.landed_file_checks import csv_rows_in_bronze, files_loaded_once
from components.landed_files import bronze_table
from components.table_asset import VERSIONS, asset_key
from resources.delta.table_repair import repair
from resources.landing.landing_zone import LandingZone
from tests.ingest.test_batch_loading import HEADER, Landing, new_source
from tests.resources.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


class CheckedTable:
    """One bronze table with its asset and all of its checks, on an instance of its own."""

    def __init__(self, lake: Lakehouse, root: Path, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.source = new_source("carrier", "name")
        self.landing = Landing(lake, root, self.source)
        self.key = asset_key(self.source.table)
        self.asset = bronze_table(self.source)
        self.checks = [
            files_check(self.source.table),
            history_checks(self.source.table),
            landing_check(self.source, "files_loaded_once", files_loaded_once, "once"),
            landing_check(self.source, "csv_rows_in_bronze", csv_rows_in_bronze, "rows"),
        ]

    def run(self, selection: dg.AssetSelection, **config: Any) -> dg.ExecuteInProcessResult:
        # Engines of the run, as in a real one: closed at its end.
        resources = {
            "landing": LandingZone(url=str(self.landing.root)),
            "catalog": self.lake.catalog,
            "spark": self.lake.spark,
            "duckdb": self.lake.another_duckdb(),
        }
        run_config = {"ops": {self.source.table.name: {"config": config}}} if config else None
        return dg.materialize(
            [self.asset, *self.checks],
            selection=selection,
            instance=self.instance,
            resources=resources,
            run_config=run_config,
            raise_on_error=False,
        )

    def materialize(self, **config: Any) -> tuple[dict[str, Any], dict[str, bool]]:
        done = self.run(dg.AssetSelection.all(), **config)
        assert done.success
        (event,) = done.asset_materializations_for_node(self.source.table.name)
        return {name: value.value for name, value in event.metadata.items()}, self.verdicts(done)

    def validate(self) -> dict[str, bool]:
        return self.verdicts(self.run(dg.AssetSelection.checks(*self.checks)))

    def verdicts(self, done: dg.ExecuteInProcessResult) -> dict[str, bool]:
        return {found.check_name: found.passed for found in done.get_asset_check_evaluations()}


ALL = {
    "files_present",
    "committed_as_declared",
    "rows_as_reported",
    "no_external_commits",
    "schema_as_declared",
    "append_only_respected",
    "files_loaded_once",
    "csv_rows_in_bronze",
}


def failed(verdicts: dict[str, bool]) -> set[str]:
    assert set(verdicts) == ALL
    return {name for name, passed in verdicts.items() if not passed}


def test_what_a_run_reports_is_true_and_each_check_finds_its_harm(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        full_name = lake.full(table.source.table)
        for name in ("1", "2", "3"):
            table.landing.put(f"{name}.csv", HEADER + f"A{name},x\nB{name},y\n")
        table.landing.put("4.csv", HEADER + "cut")
        said, verdicts = table.materialize(max_files=2)
        assert failed(verdicts) == set()
        assert (said["dagster/row_count"], said["rows added"], said["Delta version"]) == (6, 6, 2)
        assert (said[VERSIONS], said["engine"]) == ([1, 2], "DuckDB")
        assert (said["files loaded"], said["files refused"], said["files repeated"]) == (3, 1, 0)
        (refused,) = said["files not loaded"].records
        assert refused.data["file"].endswith("/4.csv")
        assert "cut off" in refused.data["reason"]

        # Nothing waits: a run makes no version.
        said, verdicts = table.materialize()
        assert failed(verdicts) == set()
        assert (said["rows added"], said["Delta version"], said[VERSIONS]) == (0, 2, [])

        # An external commit: rows that nobody landed, by an engine that does not write this table.
        lake.run(f"INSERT INTO {full_name} VALUES ('ZZ', 'z', '{table.landing.folder}/9.csv', 1, now(), 'none')")
        assert failed(table.validate()) == {"committed_as_declared", "no_external_commits", "files_loaded_once"}
        # Taken out again, the counts are right; the history is not.
        lake.run(f"DELETE FROM {full_name} WHERE carrier = 'ZZ'")
        assert failed(table.validate()) == {"committed_as_declared", "no_external_commits", "append_only_respected"}
        lake.run(f"ALTER TABLE {full_name} ADD COLUMN surprise STRING")
        assert "schema_as_declared" in failed(table.validate())
        # A run refuses to write to a table that is not as declared.
        table.landing.put("5.csv", HEADER + "C,c\n")
        assert not table.run(dg.AssetSelection.assets(table.key)).success
        assert lake.version(table.source.table) == 5


def test_a_file_that_is_gone_is_found_and_its_landed_files_can_be_loaded_again(lake: Lakehouse, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        table = CheckedTable(lake, tmp_path, instance)
        files_present = dg.AssetSelection.checks(table.checks[0])

        def found() -> dg.AssetCheckEvaluation:
            (evaluation,) = table.run(files_present).get_asset_check_evaluations()
            return evaluation

        name = f"bronze.{table.source.table.name}"
        table.landing.put("1.csv", HEADER + "A,x\nB,y\n")
        table.materialize()
        assert found().passed
        log = lake.another_duckdb().log(f"ratify.{name}")
        (file,) = log.files(log.refresh())
        log.storage.remove(file.path)
        harm = found()
        assert (harm.passed, harm.severity, harm.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
        assert {key: value.value for key, value in harm.metadata.items()} == {
            "files": 1,
            "missing": 1,
            "missing files": file.path,
            "repair": f"ratify repair {name}",
        }
        assert repair(log) is not None
        assert found().passed
        said, verdicts = table.materialize(files=[f"{table.landing.folder}/1.csv"])
        assert (said["rows added"], said["dagster/row_count"], verdicts["files_loaded_once"]) == (2, 2, True)


def test_a_table_that_is_not_made_yet_lacks_nothing(lake: Lakehouse) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        check = files_check(new_source("carrier", "name").table)
        done = dg.materialize(
            [check], selection=dg.AssetSelection.checks(check), instance=instance, resources={"duckdb": lake.duckdb}
        )
        assert [evaluation.passed for evaluation in done.get_asset_check_evaluations()] == [True]
