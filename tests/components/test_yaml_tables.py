"""Tables that are declared in YAML, as a user writes them: from files with odd headers to gold, without Python."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.errors import TableMissing
from tests.components.begun_tables import begin_declared
from tests.components.declared_projects import (
    BRONZE,
    FILES,
    GOLD,
    GOLD_SQL,
    LANDED,
    ORDERS,
    PAGE,
    SILVER,
    SILVER_SQL,
    Project,
    Shop,
    causes,
    failed_checks,
    metadata,
    project,
    shop,
)

# Other test modules take these from here.
__all__ = [
    "BRONZE",
    "FILES",
    "GOLD",
    "GOLD_SQL",
    "LANDED",
    "ORDERS",
    "PAGE",
    "SILVER",
    "SILVER_SQL",
    "Project",
    "Shop",
    "causes",
    "failed_checks",
    "metadata",
    "project",
    "shop",
]


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
def test_files_with_odd_headers_become_gold(shop: Shop) -> None:
    """Three tables of one name, in schemas of any name; rows that break a rule are kept; the row that landed last wins."""
    shop.project.shop()
    newest = GOLD_SQL.replace("SELECT ", "SELECT max(customer) AS greatest, count(DISTINCT customer) AS customers, ", 1)
    customers = "  columns: [{name: customers, pii: false}]\n"
    shop.project.write("gold", "orders", f"{GOLD}{customers}  engine: duckdb\n", newest)
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
    # What is computed from a personal column is shown nowhere, unless it says so.
    gold, quarantine = metadata(done, "gold"), metadata(done, "silver", "orders_quarantine")
    assert {name for row in gold["preview"].records for name in row.data} == {"day", "orders", "amount", "customers"}
    assert [row.data for row in quarantine["preview"].records] == [{"rule": "amount_is_positive", "rows": 1}]
    examples = [
        check.metadata["examples"].value for check in done.get_asset_check_evaluations() if "examples" in check.metadata
    ]
    assert examples
    assert not [example for example in examples if "Cid" in str(example)]
    assert silver["last commit"].endswith(": MERGE by Spark")
    assert silver["seconds"] > 0
    lineage = silver["dagster/column_lineage"].deps_by_column
    origins = {name: [(dep.asset_key.path[-1], dep.column_name) for dep in deps] for name, deps in lineage.items()}
    assert origins["customer"] == [("orders", "customer_name")]
    assert origins["day"] == [("orders", "placed_at")]


# That a MERGE of equal rows makes no version: `test_older_inputs_do_not_win_by_spark` has it, too.
@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation", "no_previews")
@pytest.mark.parametrize("run_again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_only_what_differs_is_committed(shop: Shop, *, run_again: bool) -> None:
    shop.project.write("bronze", "orders", BRONZE)
    shop.land("1.csv", "1,Ann,2.50,2026-01-01\n2,Bob,3.00,2026-01-01\n3,Cid,0,2026-01-03\n")
    assert shop.run(checks=False).success
    shop.project.shop()
    # What Spark does is seen in silver.
    shop.project.write("gold", "orders", f"{GOLD}  engine: duckdb\n", GOLD_SQL)
    silver = shop.project.tables.components[f"{shop.project.schema('silver')}.orders"]
    assert isinstance(silver, SqlTable)
    begin_declared(shop.lake, silver, "VALUES (1, 'Ann', 2.50, '2026-01-01'), (2, 'Bob', 3.00, '2026-01-01')")
    if run_again:
        again = shop.run(checks=False)
        assert again.success
        assert [metadata(again, layer)[COMMITS]["versions"] for layer in ("silver", "gold")] == [[], [0, 1]]
        assert len(shop.rows("silver", "rule", "orders_quarantine")) == 1
    # A correction that landed later wins, whatever its name; the row in quarantine is taken back.
    shop.land("0.csv", "2,Bob,4.00,2026-01-02\n3,Cid,5,2026-01-03\n")
    # A column more in the query is one more in the table.
    shop.project.write(
        "silver", "orders", SILVER, SILVER_SQL.replace("SELECT order_id,", "SELECT order_id, 'EUR' AS currency,")
    )
    corrected = shop.run(checks=False)
    assert corrected.success
    # A row that is superseded by its correction fails nothing.
    assert failed_checks(corrected) == {"amount_is_positive"}
    assert shop.rows("silver", "order_id, CAST(amount AS STRING)") == [(1, "2.50"), (2, "4.00"), (3, "5.00")]
    assert shop.rows("gold", "CAST(day AS STRING), orders") == [("2026-01-01", 1), ("2026-01-02", 1), ("2026-01-03", 1)]
    assert shop.rows("silver", "DISTINCT currency") == [("EUR",)]
    assert len(shop.rows("silver", "rule", "orders_quarantine")) == 1


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
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
    assert "column amount: its declared type is decimal(10,2), but the query returns double; write CAST(" in found["types"]
    assert "have the same order_id: order_id=1. Name the keys" in found["keys"]
    assert "Nothing was written to" in found["values"]
    assert " amount_is_positive. Correct the source" in found["values"]
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
    (project.root / "empty").mkdir()
    package = importlib.import_module(project.root.name)
    tables = DeclaredTables(package)
    assert {"/".join(key.path) for key in tables.keys} >= {"largest_order", "largest_customer", "further"}
    assert len(tables.keys) == 7
    checked = {"/".join(key.asset_key.path) for key in tables.checks if key.name == "is_large"}
    assert checked == {"largest_order", "largest_customer", "further"}
    (project.root / "other").mkdir()
    (project.root / "other" / "broken.py").write_text("raise ValueError")
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
    every = [[word.strip("'") for word in command] for command in commands]
    said, _, found = in_python(tmp_path, ALL_COMMANDS, json.dumps([*every, ["check", "yaml"]])).partition(MISTAKE)
    assert "validated successfully" in said
    written = {path.relative_to(tmp_path / "assets").as_posix(): path for path in tmp_path.glob("assets/*/*/*")}
    assert set(written) == {
        *("bronze/orders/defs.yaml", "silver/orders/defs.yaml", "silver/orders/orders.sql"),
        *("bronze/clicks/defs.yaml", "silver/clicks/defs.yaml", "silver/clicks/clicks.sql"),
        *("gold/clicks_minute/defs.yaml", "gold/clicks_minute/clicks_minute.sql"),
        *("feeds/orders/defs.yaml", "syncs/orders/defs.yaml"),
    }
    assert yaml.safe_load(written["bronze/orders/defs.yaml"].read_text())["attributes"]["patern"] == "shop/*.csv"
    assert re.search(r"assets/bronze/orders/defs.yaml:\d+ - ratify_lakehouse.LandedFiles.*'patern' was unexpected", found), (
        found
    )


MISTAKE = "A field is written wrong."
# In one process, which loads the kinds of components once.
ALL_COMMANDS = f"""import json
import sys
from pathlib import Path

from dagster_dg_cli.cli import create_dg_cli

for arguments in json.loads(sys.argv[1]):
    create_dg_cli().main(arguments, standalone_mode=False)
print({MISTAKE!r}, flush=True)
bronze = Path("assets/bronze/orders/defs.yaml")
bronze.write_text(bronze.read_text().replace("pattern", "patern"))
try:
    create_dg_cli().main(["check", "yaml"])
except SystemExit as refused:
    assert refused.code
else:
    raise AssertionError
"""


def in_python(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", *arguments]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
