"""Tables that are declared in YAML, as a user writes them: from files with odd headers to gold, without Python."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import yaml

from components.checks.care_checks import TABLE_CARE
from components.table_asset import COMMITS, asset_key
from components.yaml_tables import DeclaredTables
from ingest.ledger.file_ledger import LANDED_FILES
from resources.errors import TableMissing
from resources.landing.landing_zone import LandingZone
from tests.resources.lakehouse import Lakehouse

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
    """The checks that failed, but for the care of the ledger, which the loads of all tests fill with small files."""
    ledger = (asset_key(LANDED_FILES), TABLE_CARE)
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


@pytest.mark.stack
def test_files_with_odd_headers_become_gold(shop: Shop) -> None:
    """Three tables of one name, in schemas of any name; rows that break a rule are kept; the row that landed last wins."""
    shop.project.shop()
    shop.land("1.csv", LANDED.removeprefix(ORDERS))
    done = shop.run()
    assert done.success, [event for event in done.all_events if event.is_failure]
    assert failed_checks(done) == {"amount_is_positive", "customer_is_given"}
    assert shop.rows("silver", "order_id, customer, CAST(amount AS STRING)") == [
        (1, "Ann", "2.50"),
        (2, "Bob", "3.00"),
        (4, None, "4.00"),
    ]
    ((rule, row, rows),) = shop.rows("silver", "rule, row, rows", "orders_quarantine")
    assert (rule, rows) == ("amount_is_positive", 1)
    assert {name: json.loads(row)[name] for name in ("order_id", "customer", "amount")} == {
        "order_id": 3,
        "customer": "Cid",
        "amount": -1.0,
    }
    assert shop.rows("gold", "CAST(day AS STRING), orders, CAST(amount AS STRING)") == [
        ("2026-01-01", 2, "5.50"),
        ("2026-01-02", 1, "4.00"),
    ]
    bronze, silver = metadata(done, "bronze"), metadata(done, "silver")
    assert [column.name for column in bronze["dagster/column_schema"].columns][:4] == [
        "order_id",
        "customer_name",
        "amount_eur",
        "placed_at",
    ]
    columns = {column.name: column for column in silver["dagster/column_schema"].columns}
    assert {name: column.type for name, column in columns.items()} == {
        "order_id": "bigint",
        "customer": "string",
        "amount": "decimal(10,2)",
        "day": "date",
    }
    assert [name for name, column in columns.items() if "pii" in column.tags] == ["customer"]
    preview = [row.data for row in silver["preview"].records]
    assert [set(row) for row in preview] == [{"order_id", "amount", "day"}] * 3
    assert silver["last commit"].endswith(": MERGE by Spark")
    assert silver["seconds"] > 0
    lineage = silver["dagster/column_lineage"].deps_by_column
    origins = {name: [(dep.asset_key.path[-1], dep.column_name) for dep in deps] for name, deps in lineage.items()}
    assert origins["customer"] == [("orders", "customer_name")]
    assert origins["day"] == [("orders", "placed_at")]


@pytest.mark.stack
def test_only_what_differs_is_committed(shop: Shop) -> None:
    shop.project.shop()
    shop.land("1.csv", "1,Ann,2.50,2026-01-01\n2,Bob,3.00,2026-01-01\n3,Cid,0,2026-01-03\n")
    assert shop.run(checks=False).success
    again = shop.run(checks=False)
    assert again.success
    assert [metadata(again, layer)[COMMITS]["versions"] for layer in ("silver", "gold")] == [[], []]
    # A correction that landed later wins, whatever its name; the row in quarantine is taken back.
    shop.land("0.csv", "2,Bob,4.00,2026-01-02\n3,Cid,5,2026-01-03\n")
    corrected = shop.run(checks=False)
    assert corrected.success
    assert failed_checks(corrected) == {"amount_is_positive", "one_row_for_each_key"}
    assert shop.rows("silver", "order_id, CAST(amount AS STRING)") == [(1, "2.50"), (2, "4.00"), (3, "5.00")]
    assert shop.rows("gold", "CAST(day AS STRING), orders") == [("2026-01-01", 1), ("2026-01-02", 1), ("2026-01-03", 1)]
    # A column more in the query is one more in the table.
    shop.project.write(
        "silver", "orders", SILVER, SILVER_SQL.replace("SELECT order_id,", "SELECT order_id, 'EUR' AS currency,")
    )
    assert shop.run(checks=False).success
    assert shop.rows("silver", "DISTINCT currency") == [("EUR",)]


@pytest.mark.stack
def test_nothing_is_written_that_is_not_as_declared(shop: Shop) -> None:
    wrong = {
        "types": (SILVER, SILVER_SQL.replace("AS DECIMAL(10, 2)", "AS DOUBLE")),
        "keys": (SILVER.replace("unique: {latest: [_landing, _source_row]}", ""), SILVER_SQL),
        "values": (SILVER.replace("action: quarantine", "action: fail"), SILVER_SQL),
        "columns": (SILVER, SILVER_SQL.replace("customer_name", "customer_nme")),
    }
    shop.project.write("bronze", "orders", BRONZE)
    for table, (declaration, sql) in wrong.items():
        shop.project.write("silver", table, declaration, sql)
    shop.land("1.csv", "1,Ann,2.50,2026-01-01\n1,Ann,3,2026-01-01\n1,Ann,-2,2026-01-01\n")
    found = causes(shop.run(checks=False))
    assert "column amount: its declared type is decimal(10,2), but the query gives double; write CAST(" in found["types"]
    assert "have the same order_id: order_id=1. Name the keys" in found["keys"]
    assert "fail amount_is_positive; nothing was written" in found["values"]
    assert "customer_nme" in found["columns"]
    for table in wrong:
        with pytest.raises(TableMissing):
            shop.lake.catalog.table(f"ratify.{shop.project.schema('silver')}.{table}")


PYTHON = """import dagster as dg


