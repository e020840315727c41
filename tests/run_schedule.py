"""The order of a run: which process takes which file next.

The longest file goes first, by the seconds that an earlier run took, so that all processes end at about the same time.
Files that mark themselves `pytestmark = pytest.mark.locks("name")` share something, and never run at once: the scheduler
keeps them apart, and a lock file holds where it cannot. Those of one `pytest.mark.one_process("name")` build on each other:
one process takes them all, in their order.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.collected_tests import Collected, file_of, lock_names
from tests.shared_stack import shared_folder

Estimate = Callable[[str, list[str]], float]
"""Gives the seconds of some tests of a file."""


def next_unit(waiting: Mapping[str, Iterable[str]], running: Iterable[str], estimate: Estimate, collected: Collected) -> str:
    """Choose the longest of the units that wait, of those first that share no lock with what other processes run.

    Args:
        waiting: The tests of each unit.
        running: Tests that are running, or that a process has taken.
        estimate: Of a file.
        collected: Says what shares a lock.
    """

    def locks(tests: Iterable[str]) -> set[str]:
        return {name for file in set(map(file_of, tests)) for name in collected.locks.get(file, ())}

    def seconds(tests: Iterable[str]) -> float:
        by_file = dict[str, list[str]]()
        for test in tests:
            by_file.setdefault(file_of(test), []).append(test)
        return sum(estimate(file, its) for file, its in by_file.items())

    held = locks(running)
    return max(waiting, key=lambda unit: (held.isdisjoint(locks(waiting[unit])), seconds(waiting[unit])))


def longest_first(config: pytest.Config, log: Any, collected: Path, estimate: Estimate) -> Any:
    """Return a scheduler of pytest-xdist that gives each process whole units, as `next_unit` chooses them.

    `collected` is a file that each process has written when its tests are scheduled.
    """
    # A run in one process needs no pytest-xdist.
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):
        @cached_property
        def _collected(self) -> Collected:
            return Collected.read(collected)

        def _split_scope(self, nodeid: str) -> str:
            return self._collected.unit_of(nodeid)

        def _reschedule(self, node: Any) -> None:
            # A process needs to know its next test before it runs one. More than that could run elsewhere meanwhile.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            taken = [units.values() for other, units in self.assigned_work.items() if other is not node]
            running = [test for units in taken for tests in units if not all(tests.values()) for test in tests]
            chosen = next_unit(self.workqueue, running, estimate, self._collected)
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return LongestFirst(config, log)


@pytest.fixture(scope="module", autouse=True)
def hold_locks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Hold the locks of a file while its tests run."""
    with ExitStack() as held:
        # In one order everywhere: two files that share two locks cannot wait for each other.
        for name in sorted(lock_names(request.node)):
            folder = shared_folder(tmp_path_factory, "locks")
            held.enter_context(FileLock(folder / f"{name.replace(' ', '-')}.lock"))
        yield
