"""What it costs to start a command: its CPU time against that of Python alone, and of Python importing Dagster.

    python -m bench.command_start [--rounds 5] [--spark]

Each command is a process of its own; its CPU time is user plus system, with that of the processes it waited for. Prints the
median of the rounds and both ratios. The exit code is 1 where help, version or status miss their aim, or the load of the
sample's definitions, which each process of Dagster begins with. `sql` and `grants` ask an embedded catalog server, which the
benchmark starts; with `--spark` it starts Spark too, and measures `ingest` of one new file and `history`, whose tables Spark
creates.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from bench.ratios import console, within_bounds
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.settings import Settings

AIM = 0.6
"""CPU time of help, version and status at most, against `import dagster`: they import neither it nor an engine."""
LOAD_AIM = 3
"""The same of loading the sample's definitions."""

_RATIFY = (sys.executable, "-m", "ratify_lakehouse.cli")
_NOTHING = "python -c pass"
_DAGSTER = 'python -c "import dagster"'
_DEFINITIONS = "load of the definitions"
_LIGHT = ("--help", "--version", "status", "ingest --help")


def cpu_seconds(command: Sequence[str], expected: frozenset[int]) -> float:
    """Run a command and return its CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode not in expected:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}: {run.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ingest_one(folder: Path) -> Callable[[], Sequence[str]]:
    """Return a function that writes one new file and returns the command that ingests it into a table of the sample."""

    def command() -> Sequence[str]:
        folder.mkdir(exist_ok=True)
        path = folder / f"airlines{len(list(folder.iterdir()))}.csv"
        path.write_text(f"carrier,name\nXX,{path.stem}\n")
        return (*_RATIFY, "ingest", str(path), "--table", "bronze.airlines")

    return command


def commands(folder: Path, *, spark: bool) -> dict[str, Callable[[], Sequence[str]]]:
    """The commands to measure, by the names to print."""
    lines: dict[str, Sequence[str]] = {
        _NOTHING: (sys.executable, "-c", "pass"),
        _DAGSTER: (sys.executable, "-c", "import dagster"),
        **{line: (*_RATIFY, *line.split()) for line in _LIGHT},
        _DEFINITIONS: (sys.executable, "-c", "import orchestration.definitions as d; d.defs.resolve_all_asset_specs()"),
        "sql --engine duckdb": (*_RATIFY, "sql", "SELECT 1", "--engine", "duckdb"),
        "grants": (*_RATIFY, "grants", Settings().unity_catalog),
    }
    chosen: dict[str, Callable[[], Sequence[str]]] = {name: lambda line=line: line for name, line in lines.items()}
    if spark:
        chosen["ingest"] = ingest_one(folder / "files")
        chosen["history"] = lambda: (*_RATIFY, "history", "bronze.airlines")
        chosen["sql"] = lambda: (*_RATIFY, "sql", "SELECT 1")
    return chosen


def measure(chosen: dict[str, Callable[[], Sequence[str]]], rounds: int) -> dict[str, float]:
    """Return the median CPU time of each command. The first round, which compiles bytecode, does not count."""
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(rounds + 1):
        for name, command in chosen.items():
            times[name].append(cpu_seconds(command(), frozenset({0})))
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def show(medians: dict[str, float]) -> bool:
    """Print the times and the ratios; return whether the aims are met."""
    table = Table(title="CPU time of a command", title_justify="left", header_style="bold")
    for column in ("", "seconds", f"times {_NOTHING}", f"times {_DAGSTER}"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / medians[_NOTHING]:.0f}", f"{seconds / medians[_DAGSTER]:.2f}")
    console.print(table)
    aims = {**dict.fromkeys(_LIGHT, AIM), _DEFINITIONS: LOAD_AIM}
    return within_bounds(
        [(f"{name} against import dagster", medians[name] / medians[_DAGSTER], aim, False) for name, aim in aims.items()]
    )


def main() -> int:
    """Print the ratios; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default 5)")
    parser.add_argument("--spark", action="store_true", help="ingest and history too, which need Spark")
    options = parser.parse_args()
    jars = Settings().jars
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        config = StackConfig(home=Path(home), jars_dir=jars, spark=options.spark)
        with running(config, lambda message: console.print(message, style="dim")):
            medians = measure(commands(Path(home), spark=options.spark), options.rounds)
    return 0 if show(medians) else 1


if __name__ == "__main__":
    sys.exit(main())