@dg.asset
def largest_order() -> None: ...


@dg.asset_check(asset=largest_order)
def is_large() -> bool:
    return True
"""


def test_an_asset_in_python_needs_no_registration(project: Project) -> None:
    """Beside the folders of declared tables, in one of them, or in a schema of its own; a folder that is left out is not
    even imported."""
    project.shop()
    gold = project.write("gold", "orders", GOLD, GOLD_SQL)
    (gold.parent / "largest.py").write_text(PYTHON)
    (gold.parent / "customers").mkdir()
    (gold.parent / "customers" / "largest.py").write_text(PYTHON.replace("largest_order", "largest_customer"))
    (project.root / "extra").mkdir()
    (project.root / "extra" / "further.py").write_text(PYTHON.replace("largest_order", "further"))
    (project.root / "other").mkdir()
    (project.root / "other" / "broken.py").write_text("raise ValueError")
    (project.root / "empty").mkdir()
    package = importlib.import_module(project.root.name)
    tables = DeclaredTables(package, without=("other",))
    assert {"/".join(key.path) for key in tables.keys} >= {"largest_order", "largest_customer", "further"}
    assert len(tables.keys) == 7
    checked = {"/".join(key.asset_key.path) for key in tables.checks if key.name == "is_large"}
    assert checked == {"largest_order", "largest_customer", "further"}
    with pytest.raises(ValueError, match=r"^$"):
        assert DeclaredTables(package).keys


@pytest.mark.server
def test_the_commands_of_the_page_write_tables_that_load(tmp_path: Path) -> None:
    """`dg scaffold defs` in a project of its own; `dg check yaml` names the line and the field of a mistake."""
    root = Path(__file__).parents[2]
    shutil.copy(root / "pyproject.toml", tmp_path)
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "__init__.py").touch()
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith(".venv/bin/dg scaffold")]
    assert len(commands) == 7
    for command in commands:
        dg_command(tmp_path, *(word.strip("'") for word in command))
    written = {path.relative_to(tmp_path / "assets").as_posix(): path for path in tmp_path.glob("assets/*/*/*")}
    assert set(written) == {
        *("bronze/orders/defs.yaml", "silver/orders/defs.yaml", "silver/orders/orders.sql"),
        *("bronze/clicks/defs.yaml", "silver/clicks/defs.yaml", "silver/clicks/clicks.sql"),
        *("gold/clicks_minute/defs.yaml", "gold/clicks_minute/clicks_minute.sql"),
        *("feeds/orders/defs.yaml", "syncs/orders/defs.yaml"),
    }
    assert yaml.safe_load(written["bronze/orders/defs.yaml"].read_text())["attributes"]["pattern"] == "shop/*.csv"
    assert "validated successfully" in dg_command(tmp_path, "check", "yaml")
    bronze = written["bronze/orders/defs.yaml"]
    bronze.write_text(bronze.read_text().replace("pattern", "patern"))
    found = dg_command(tmp_path, "check", "yaml", succeeds=False)
    assert re.search(r"assets/bronze/orders/defs.yaml:\d+ - components.LandedFiles.*'patern' was unexpected", found), found


def dg_command(folder: Path, *arguments: str, succeeds: bool = True) -> str:
    program = str(Path(sys.executable).with_name("dg"))
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
    return done.stdout + done.stderr
