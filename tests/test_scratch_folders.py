"""Temporary folders: none outlives its process, whatever ended it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ratify_lakehouse.scratch_folders import scratch_folder

pytestmark = pytest.mark.server

PROGRAM = """
import sys
from pathlib import Path
from ratify_lakehouse.scratch_folders import scratch_folder

with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "rows.parquet").write_text("rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


def start(home: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_removed_when_it_is_done_with_or_its_process_was_killed(tmp_path: Path) -> None:
    (killed, left), (living, used) = start(tmp_path), start(tmp_path)
    killed.kill()
    killed.wait()
    assert (left / "rows.parquet").exists()
    with scratch_folder(tmp_path) as mine:
        assert set(mine.parent.iterdir()) == {mine, used}
        assert (used / "rows.parquet").read_text() == "rows"
    living.communicate("")
    assert living.returncode == 0
    assert list((tmp_path / "scratch").iterdir()) == []
