"""The Dagster instance of RATIFY_HOME, and the runs that commands execute on it in their own process."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil

from resources.settings import Settings

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration that silences Dagster's log, because the command itself reports what happens."""

_PROCESS_TAG = "ratify/process"
_PACKAGE = Path(__file__).parents[1]


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance, with the project's dagster.yaml in it."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    # In a checkout, dagster.yaml is beside the packages; in a wheel, inside this one.
    config = next(path for path in (_PACKAGE.parent / "dagster.yaml", _PACKAGE / "dagster.yaml") if path.exists())
    shutil.copyfile(config, home / "dagster.yaml")
    return home


@contextmanager
def dagster_instance() -> Generator[dg.DagsterInstance]:
    """The Dagster instance of RATIFY_HOME, the one that `ratify dev` shows."""
    with dg.DagsterInstance.from_config(str(dagster_home(Settings()))) as instance:
        yield instance


def process_tag() -> dict[str, str]:
    """Return the tag of a run that this process executes; `close_dead_runs` looks for it."""
    return {_PROCESS_TAG: str(os.getpid())}


def close_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark the runs of killed commands as failed: while a run seems to be in progress, its assets are not requested."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        pid = run.tags.get(_PROCESS_TAG)
        if pid and not psutil.pid_exists(int(pid)):
            instance.report_run_failed(run, "The process of this run has ended.")
