"""Projects of declared tables, as a user writes them, in schemas that no other test has."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.upkeep_check import MAINTAINED
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.engines.lakehouse import Lakehouse

PAGE = (Path(__file__).parents[2] / "docs" / "own-tables.md").read_text()
FILES = dict(re.findall(r"^```(?:yaml|sql)\n(?:#|--) assets/(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
"""The files of the example in docs/own-tables.md, by their paths in assets."""

LANDED = re.findall(r"^```csv\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
ORDERS = f"{LANDED.splitlines()[0]}\n"
BRONZE, SILVER, GOLD = (FILES[f"{layer}/orders/defs.yaml"] for layer in ("bronze", "silver", "gold"))
SILVER_SQL, GOLD_SQL = (FILES[f"{layer}/orders/orders.sql"] for layer in ("silver", "gold"))


class Project:
    """A package of declared tables, in schemas that no other test has."""

    def __init__(self, root: Path) -> None:
        self.id = uuid4().hex[:8]
        self.root = root / f"tables_{self.id}"
        self.root.mkdir()
        (self.root / "__init__.py").touch()

    def schema(self, layer: str) -> str:
        return f"{layer}_{self.id}"

    def write(self, layer: str, table: str, declaration: str, sql: str = "") -> Path:
        folder = self.root / self.schema(layer) / table
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "defs.yaml").write_text(declaration)
        if sql:
            (folder / f"{table}.sql").write_text(re.sub(r"\b(bronze|silver)\.", rf"\1_{self.id}.", sql))
        return folder

    def shop(self) -> None:
        self.write("bronze", "orders", BRONZE)
        self.write("silver", "orders", SILVER, SILVER_SQL)
        self.write("gold", "orders", GOLD, GOLD_SQL)

    @property
    def tables(self) -> DeclaredTables:
        return DeclaredTables(importlib.import_module(self.root.name))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(str(tmp_path))
    project = Project(tmp_path)
    yield project
    sys.modules.pop(project.root.name, None)


class Shop:
    """The declared tables of a project on the tests' lakehouse, with a landing zone."""

    def __init__(self, lake: Lakehouse, project: Project, root: Path, instance: dg.DagsterInstance) -> None:
        self.lake, self.project, self.instance = lake, project, instance
        self.landing = root / "landing"
        (self.landing / "shop").mkdir(parents=True)

    def land(self, name: str, text: str) -> None:
        (self.landing / "shop" / name).write_text(ORDERS + text)

    def run(self, *, checks: bool = True) -> dg.ExecuteInProcessResult:
        resources = {
            "landing": LandingZone(url=str(self.landing)),
            "spark": self.lake.spark,
            "duckdb": self.lake.another_duckdb(),
        }
        declared = self.project.tables.definitions
        given = dg.Definitions(
            assets=declared.assets, asset_checks=declared.asset_checks if checks else None, resources=resources
        )
        job = given.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def rows(self, layer: str, columns: str, table: str = "orders") -> list[tuple[Any, ...]]:
        found = self.lake.quick(f"SELECT {columns} FROM {self.project.schema(layer)}.{table} ORDER BY 1")
        return [tuple(row.values()) for row in found]


@pytest.fixture
def shop(lake: Lakehouse, project: Project, tmp_path: Path) -> Iterator[Shop]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Shop(lake, project, tmp_path, instance)


def metadata(done: dg.ExecuteInProcessResult, layer: str, table: str = "orders") -> dict[str, Any]:
    found = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    (made,) = [each for each in found if each.asset_key.path[1].startswith(layer) and each.asset_key.path[2] == table]
    return {name: value.value for name, value in made.metadata.items()}


def failed_checks(done: dg.ExecuteInProcessResult) -> set[str]:
    """The checks that failed, but for the maintenance of the ledger, which the loads of all tests fill with small files."""
    ledger = (asset_key(LANDED_FILES), MAINTAINED)
    checks = [check for check in done.get_asset_check_evaluations() if (check.asset_key, check.check_name) != ledger]
    return {check.check_name for check in checks if not check.passed}


def causes(done: dg.ExecuteInProcessResult) -> dict[str, str]:
    """The first cause of each failed step, by the table that the step makes."""
    found = dict[str, str]()
    for event in done.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            while error and error.cause:
                error = error.cause
            found[str(event.step_key).partition("__")[2]] = error.message if error else ""
    return found
