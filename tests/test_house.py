"""The rules of the whole tree: who imports whom, who reads the environment, what the one entry point defines."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import dagster as dg
import pytest

from orchestration.definitions import defs
from ratify_lakehouse.definitions import proof_definitions
from tests.tracked_files import tracked

ROOT = Path(__file__).parents[1]
LIBRARY = "ratify_lakehouse"
PROJECT = ("orchestration", "assets", "resources")
PACKAGES = (*PROJECT, LIBRARY)
CLI = f"{LIBRARY}/cli/"
BIN = Path(sys.executable).parent

# The steps of the cross-engine proof: each waits for all before it, and materializes the tables that it makes or itself.
TPCH = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
PROOF = (
    tuple(f"ratify/tpch/{table}" for table in TPCH),
    ("cross_engine/duckdb_read",),
    ("cross_engine/duckdb_insert",),
    ("cross_engine/spark_read",),
    ("ratify/tpch/orders_summary",),
    ("ratify/tpch/orders_stream",),
    ("ratify/tpch/orders_flink",),
    ("cross_engine/verify",),
    ("cross_engine/cleanup",),
)


@cache
def modules(package: str) -> list[tuple[str, ast.Module]]:
    paths = sorted((ROOT / package).rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a module: to walk through the modules takes half a second."""
    return [*ast.walk(tree)]


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports, at its top or inside of functions."""
    names = set[str]()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def reads_environment(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "getenvb"})
        or (
            isinstance(node, ast.ImportFrom) and node.module == "os" and {a.name for a in node.names} & {"environ", "getenv"}
        )
        for node in nodes(tree)
    )


def test_imports_go_one_way() -> None:
    """The contracts of `[tool.importlinter]` in pyproject.toml."""
    run = subprocess.run([BIN / "lint-imports"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


# From top to bottom; below them, each folder of the library is a thing of the outside world.
ROOMS = ("cli", "definitions", "proof", "components", "ingest", "engines")


def named_modules(tree: ast.Module) -> set[str]:
    """The modules of ours that strings name whole, as the command that starts one does."""
    words = {node.value for node in nodes(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {word for word in words if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", word) and is_module(word)}


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def may_name(path: str, module: str) -> bool:
    (package, room), (other_package, other) = path.split("/")[:2], module.split(".")[:2]
    if LIBRARY not in (package, other_package):
        return True
    if package != other_package:
        return other_package == LIBRARY
    if "embedded" in (room, other):
        return room == other or path.startswith(CLI)
    return level(room) <= level(other)


def level(room: str) -> int:
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def test_a_module_that_is_started_by_its_name_counts_as_imported() -> None:
    named = [(path, name) for package in PACKAGES for path, tree in modules(package) for name in named_modules(tree)]
    assert ("ratify_lakehouse/embedded/embedded_stack.py", "ratify_lakehouse.embedded.stack_process") in named
    assert [(path, name) for path, name in named if not may_name(path, name)] == []
    assert named_modules(ast.parse("run(['-m', 'ratify_lakehouse.embedded.catalog', 'a.b'])")) == {
        "ratify_lakehouse.embedded.catalog"
    }
    assert not may_name("ratify_lakehouse/settings.py", "ratify_lakehouse.embedded.catalog")
    assert not may_name("ratify_lakehouse/ingest/file_source.py", "ratify_lakehouse.components.table_asset")
    assert not may_name("ratify_lakehouse/definitions/aws_lambda.py", "orchestration.definitions")
    assert may_name("orchestration/definitions.py", "ratify_lakehouse.definitions.aws_lambda")


MOST_LINES = 350
# Names that Python or pytest gives.
GIVEN_NAMES = {"__init__.py", "__main__.py", "conftest.py"}


def sources(*suffixes: str) -> list[Path]:
    return [path for path in tracked() if path.suffix in suffixes]


def test_no_module_is_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in sources(".py", ".scala")}
    assert len(lengths) > 300
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_a_module_is_known_by_its_name_alone_and_a_class_by_its_own() -> None:
    files = [path.name for path in sources(".py", ".scala") if path.name not in GIVEN_NAMES]
    assert [name for name, count in Counter(files).items() if count > 1] == []
    classes = Counter(
        name for path in sources(".py") for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    )
    assert classes["TableDeclaration"] == 1
    assert [name for name, count in classes.items() if count > 1] == []


def test_only_the_settings_read_the_environment() -> None:
    readers = [path for package in PACKAGES for path, tree in modules(package) if reads_environment(tree)]
    assert [path for path in readers if not path.startswith((CLI, f"{LIBRARY}/embedded/", f"{LIBRARY}/settings.py"))] == []
    assert reads_environment(ast.parse("import os\nos.environ['A']"))
    assert reads_environment(ast.parse("from os import getenv"))


def test_no_postponed_annotations() -> None:
    """Dagster reads the annotations of assets, checks, sensors and resources at run time."""
    postponed = [path for package in PACKAGES for path, tree in modules(package) if "__future__" in imported(tree)]
    assert postponed == []


def test_dg_and_the_workspace_name_the_code_locations() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    workspace = re.findall(r"^\s*module_name:\s*(\S+)", (ROOT / "workspace.yaml").read_text(), re.MULTILINE)
    assert workspace == ["orchestration.definitions", "ratify_lakehouse.definitions.proof_definitions"]
    assert project["code_location_target_module"] == workspace[0]


@pytest.mark.server
def test_definitions_load_without_any_engine_and_without_settings(tmp_path: Path) -> None:
    program = (
        "import json, sys; import orchestration.definitions as d; d.defs.resolve_all_asset_specs(); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    there = ["assets", "orchestration", "pyproject.toml", "resources"]
    for name in there:
        (tmp_path / name).symlink_to(ROOT / name)
    environ = {"PYTHONPATH": str(ROOT)} | {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    engines = {"pyspark", "duckdb", "databricks", "delta", "grpc", "pandas", "confluent_kafka"}
    loaded = json.loads(run.stdout)
    assert engines & {name.partition(".")[0] for name in loaded} == set()
    assert [name for name in loaded if name.startswith(f"{LIBRARY}.embedded")] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_no_file_holds_a_path_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.:/])/(?:home|Users|root|work|mnt)/\w|[A-Z]:\\\\Users")
    assert machine.search(f"cd /{'home'}/ada/ratify")
    wrong = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in tracked()
        if (found := machine.search(text := path.read_text(errors="replace"))) or str(ROOT) in text
    ]
    assert wrong == []


def test_messages_and_documents_name_the_distribution_and_its_extras() -> None:
    """`ratify` on the package index is somebody else's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.compile(r"\b(ratify[\w-]*)\[([a-z0-9,]+)\]")
    found = {match.groups() for path in tracked() for match in named.finditer(path.read_text(errors="replace"))}
    assert {name for name, _ in found} == {project["name"]}
    assert {extra for _, extras in found for extra in extras.split(",")} <= set(project["optional-dependencies"])


