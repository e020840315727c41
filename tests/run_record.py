"""What a run took: the seconds of each file, by which the next run is scheduled, and the tests that take too long."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from tests.collected_tests import file_of

_FOLDER, _NAME = Path(__file__).parent, "measured.json"
MOST_SECONDS = 20
"""How long a test of `make test` may take, on a machine as fast as the one that wrote `measured.json`."""
_ENOUGH_SECONDS = 100


@dataclass(frozen=True)
class Measured:
    """A whole run of `make test`: seconds of each file and of the longest tests; how many tests a file has in which tier."""

    files: dict[str, float] = field(default_factory=dict[str, float])
    longest: dict[str, float] = field(default_factory=dict[str, float])
    tiers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    @classmethod
    def read(cls, folder: Path = _FOLDER) -> Self:
        place = folder / _NAME
        return cls(**json.loads(place.read_text())) if place.exists() else cls()

    @classmethod
    def of(cls, seconds: Mapping[str, float], tiers: dict[str, dict[str, int]]) -> Self:
        longest = [each for each in sorted(seconds.items(), key=lambda each: -each[1]) if each[1] > MOST_SECONDS / 2]
        return cls(
            {file: round(took, 1) for file, took in sorted(by_file(seconds).items())},
            {test: round(took, 1) for test, took in longest},
            dict(sorted(tiers.items())),
        )

    def write(self, folder: Path) -> None:
        (folder / _NAME).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @property
    def over(self) -> int:
        """How many tests were over the limit. Once a recorded run has none, a run with one fails."""
        return sum(took > MOST_SECONDS for took in self.longest.values())

    def estimate(self, file: str, tests: Iterable[str]) -> float:
        """Return the seconds of a file; of one that has never run, a second for each of its tests."""
        return self.files.get(file, float(len(list(tests))))


def by_file(seconds: Mapping[str, float]) -> dict[str, float]:
    """Sum up the seconds of tests."""
    files = Counter[str]()
    for test, took in seconds.items():
        files[file_of(test)] += took  # pyright: ignore[reportArgumentType]
    return dict(files)


def too_slow(seconds: Mapping[str, float], measured: Measured) -> dict[str, float]:
    """Return the tests over the limit, in seconds of the machine that `measured` is of.

    A machine that is busy, or slower, takes longer for all files: that factor is taken off. Where a run has too few files
    to know it, no test is over the limit.
    """
    now = {file: took for file, took in by_file(seconds).items() if file in measured.files}
    before = sum(measured.files[file] for file in now)
    if before < _ENOUGH_SECONDS:
        return {}
    slower = max(1.0, sum(now.values()) / before)
    return {test: took / slower for test, took in seconds.items() if took / slower > MOST_SECONDS}
