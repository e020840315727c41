"""`ratify prove` as a process, and what it prints of each step."""

import subprocess
from pathlib import Path

from tests.cli.ratify_command import ratify


def prove(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the proof, for which two busy cores may take their time."""
    return ratify(home, "prove", *arguments, timeout=1800, **more)


def fates(printed: str) -> dict[str, str]:
    """Return the result of each step, from the table that is printed."""
    steps, _, _ = printed.partition("Commits by engine")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in steps.splitlines()]
    return {cells[0].replace(" ", "_"): cells[1] for cells in lines if len(cells) == 4 and cells[0]}
