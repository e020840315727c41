"""Tests that the processes of a run have collected, in a file for the one that started them and collects nothing itself."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import pytest

UNIT, USUAL, LONG = TIERS = ("unit", "usual", "long")
"""The tiers of `make test-unit`, of `make test` beyond that, and of `make test-long`."""
_NO_UNIT_TESTS = ("stack", "server", "browser")


def file_of(nodeid: str) -> str:
    """Return the test file of a test."""
    return nodeid.partition("::")[0]


@dataclass(frozen=True)
class Collected:
    """All tests of the chosen files, those of other tiers too.

    Attributes:
        tiers: How many tests a file has in each tier.
        locks: The names in a file's marker `locks`.
        units: The name in a file's marker `one_process`.
        long: The tests of the long tier.
    """

    tiers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    locks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    units: dict[str, str] = field(default_factory=dict[str, str])
    long: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, items: Iterable[pytest.Item]) -> Self:
        """Look at the markers.

        Raises:
            pytest.UsageError: a test has the marker `locks`, and not its module.
        """
        tiers = dict[str, Counter[str]]()
        locks, units, long = dict[str, list[str]](), dict[str, str](), list[str]()
        for item in items:
            file = file_of(item.nodeid)
            module = item.getparent(pytest.Module)
            names = set[str]() if module is None else lock_names(module)
            if not lock_names(item) <= names:
                raise pytest.UsageError(
                    f"{item.nodeid}: files are locked, not tests: write pytestmark = pytest.mark.locks(…) in its module"
                )
            if names:
                locks[file] = sorted(names)
            if mark := item.get_closest_marker("one_process"):
                units[file] = mark.args[0]
            tiers.setdefault(file, Counter())[tier := tier_of(item)] += 1
            if tier == LONG:
                long.append(item.nodeid)
        return cls({file: dict(counts) for file, counts in tiers.items()}, locks, units, long)

    def unit_of(self, nodeid: str) -> str:
        """Return what of a run one process takes: a file, or all files that share a process."""
        file = file_of(nodeid)
        return self.units.get(file, file)

    def write(self, place: Path, writer: str) -> None:
        """Replace the file; several processes write the same."""
        (part := place.with_name(f"{place.name}.{writer}")).write_text(json.dumps(asdict(self)))
        part.replace(place)

    @classmethod
    def read(cls, place: Path) -> Self:
        return cls(**json.loads(place.read_text()))


def lock_names(node: pytest.Item | pytest.Module) -> set[str]:
    """Return the names in all markers `locks` of a test or a module."""
    return {name for mark in node.iter_markers("locks") for name in mark.args}


def tier_of(item: pytest.Item) -> str:
    """Return the first tier that a test is part of."""
    if item.get_closest_marker("long"):
        return LONG
    return USUAL if any(map(item.get_closest_marker, _NO_UNIT_TESTS)) else UNIT