def test_the_lock_names_packages_by_version_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert packages
    assert [line for line in packages if "://" in line or "@" in line or "index" in line] == []
    assert [line for line in packages if not re.match(r"^[A-Za-z0-9._\[\]-]+==\S+", line)] == []


# The tables that ship are an example. Everything else works for any tables, and names none of theirs.
SAMPLE_WORDS = ("flights?", "airports?", "airlines?", "carriers?", "aircrafts?", "planes", "tailnum", "weather", "trackers?")
SAMPLE = re.compile(rf"(?<![a-z])(?:{'|'.join(SAMPLE_WORDS)})(?![a-z])", re.IGNORECASE)
SAMPLE_PLACES = (
    "assets/bronze/",
    "assets/silver/",
    "assets/gold/",
    "assets/syncs/",
    "bench/",
    "tests/sample/",
    "tests/smoke/",
    *(f"{CLI}{name}.py" for name in ("flights_demo", "sample_flights", "demo_command", "land_command")),
    *(f"{CLI}{name}.py" for name in ("streaming_demo", "simulate_command")),
    # The simulator's command, and the files of tests that have a place of their own.
    "tests/cli/test_cli.py",
    "tests/conftest.py",
    "tests/test_house.py",
)


def test_only_the_sample_and_its_demo_name_the_sample() -> None:
    assert SAMPLE.search("silver.flights_raw")
    assert not SAMPLE.search("explanes")
    files = {path.relative_to(ROOT).as_posix(): path for path in sources(".py", ".sql", ".yaml", ".yml")}
    assert all(any(name.startswith(place) for name in files) for place in SAMPLE_PLACES)
    named = [
        f"{name}:{number}: {line.strip()}"
        for name, path in files.items()
        if not name.startswith(SAMPLE_PLACES)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SAMPLE.search(line)
    ]
    assert named == []


