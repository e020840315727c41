"""The sensors of tables with partitions and of what reads one, on declared projects and a real instance."""

import importlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.definitions.sensors import whole_table_sensor as module
from ratify_lakehouse.definitions.sensors.whole_table_sensor import (
    definitions_of_whole_tables,
    whole_assets,
    whole_table_sensor,
)
from resources.project_resources import RESOURCES

ORDERS = """type: ratify_lakehouse.LandedFiles
attributes:
  description: Orders
  pattern: shop/*.csv
  columns: [{name: day, type: date}, {name: amount, type: int}]
"""
DAYS = """type: ratify_lakehouse.SqlTable
attributes:
  description: Days
  keys: [day]
  change_data_feed: true
  strategy: partition
  partitions: {column: day, daily: {start: 2026-01-01}}
"""
GOOD = """type: ratify_lakehouse.SqlTable
attributes:
  description: Days with a sum
  keys: [day]
  expectations: [{name: positive, expect: amount > 0, action: quarantine}]
"""
TRAIL = "type: ratify_lakehouse.AuditTrail\nattributes: {description: Changes, table: silver.days, keys: [day]}\n"
TOPIC = TRAIL.replace("AuditTrail", "TopicFeed").replace("}", ", topic: days.changes}")
TENANTS = TRAIL.replace("AuditTrail", "TenantTables").replace("}", ", tenants: [{name: one, where: amount > 1}]}")
SYNC = """type: ratify_lakehouse.Sync
attributes:
  description: To the CRM
  source: {table: silver.days}
  destination: {table: serving.crm, create_if_missing: true}
  strategy: merge
  keys: [day]
"""
IN_PYTHON = """import dagster as dg


@dg.asset(deps=[["ratify", "silver", "days"]])
def by_hand() -> None: ...


@dg.asset(deps=[["ratify", "silver", "days"]], automation_condition=dg.AutomationCondition.on_cron("@daily"))
def by_cron() -> None: ...
"""
READERS = {
    "gold/good": GOOD,
    "gold/trail": TRAIL,
    "gold/tenants": TENANTS,
    "feeds/changes": TOPIC,
    "syncs/crm": SYNC,
    "syncs/nightly": SYNC.replace("serving.crm", "serving.nightly") + '  schedule: "0 3 * * *"\n',
}
Project = Callable[..., DeclaredTables]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Project]:
    """Writes a project of `bronze.orders`, `silver.days` and more declarations, and makes it that of the sensors."""
    root = tmp_path / f"days_{tmp_path.name}"
    (root / "gold").mkdir(parents=True)
    (root / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**declarations: str) -> DeclaredTables:
        for folder, declaration in {"bronze/orders": ORDERS, "silver/days": DAYS, **declarations}.items():
            (path := root / folder).mkdir(parents=True)
            (path / "defs.yaml").write_text(declaration)
        query = "SELECT day, sum(amount) AS amount FROM bronze.orders GROUP BY day"
        (root / "silver" / "days" / "days.sql").write_text(query)
        for folder in set(declarations).intersection({"gold/good", "gold/later"}):
            (root / folder / f"{Path(folder).name}.sql").write_text("SELECT day, amount FROM silver.days")
        (root / "gold" / "assets_in_python.py").write_text(IN_PYTHON)
        tables = DeclaredTables(importlib.import_module(root.name))
        tables.check_inputs()
        monkeypatch.setattr(module, "declared_tables", lambda: tables)
        return tables

    definitions_of_whole_tables.cache_clear()
    yield write
    definitions_of_whole_tables.cache_clear()
    sys.modules.pop(root.name, None)


class Daemon:
    """Evaluates the sensors on one instance, each on its stored cursor."""

    def __init__(self, tables: DeclaredTables, instance: dg.DagsterInstance) -> None:
        self.sensors = {sensor.name: sensor for sensor in map(whole_table_sensor, whole_assets())}
        given = dg.Definitions(sensors=list(self.sensors.values()), resources=RESOURCES)
        self.repository = dg.Definitions.merge(tables.definitions, given).get_repository_def()
        self.instance = instance
        self.cursors: dict[str, str | None] = {}
        self.skipped: dict[str, str | None] = {}

    def materialize(self, schema: str, table: str, version: int) -> None:
        """Report a version of a table, and that its checks passed."""
        key = dg.AssetKey(["ratify", schema, table])
        tags = {"dagster/data_version": str(version), "dagster/data_version_is_user_provided": "true"}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(key, tags=tags))
        for check in self.repository.asset_graph.asset_check_keys:
            if check.asset_key == key:
                passed = dg.AssetCheckEvaluation(asset_key=key, check_name=check.name, passed=True, metadata={})
                self.instance.report_runless_asset_event(passed)

    def tick(self) -> dict[str, list[str]]:
        """Return what each sensor requests; a run of it can be started."""
        requested = dict[str, list[str]]()
        for name, sensor in self.sensors.items():
            with dg.build_sensor_context(
                instance=self.instance, cursor=self.cursors.get(name), repository_def=self.repository
            ) as context:
                tick = sensor.evaluate_tick(context)
            self.cursors[name], self.skipped[name] = tick.cursor or self.cursors.get(name), tick.skip_message
            for request in tick.run_requests or []:
                keys = request.asset_selection or []
                self.repository.get_implicit_global_asset_job_def().get_subset(asset_selection=set(keys))
                requested[name] = [key.to_user_string() for key in keys]
        return requested


def test_one_run_makes_all_of_an_asset_when_its_input_is_new(project: Project) -> None:
    readers = {
        "feeds__changes_whole": ["kafka/days.changes"],
        "gold__good_whole": ["ratify/gold/good", "ratify/gold/good_quarantine"],
        "gold__tenants_one_whole": ["ratify/gold/tenants_one"],
        "gold__trail_whole": ["ratify/gold/trail"],
        "syncs__crm_whole": ["syncs/crm"],
    }
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(project(**READERS), instance)
        # What has a schedule, another condition or none is not requested.
        assert {*daemon.sensors} == {"silver__days_whole", *readers}
        assert daemon.tick() == {}
        daemon.materialize("bronze", "orders", 1)
        assert daemon.tick() == {"silver__days_whole": ["ratify/silver/days"]}
        daemon.materialize("silver", "days", 1)
        assert daemon.tick() == readers
        assert daemon.tick() == {}
        daemon.materialize("silver", "days", 1)
        assert daemon.tick() == {}
        daemon.materialize("silver", "days", 2)
        assert daemon.tick() == readers


def test_conditions_of_others_stay(project: Project) -> None:
    defs = dg.Definitions.merge(project(**READERS).definitions, dg.Definitions(resources=RESOURCES))
    specs = {spec.key.path[-1]: spec for spec in defs.resolve_all_asset_specs()}
    assert [name for name, spec in specs.items() if spec.automation_condition] == ["by_cron"]
    assert specs["days"].partitions_def is not None


def test_before_the_first_day_nothing_is_requested(project: Project) -> None:
    later = DAYS.replace("2026-01-01", "2999-01-01")
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(project(**{"gold/later": later}), instance)
        daemon.tick()
        daemon.materialize("bronze", "orders", 1)
        daemon.materialize("silver", "days", 1)
        assert "gold__later_whole" not in daemon.tick()
        assert daemon.skipped["gold__later_whole"] == "The first partition begins on 2999-01-01."
        # The cursor stays: what is new by then is requested on that day.
        assert daemon.cursors["gold__later_whole"] is None
