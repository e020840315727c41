"""The Dagster instance of RATIFY_HOME, and the workspace that `ratify dev` shows."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from ratify_lakehouse.definitions.project_folders import project_root, sample_root
from ratify_lakehouse.settings import Settings


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance, with the project's dagster.yaml in it."""
    home, configuration = settings.home / "dagster", _configuration("dagster.yaml")
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(configuration, home / "dagster.yaml")
    return home


def workspace_file() -> Path:
    """Return the file that names the code locations."""
    return _configuration("workspace.yaml")


def _configuration(name: str) -> Path:
    """The project's own file, or that of the sample."""
    own = project_root() / name
    return own if own.exists() else sample_root() / name


@contextmanager
def dagster_instance() -> Generator[dg.DagsterInstance]:
    """The Dagster instance of RATIFY_HOME, the one that `ratify dev` shows."""
    with dg.DagsterInstance.from_config(str(dagster_home(Settings()))) as instance:
        yield instance
