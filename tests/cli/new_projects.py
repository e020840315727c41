"""Projects that `ratify new project` makes, used with this environment."""

import os
import sys
from pathlib import Path

from tests.cli.ratify_command import environment

FAMILY = Path(sys.prefix)


def use_this_environment(project: Path) -> None:
    """Give a new project what its set-up would install: that takes minutes, and is not the subject."""
    (project / ".venv").symlink_to(FAMILY)
    # Older than the environment: make has nothing to install.
    for name in ("pyproject.toml", "requirements.lock"):
        os.utime(project / name, (0, 0))


def shell_environment() -> dict[str, str]:
    """The environment of a person's shell in a project: none of this process's settings, and no other home."""
    return {name: value for name, value in environment(Path()).items() if name != "RATIFY_HOME"}
