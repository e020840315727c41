"""The project that commands are run in: its root, the package whose folders declare its tables, and its definitions.

pyproject.toml names them, as `dg` reads it too.
"""

import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import ratify_lakehouse
from ratify_lakehouse.errors import NoProject, NotConfigured

_LIBRARY = Path(ratify_lakehouse.__file__).resolve().parent


@cache
def sample_root() -> Path:
    """Return the root of the sample, from which new projects are made: the checkout; in a wheel, a folder of the library."""
    packed = _LIBRARY / "sample"
    return packed if packed.is_dir() else _LIBRARY.parent


@cache
def project_root() -> Path:
    """Return the nearest folder, from the current one upwards, that is a project's root.

    Raises:
        NoProject: there is none.
    """
    here = Path.cwd()
    if root := next((folder for folder in (here, *here.parents) if _settings(folder)), None):
        return root
    raise NoProject(
        f"Neither {here} nor a folder above it has a pyproject.toml with [tool.dg.project]: change to the folder of a "
        "project, or make one with `ratify new project NAME`."
    )


@cache
def declaring_package() -> ModuleType:
    """Return the package whose folders declare the project's tables."""
    return _import("defs_module", "defs")


@cache
def definitions_module() -> ModuleType:
    """Return the module of the project's code location."""
    return _import("code_location_target_module", "definitions")


def is_sample() -> bool:
    """Return whether the tables are those of the sample."""
    return project_root() == sample_root()


def _import(setting: str, default: str) -> ModuleType:
    root = project_root()
    if str(root) not in sys.path:
        # Where it is not installed. Packages on the path come before those of the sample.
        sys.path.insert(len(sys.path) if root == sample_root() else 0, str(root))
    settings = _settings(root)
    # The default is that of `dg`.
    return import_module(settings.get(setting) or f"{settings['root_module']}.{default}")


def _settings(folder: Path) -> Mapping[str, Any]:
    """The table `tool.dg.project` of a folder's pyproject.toml; empty where it has none."""
    pyproject = folder / "pyproject.toml"
    if not pyproject.is_file():
        return {}
    try:
        return tomllib.loads(pyproject.read_text()).get("tool", {}).get("dg", {}).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{pyproject} cannot be read: {error}. Correct it, and run the command again.") from error
