"""A bronze table with its asset and all of its checks, and how a run's evaluations of these are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import landed_file_checks, table_checks
from ratify_lakehouse.components.landed_files import bronze_table
from ratify_lakehouse.components.table_asset import asset_key, step_name
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import Landing, new_source


class CheckedTable:
    """One bronze table with its asset and all of its checks, on an instance of its own."""

    def __init__(self, lake: Lakehouse, root: Path, instance: dg.DagsterInstance, **declared: Any) -> None:
        self.lake, self.instance = lake, instance
        self.source = replace(new_source("code", "name"), **declared)
        self.landing = Landing(lake, root, self.source)
        self.key = asset_key(self.source.table)
        self.alone = dg.AssetSelection.assets(self.key).without_checks()
        self.asset = bronze_table(self.source)
        self.checks = [
            table_checks(self.source.table, "_source_file" if declared else "", reported=False),
            *landed_file_checks(self.source),
        ]

    def run(
        self, selection: dg.AssetSelection, tags: dict[str, str] | None = None, **config: Any
    ) -> dg.ExecuteInProcessResult:
        # Engines of the run, as in a real one: closed at its end.
        resources = {
            "landing": LandingZone(url=str(self.landing.root)),
            "catalog": self.lake.catalog,
            "spark": self.lake.spark,
            "duckdb": self.lake.another_duckdb(),
        }
        run_config = {"ops": {step_name(self.source.table): {"config": config}}} if config else None
        return dg.materialize(
            [self.asset, *self.checks],
            selection=selection,
            instance=self.instance,
            resources=resources,
            run_config=run_config,
            tags=tags,
            raise_on_error=False,
        )

    def materialize(self, **config: Any) -> tuple[dict[str, Any], dict[str, bool]]:
        done = self.run(dg.AssetSelection.all(), **config)
        assert done.success
        (event,) = done.asset_materializations_for_node(step_name(self.source.table))
        return {name: value.value for name, value in event.metadata.items()}, self.verdicts(done)

    def load(self) -> None:
        """Materialize it alone."""
        assert self.run(self.alone).success

    def validate(self) -> dict[str, bool]:
        return self.verdicts(self.run(dg.AssetSelection.checks(*self.checks)))

    def verdicts(self, done: dg.ExecuteInProcessResult) -> dict[str, bool]:
        return {found.check_name: found.passed for found in done.get_asset_check_evaluations()}


def evaluations(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {found.check_name: found for found in done.get_asset_check_evaluations()}


def failed_of(done: dg.ExecuteInProcessResult) -> set[str]:
    return {name for name, found in evaluations(done).items() if not found.passed}


ALL = {"table_is_intact", "files_loaded_once", "files_accepted"}


def failed(verdicts: dict[str, bool]) -> set[str]:
    assert set(verdicts) == ALL
    return {name for name, passed in verdicts.items() if not passed}
