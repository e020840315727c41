"""The files of the checkout."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tracked() -> list[Path]:
    """Return the files that git tracks; skips the test outside of a git checkout."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip("not a git checkout")
    return [path for name in run.stdout.split("\0") if name and (path := ROOT / name).is_file()]
