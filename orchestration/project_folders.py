"""The project that commands are run in: its root, and the package whose folders declare its tables.

pyproject.toml names that package, as `dg` reads it too. Outside of any project they are those of the distribution.
"""

import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

_SAMPLE = "assets"


@cache
def project_root() -> Path:
    """Return the nearest folder, from the current one upwards, that is a project's root; else that of these packages."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _declaring_package(folder)), Path(__file__).parents[1])


@cache
def declaring_package() -> ModuleType:
    """Return the package whose folders declare the project's tables."""
    root = project_root()
    if str(root) not in sys.path:
        # Where the project is not installed.
        sys.path.insert(0, str(root))
    return import_module(_declaring_package(root) or _SAMPLE)


def is_sample() -> bool:
    """Return whether the tables are those of the sample that this distribution comes with."""
    return declaring_package().__name__ == _SAMPLE


def _declaring_package(folder: Path) -> str:
    """The package that a folder's pyproject.toml names; empty where the folder is no project's root."""
    pyproject = folder / "pyproject.toml"
    if not pyproject.is_file():
        return ""
    project = tomllib.loads(pyproject.read_text()).get("tool", {}).get("dg", {}).get("project", {})
    return str(project.get("defs_module", ""))
