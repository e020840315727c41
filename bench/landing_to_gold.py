"""How long five landed files take to the last gold table of the sample, as a person waits who has `ratify dev` running.

    python -m bench.landing_to_gold [--rounds 5]

Starts `ratify dev` in a home of its own, with the daemon that finds files and starts runs. The first landing, which creates
the tables, does not count. Of the others, it prints the median time from the last file's write to the last gold table's
materialization, the time of runs, and how many runs there were, all as ratios to their aims. The exit code is 1 where an aim
is missed.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from bench.ratios import console, within_bounds
from ratify_lakehouse.cli.dagster_session import dagster_instance

AIM_S = 20.0
"""Seconds from the last file's write to the last commit to gold, on two cores."""
RUN_AIM_S = 15.0
"""Seconds of it that a run takes at most."""

_RATIFY = (sys.executable, "-m", "ratify_lakehouse.cli")
_GOLD = [
    dg.AssetKey(["ratify", "gold", name]) for name in ("airport_daily", "airport_hourly", "carrier_daily", "route_delay")
]
_FILES, _PATIENCE_S, _QUIET_S = 5, 1200.0, 20.0


@dataclass(frozen=True)
class LandedRound:
    """Figures of one landing: seconds to the last gold table, seconds of runs, and the number of runs."""

    seconds: float
    in_runs: float
    runs: int


@contextmanager
def dev() -> Generator[Path]:
    """Run `ratify dev` in a temporary home, which is given, until the block ends."""
    home = Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    os.environ["RATIFY_HOME"] = str(home)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (home / "dev.log").open("w") as log:
        process = subprocess.Popen([*_RATIFY, "dev", f"--port={port}"], stdout=log, stderr=log)
    try:
        yield home
    finally:
        process.terminate()
        process.wait(120)
        shutil.rmtree(home, ignore_errors=True)


def land(home: Path, instance: dg.DagsterInstance) -> LandedRound:
    """Land the files of the next days, and wait until gold has them and no run is left."""
    before = {record.dagster_run.run_id for record in instance.get_run_records()}
    subprocess.run([*_RATIFY, "land", str(_FILES)], check=True, capture_output=True)
    written = max(file.stat().st_mtime for file in (home / "landing" / "trips").iterdir())
    end = time.monotonic() + _PATIENCE_S
    idle_since = time.monotonic()
    while time.monotonic() < end:
        records = [each for each in instance.get_run_records() if _of_the_landing(each.dagster_run, before)]
        made = [event.timestamp for key in _GOLD if (event := instance.get_latest_materialization_event(key))]
        if not all(each.dagster_run.is_finished for each in records) or sum(at > written for at in made) < len(_GOLD):
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > _QUIET_S:
            # Whatever else the landing starts would have started by now.
            if failed := [each.dagster_run.run_id for each in records if not each.dagster_run.is_success]:
                raise SystemExit(f"runs have failed: {', '.join(failed)}")
            ran = [each.end_time - each.start_time for each in records if each.end_time and each.start_time]
            return LandedRound(max(made) - written, sum(ran), len(ran))
        time.sleep(1)
    raise SystemExit(f"gold has not got the files within {_PATIENCE_S:.0f} s; see {home / 'dev.log'}")


def _of_the_landing(run: dg.DagsterRun, before: Collection[str]) -> bool:
    return run.run_id not in before and "dagster/schedule_name" not in run.tags


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    found = list[LandedRound]()
    with dev() as home, dagster_instance() as instance:
        for turn in range(rounds + 1):
            found.append(landed := land(home, instance))
            console.print(
                f"landing {turn}: {landed.seconds:.1f} s to gold, {landed.in_runs:.1f} s of it in {landed.runs} runs"
            )
    counted = found[1:]
    met = within_bounds(
        [
            ("five files to the last gold table, against 20 s", _median(counted, "seconds") / AIM_S, 1, False),
            ("seconds of it in runs, against 15 s", _median(counted, "in_runs") / RUN_AIM_S, 1, False),
            ("runs of a landing, against one", _median(counted, "runs"), 1, False),
        ]
    )
    raise SystemExit(0 if met else 1)


def _median(landings: list[LandedRound], name: str) -> float:
    return statistics.median(getattr(landing, name) for landing in landings)


if __name__ == "__main__":
    main()
