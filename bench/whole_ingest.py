"""What `ratify ingest` of many small files takes in all, from its start to its end, with one writer and with eight.

    python -m bench.whole_ingest [--files 160] [--rows 100] [--rounds 5]

Each command is a process of its own and gets new files; the first of each, which warms up the stack, does not count.
Prints the medians, and the ratios that have an aim: the time against 4 s, and that with eight writers against that with one,
in pairs of one round. `python -c "import dagster"` in each round shows how fast the machine was. The exit code is 1 where an
aim is missed. Needs the embedded stack with Spark, which it starts.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.ratios import console, paired, timed, within_bounds
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.settings import Settings

AIM_S = 4.0
"""Seconds of a whole command on two cores."""

_WRITERS = (1, 8)


def make_round(folder: Path, files: int, rows: int) -> Path:
    """Write files for the sample's table of airlines, no two of any round equal; return their folder."""
    folder.mkdir(parents=True)
    for number in range(files):
        lines = (f"X{row},{folder.name} {number} {row}\n" for row in range(rows))
        (folder / f"airlines{number:04}.csv").write_text("carrier,name\n" + "".join(lines))
    return folder


def run_command(command: Sequence[str]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")


def measure(folder: Path, files: int, rows: int, rounds: int) -> bool:
    """Run the rounds on a running stack; return whether every aim is met."""
    seconds: dict[int, list[float]] = {writers: [] for writers in _WRITERS}
    imports = list[float]()
    for turn in range(rounds + 1):
        for writers in _WRITERS:
            landed = make_round(folder / f"r{turn}w{writers}", files, rows)
            words = ["ingest", str(landed), "--table", "bronze.airlines", "--writers", str(writers)]
            command = (sys.executable, "-m", "ratify_lakehouse.cli", *words)
            seconds[writers].append(timed(lambda command=command: run_command(command)))
        imports.append(timed(lambda: run_command((sys.executable, "-c", "import dagster"))))
    counted = {writers: times[1:] for writers, times in seconds.items()}
    for writers, times in counted.items():
        console.print(f"{files} files, {writers} writers: {statistics.median(times):.2f} s")
    return within_bounds(
        [
            (f"ratify ingest of {files} files, one writer: time against {AIM_S:g} s", _against(counted[1]), 1.0, False),
            ("the same with 8 writers", _against(counted[8]), 1.0, False),
            ("8 writers against one: time", paired(counted[8], counted[1]), 1.0, False),
            ("one writer against import dagster: time", paired(counted[1], imports[1:]), None, False),
        ]
    )


def _against(times: Sequence[float]) -> float:
    return statistics.median(times) / AIM_S


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=160)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default 5)")
    options = parser.parse_args()
    jars = Settings().jars
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        with running(StackConfig(home=Path(home), jars_dir=jars), lambda message: console.print(message, style="dim")):
            met = measure(Path(home) / "files", options.files, options.rows, options.rounds)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
