"""The Dagster instance of RATIFY_HOME, and the workspace that `ratify dev` shows."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from orchestration.project_folders import project_root
from resources.settings import Settings

_PACKAGE = Path(__file__).parents[1]


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance, with the project's dagster.yaml in it."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_configuration("dagster.yaml"), home / "dagster.yaml")
    return home


def workspace_file() -> Path:
    """Return the file that names the code locations: the project's own, or that of this distribution."""
    own = project_root() / "workspace.yaml"
    return own if own.exists() else _configuration("workspace.yaml")


def _configuration(name: str) -> Path:
    # In a checkout, it is beside the packages; in a wheel, inside this one.
    return next(path for path in (_PACKAGE.parent / name, _PACKAGE / name) if path.exists())


@contextmanager
def dagster_instance() -> Generator[dg.DagsterInstance]:
    """The Dagster instance of RATIFY_HOME, the one that `ratify dev` shows."""
    with dg.DagsterInstance.from_config(str(dagster_home(Settings()))) as instance:
        yield instance