def inputs(spec: dg.AssetSpec) -> list[str]:
    return sorted(dep.asset_key.to_user_string() for dep in spec.deps)


def test_each_step_of_the_proof_waits_for_all_before_it() -> None:
    specs = {spec.key.to_user_string(): spec for spec in proof_definitions.defs.resolve_all_asset_specs()}
    found = {key: spec for key, spec in specs.items() if spec.group_name == "cross_engine"}
    earlier = list[str]()
    for step in PROOF:
        for key in set(step) & set(found):
            assert inputs(found.pop(key)) == sorted(earlier)
        earlier += step
    assert not found
    assert set(inputs(specs["ratify/ops/cross_engine_steps"])) < set(earlier)


def test_asset_keys_are_the_full_names_of_tables() -> None:
    every = [*defs.resolve_all_asset_specs(), *proof_definitions.defs.resolve_all_asset_specs()]
    tables = [spec for spec in every if spec.group_name not in {"landing", "kafka", "cross_engine", "syncs"}]
    assert len(tables) == 24
    for spec in tables:
        assert ".".join(spec.key.path) == spec.metadata["dagster/table_name"]
        assert spec.key.path[1] == spec.group_name
        assert spec.owners
        assert spec.description


def test_every_table_has_its_layers_policies() -> None:
    for spec in defs.resolve_all_asset_specs():
        # Tables with partitions have a sensor in place of a condition, and so have those that read Kafka.
        by_sensor = spec.partitions_def is not None or any(dep.asset_key.path[0] == "kafka" for dep in spec.deps)
        automated = spec.group_name in {"silver", "gold", "syncs"} and not by_sensor
        assert bool(spec.automation_condition) == automated, spec.key
        assert bool(spec.freshness_policy) == (spec.group_name in {"bronze", "silver", "gold", "syncs"}), spec.key


def test_every_job_has_its_steps() -> None:
    """Two steps of one name are found only when a job is resolved."""
    names = {
        "medallion",
        "ingest",
        "events",
        "files",
        "full_checks",
        "maintenance",
        "clean",
        "reprocess",
        "reprocess_checks",
    }
    assert names <= {job.name for job in defs.get_repository_def().get_all_jobs()}
    assert "cross_engine_proof" in {job.name for job in proof_definitions.defs.get_repository_def().get_all_jobs()}


def test_everything_runs_without_being_switched_on() -> None:
    repository = defs.get_repository_def()
    assert {s.name: s.default_status.value for s in repository.sensor_defs} == {
        "automation": "RUNNING",
        "landed_files_sensor": "RUNNING",
        "bronze__tracker_events_raw_lag": "RUNNING",
        "gold__heart_rate_minute_flink_lag": "RUNNING",
        "gold__airport_daily_whole": "RUNNING",
        "reprocess_checks_sensor": "RUNNING",
    }
    assert {s.name: s.default_status.value for s in repository.schedule_defs} == {
        "daily_maintenance": "RUNNING",
        "cleaning": "RUNNING",
        "hourly": "RUNNING",
        "nightly": "RUNNING",
        "weekly": "RUNNING",
    }
