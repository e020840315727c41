"""What it costs to look for new files: the sensor's listing against a plain walk, as the landing zone grows.

    python -m bench.discovery [--files 100000] [--rounds 5] [--quick]

Makes empty files on the local disk, half of them in one folder and half in folders of a thousand. The walk is `os.walk` with
an `os.stat` of each file, all that is needed to know size and modification time, and nothing is remembered. The first look
fills the index; the later looks find nothing new, as nearly every tick of a sensor does. Rounds of both alternate.
Prints the ratio of the medians (aim: a later look takes at most 1.5 times the walk), and the time against that of a tenth of
the files (aim: at most 11 times). The exit code is 1 where an aim is missed.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.ratios import timed
from ratify_lakehouse.ingest.discovery.discover_files import discover
from ratify_lakehouse.ingest.discovery.file_index import FileIndex
from ratify_lakehouse.input_settings import Discovery
from ratify_lakehouse.landing.landing_zone import LandingZone

WALK_AIM = 1.5
GROWTH_AIM = 11.0
_FOLDER = 1000


class DiscoveryTimes(NamedTuple):
    """Seconds of the first look, and medians of a later one and of the plain walk."""

    first: float
    later: float
    walk: float


def make_files(zone: Path, files: int) -> None:
    """Fill a landing zone with empty CSV files."""
    for number in range(files):
        folder = zone / "trips" / ("flat" if number % 2 else f"day-{number // 2 // _FOLDER:04}")
        if not folder.is_dir():
            folder.mkdir(parents=True)
        os.close(os.open(folder / f"{number:07}.csv", os.O_CREAT | os.O_WRONLY))


def walk(zone: Path) -> int:
    """Count the files below a folder, having looked at each."""
    return sum(
        os.stat(f"{folder}/{name}").st_mtime >= 0  # noqa: PTH116 the plainest and fastest way is the baseline
        for folder, _, names in os.walk(zone)
        for name in names
    )


def look(index: FileIndex, zone: Path) -> None:
    """One tick's look, with no end to its time."""
    patterns = {"flights_raw": "trips/**/*.csv"}
    discover(index, LandingZone(url=str(zone)), Discovery(), patterns, None, zone / "bad_messages", 0, seconds=3600)


class LandingFolder:
    """A landing zone on the local disk, and its index."""

    def __init__(self, files: int, closing: ExitStack) -> None:
        home = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="ratify-bench-")))
        self.folder, self.files = home / "zone", files
        make_files(self.folder, files)
        self.index = closing.enter_context(FileIndex.opened(home, None))
        self.first = timed(lambda: look(self.index, self.folder))
        if (known := self.index.counts().known) != files:
            raise SystemExit(f"the look found {known} of {files} files: no ratio")
        self.later, self.walk = list[float](), list[float]()

    def measure(self) -> None:
        """One round of each."""
        self.later.append(timed(lambda: look(self.index, self.folder)))
        self.walk.append(timed(lambda: walk(self.folder)))

    @property
    def times(self) -> DiscoveryTimes:
        """What the rounds gave."""
        return DiscoveryTimes(self.first, statistics.median(self.later), statistics.median(self.walk))


def measure(sizes: Sequence[int], rounds: int) -> list[DiscoveryTimes]:
    """Measure landing zones of so many files, in turns."""
    with ExitStack() as closing:
        zones = [LandingFolder(files, closing) for files in sizes]
        for _ in range(rounds):
            for zone in zones:
                zone.measure()
        return [zone.times for zone in zones]


def main() -> int:
    """Print the ratios; the exit code is 1 where one misses its aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000, help="files in the landing zone (default 100000)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="10000 files, 3 rounds")
    given = parser.parse_args()
    files, rounds = (10_000, 3) if given.quick else (given.files, given.rounds)
    sizes = (files // 10, files)
    small, large = measure(sizes, rounds)
    table = Table("files", "first look s", "later look s", "plain walk s", "later / walk")
    for count, times in zip(sizes, (small, large), strict=True):
        seconds = (f"{value:.3f}" for value in times)
        table.add_row(f"{count:,}", *seconds, f"{times.later / times.walk:.2f}")
    console = Console()
    console.print(table)
    against_walk, growth = large.later / large.walk, large.later / small.later
    console.print(f"ratio later look / plain walk, {files:,} files: {against_walk:.2f} (aim: at most {WALK_AIM})")
    console.print(f"ratio later look, {sizes[1]:,} / {sizes[0]:,} files: {growth:.2f} (aim: at most {GROWTH_AIM})")
    console.print(f"ratio first look, {sizes[1]:,} / {sizes[0]:,} files: {large.first / small.first:.2f}")
    return 0 if against_walk <= WALK_AIM and growth <= GROWTH_AIM else 1


if __name__ == "__main__":
    sys.exit(main())
