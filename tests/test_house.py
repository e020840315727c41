"""The house itself: which way imports go, who reads the environment, what the definitions hold."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.checks.definitions import DECLARATIONS
from orchestration.definitions import defs

ROOT = Path(__file__).parents[1]
LOWER = {
    "orchestration": {"assets", "resources", "embedded"},
    "assets": {"resources"},
    "resources": set[str](),
    "embedded": set[str](),
}
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def imports(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found & set(LOWER)


@pytest.mark.parametrize("package", LOWER)
def test_imports_go_one_way(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        allowed = LOWER[package] | {package}
        if package == "orchestration" and "cli" not in path.parts:
            allowed = allowed - {"embedded"}
        assert imports(path) <= allowed, path


def test_one_module_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for package in ("resources", "assets", "orchestration")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text())
    }
    # It hands its own environment on to the processes that it starts.
    assert readers <= {"orchestration/cli/dev.py"}


def test_both_entry_points_name_the_same_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"][0]["python_module"]
    assert project["code_location_target_module"] == workspace["module_name"]


def test_definitions_import_without_engines_network_or_environment() -> None:
    heavy = "{'pyspark', 'duckdb_extensions', 'databricks', 'delta', 'pandas', 'fsspec', 's3fs'}"
    code = f"import sys, orchestration.definitions; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_lock_and_resolver_files_hold_no_address() -> None:
    for name in ("requirements.lock", "embedded/ivy.xml", "embedded/ivysettings.xml"):
        text = re.sub(r"http://(www\.w3\.org|ant\.apache\.org|www\.apache\.org)\S*", "", (ROOT / name).read_text())
        assert "://" not in text, name


def test_no_file_holds_a_path_of_a_machine() -> None:
    pattern = re.compile(r"(^|[^A-Za-z0-9._-])/(work|home|Users)/[a-z]")
    for name in TRACKED:
        if name.endswith((".py", ".md", ".toml", ".yaml", ".sql", ".scala", ".xml")) and name != "tests/test_house.py":
            assert not pattern.search((ROOT / name).read_text()), name


def test_asset_keys_are_full_names_with_policies() -> None:
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    for declaration in DECLARATIONS:
        spec = specs[dg.AssetKey(declaration.full_name("ratify").split("."))]
        assert spec.metadata["dagster/table_name"] == declaration.full_name("ratify")
        assert spec.owners == ["team:data-platform"]
        assert spec.freshness_policy is not None
        assert (spec.automation_condition is not None) == (declaration.layer in {"silver", "gold"})


def test_asset_graph() -> None:
    graph = {
        spec.key.to_user_string().removeprefix("ratify/"): sorted(
            dep.asset_key.to_user_string().removeprefix("ratify/") for dep in spec.deps
        )
        for spec in defs.resolve_all_asset_specs()
        if spec.key.path[0] == "ratify"
    }
    bronze = {name: [f"landing/{name}"] for name in ("flights_raw", "airlines", "airports", "planes", "weather")}
    assert graph == {
        **{f"bronze/{name}": deps for name, deps in bronze.items()},
        "silver/flights": ["bronze/airports", "bronze/flights_raw"],
        "silver/flights_quarantine": ["bronze/airports", "bronze/flights_raw"],
        "silver/flights_weather": ["bronze/weather", "silver/flights"],
        "gold/carrier_daily": ["bronze/airlines", "silver/flights"],
        "gold/route_delay": ["bronze/airports", "silver/flights"],
        "gold/airport_hourly": ["silver/flights", "silver/flights_weather"],
        "gold/carrier_daily_snapshot": ["silver/flights"],
        "ops/landed_files": sorted(f"bronze/{name}" for name in bronze),
    }


def test_column_lineage_names_columns_that_exist() -> None:
    columns = {(d.layer, d.name): set(d.column_names) for d in DECLARATIONS}
    for declaration in DECLARATIONS:
        for column in declaration.columns:
            for source in column.sources:
                layer, table, name = source.split(".")
                assert name in columns[layer, table], f"{declaration.name}.{column.name} comes from {source}"
