"""The order of a run: which process takes which file next.

The longest file goes first, by the seconds that an earlier run took, so that all processes end at about the same time.
Files that mark themselves `pytestmark = pytest.mark.locks("name")` share something, and never run at once: the scheduler
keeps them apart, and a lock file holds where it cannot.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.collected_tests import Collected, file_of, lock_names
from tests.shared_stack import shared_folder


def next_file(
    waiting: Iterable[str], running: Iterable[str], seconds: Callable[[str], float], locks: Mapping[str, list[str]]
) -> str:
    """Choose the longest of the files that wait, of those first that share no lock with one that other processes run."""
    held = {name for file in running for name in locks.get(file, ())}
    return max(waiting, key=lambda file: (held.isdisjoint(locks.get(file, ())), seconds(file)))


def longest_first(config: pytest.Config, log: Any, collected: Path, estimate: Callable[[str, Iterable[str]], float]) -> Any:
    """Return a scheduler of pytest-xdist that gives each process whole files, as `next_file` chooses them.

    `estimate` has the seconds of some tests of a file; `collected` is written before tests are scheduled.
    """
    # A run in one process needs no pytest-xdist.
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return file_of(nodeid)

        def _reschedule(self, node: Any) -> None:
            # A process needs to know its next test before it runs one. More than that could run elsewhere meanwhile.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            running = [
                file
                for other, files in self.assigned_work.items()
                for file, tests in files.items()
                if other is not node and not all(tests.values())
            ]
            locks = Collected.read(collected).locks
            chosen = next_file(self.workqueue, running, lambda file: estimate(file, self.workqueue[file]), locks)
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
