"""The queue of a table's appends, with processes that are killed and an append that says what it was given."""

import fcntl
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ratify_lakehouse.engines.duckdb.group_commit import (
    CommitQueue,
    CommittedGroup,
    Ratified,
    Staged,
    YieldWindow,
    completed,
)
from ratify_lakehouse.errors import AlreadyLoaded, AppendFailed, CatalogUnavailable, RatifyError


def staged(folder: Path, name: str, *loads: str, size: int = 10) -> Staged:
    parquet = folder / f"{name}.parquet"
    parquet.write_bytes(b"x" * size)
    return Staged(parquet, 1, size, loads or (name,), {}, {})


class Log:
    """A table in a file: a line for each commit, of the loads that it brought."""

    def __init__(self, path: Path, seconds: float = 0.0) -> None:
        self._path = path
        self._seconds = seconds
        path.touch()

    @property
    def commits(self) -> list[list[str]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    @property
    def loads(self) -> list[str]:
        return [load for commit in self.commits for load in commit]

    def append(self, group: Sequence[Staged]) -> CommittedGroup:
        version = len(self.commits)
        loads = [load for one in group for load in one.loads]
        if there := set(loads).intersection(self.loads):
            raise AlreadyLoaded("c.s.t", sorted(there))
        assert all(one.parquet.exists() for one in group)
        time.sleep(self._seconds)
        assert len(self.commits) == version, "somebody else committed in our window"
        with self._path.open("a") as file:
            file.write(json.dumps(loads) + "\n")
        return CommittedGroup(version + 1, 1)


def together(queue: CommitQueue, log: Log, requests: Sequence[Staged]) -> list[Ratified | Exception]:
    """What becomes of requests that all wait while a first commit is being made."""
    answers: dict[Path, Ratified | Exception] = {}
    entered, go = threading.Event(), threading.Event()

    def slow(group: Sequence[Staged]) -> CommittedGroup:
        entered.set()
        assert go.wait(10)
        return log.append(group)

    def ask(one: Staged) -> None:
        try:
            answers[one.parquet] = queue.commit(one, log.append)
        except RatifyError as error:
            answers[one.parquet] = error

    first = threading.Thread(target=lambda: queue.commit(staged(requests[0].parquet.parent, f"first{time.time_ns()}"), slow))
    first.start()
    assert entered.wait(10)
    rest = [threading.Thread(target=ask, args=(one,)) for one in requests]
    for number, thread in enumerate(rest):
        thread.start()
        wait_for(lambda number=number: len(list(queue._folder.glob("*.request"))) == number + 2)
    go.set()
    for thread in (first, *rest):
        thread.join(10)
    return [answers[one.parquet] for one in requests]


def wait_for(condition: object) -> None:
    # Cores that other tests keep busy.
    deadline = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def queue(tmp_path: Path) -> CommitQueue:
    return CommitQueue(tmp_path / "queue")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> object:
    yield
    assert [path.name for path in (tmp_path / "queue").iterdir()] == ["lock"]


def test_one_writer(queue: CommitQueue, log: Log, tmp_path: Path) -> None:
    assert queue.commit(staged(tmp_path, "a"), log.append) == Ratified(1, 1, ("a",))
    assert queue.commit(staged(tmp_path, "b", "b1", "b2"), log.append) == Ratified(2, 1, ("b1", "b2"))
    with pytest.raises(AlreadyLoaded) as refused:
        queue.commit(staged(tmp_path, "c", "c", "b2"), log.append)
    assert refused.value.loads == ["b2"]
    assert log.commits == [["a"], ["b1", "b2"]]


def test_those_who_wait_share_a_version(queue: CommitQueue, log: Log, tmp_path: Path) -> None:
    answers = together(queue, log, [staged(tmp_path, name) for name in "abcd"])
    assert answers == [Ratified(2, 1, (name,), shared=4) for name in "abcd"]
    assert log.commits[1] == list("abcd")


def test_what_follows_a_commit_is_done_once_for_all_who_share_it(queue: CommitQueue, tmp_path: Path) -> None:
    done = list[int]()

    class Completed(Log):
        def append(self, group: Sequence[Staged]) -> CommittedGroup:
            committed = super().append(group)
            return replace(committed, completed=completed(done.append, committed.version))

    answers = together(queue, Completed(tmp_path / "log"), [staged(tmp_path, name) for name in "abcd"])
    assert answers == [Ratified(2, 1, (name,), shared=4, completed=True) for name in "abcd"]
    assert done == [1, 2]


def test_what_follows_a_commit_may_fail_and_the_commit_stands(queue: CommitQueue, tmp_path: Path) -> None:
    def fails(version: int) -> None:
        raise CatalogUnavailable(f"version {version}")

    def append(group: Sequence[Staged]) -> CommittedGroup:
        return CommittedGroup(7, 1, completed(fails, 7))

    assert queue.commit(staged(tmp_path, "a"), append) == Ratified(7, 1, ("a",), completed=False)


def test_a_commit_has_bounds_and_the_oldest_go_first(
    queue: CommitQueue, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratify_lakehouse.engines.duckdb.group_commit.MAX_LOADS", 2)
    answers = together(queue, log, [staged(tmp_path, name) for name in "abcde"])
    assert [answer.version for answer in answers] == [2, 2, 3, 3, 4]  # type: ignore[union-attr]
    monkeypatch.setattr("ratify_lakehouse.engines.duckdb.group_commit.MAX_LOADS", 2_000)
    monkeypatch.setattr("ratify_lakehouse.engines.duckdb.group_commit.MAX_BYTES", 100)
    answers = together(queue, log, [staged(tmp_path, f"{name}2", size=60) for name in "abc"])
    assert [answer.version for answer in answers] == [6, 7, 8]  # type: ignore[union-attr]


def test_of_two_with_the_same_load_one_gets_already_loaded(queue: CommitQueue, log: Log, tmp_path: Path) -> None:
    first, second, other = together(
        queue, log, [staged(tmp_path, "a", "same"), staged(tmp_path, "b", "same"), staged(tmp_path, "c")]
    )
    assert first == Ratified(2, 1, ("same",), shared=2)
    assert other == Ratified(2, 1, ("c",), shared=2)
    assert isinstance(second, AlreadyLoaded)
    assert second.loads == ["same"]


def test_what_is_loaded_already_keeps_nobody_else_out(queue: CommitQueue, log: Log, tmp_path: Path) -> None:
    queue.commit(staged(tmp_path, "old"), log.append)
    again, new = together(queue, log, [staged(tmp_path, "old"), staged(tmp_path, "new")])
    assert isinstance(again, AlreadyLoaded)
    assert new == Ratified(3, 1, ("new",))


def test_rows_that_fail_are_only_their_writers_fault(queue: CommitQueue, log: Log, tmp_path: Path) -> None:
    class Choosy(Log):
        def append(self, group: Sequence[Staged]) -> CommittedGroup:
            if any("bad" in one.loads for one in group):
                raise ValueError("not a Parquet file")
            return super().append(group)

    choosy = Choosy(tmp_path / "log")
    good, bad, fine = together(queue, choosy, [staged(tmp_path, name) for name in ("good", "bad", "fine")])
    assert isinstance(bad, AppendFailed)
    assert "ValueError: not a Parquet file" in str(bad)
    assert good == Ratified(2, 1, ("good",))
    assert fine == Ratified(3, 1, ("fine",))


def test_all_writers_get_the_error_of_the_catalog(queue: CommitQueue, tmp_path: Path) -> None:
    class Gone(Log):
        def append(self, group: Sequence[Staged]) -> CommittedGroup:
            if any(one.loads[0] in "ab" for one in group):
                raise CatalogUnavailable("it is down")
            return super().append(group)

    answers = together(queue, Gone(tmp_path / "log"), [staged(tmp_path, name) for name in "ab"])
    assert [type(answer) for answer in answers] == [CatalogUnavailable] * 2
    assert [str(answer) for answer in answers] == ["it is down"] * 2


def _write(folder: str, path: str, name: str, first: int, count: int) -> None:
    log = Log(Path(path), seconds=0.002)
    queue = CommitQueue(Path(folder))
    for number in range(first, count):
        one = staged(Path(path).parent, f"{name}{number}")
        # A writer that was killed may have had it committed.
        with suppress(AlreadyLoaded):
            queue.commit(one, log.append)
        one.parquet.unlink()


@pytest.mark.server
@pytest.mark.parametrize(("names", "count", "kills"), [("abc", 10, 2), pytest.param("abcd", 25, 8, marks=pytest.mark.long)])
def test_processes_that_are_killed_lose_and_double_nothing(
    tmp_path: Path, queue: CommitQueue, names: str, count: int, kills: int
) -> None:
    context = multiprocessing.get_context("spawn")
    log = Log(tmp_path / "log")

    def start(name: str) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=_write, args=(str(tmp_path / "queue"), str(tmp_path / "log"), name, 0, count))
        process.start()
        return process

    running = {name: start(name) for name in names}
    for kill in range(1, kills + 1):
        wait_for(lambda kill=kill: len(log.loads) >= kill * 8)
        name = names[kill % len(names)]
        # With -9; one that has ended meanwhile is started once more, and then finds all of its own there.
        running[name].kill()
        running[name].join()
        running[name] = start(name)
    for process in running.values():
        process.join(60)
        assert process.exitcode == 0
    assert sorted(log.loads) == sorted(f"{name}{number}" for name in names for number in range(count))
    # Files of dead writers are removed, except a request that was being written: it looks like a new one for a while.
    for left in (tmp_path / "queue").glob("*.making"):
        os.utime(left, (0, 0))
    queue.commit(staged(tmp_path, "last"), log.append)


def test_others_are_asked_after_now_and_then_and_the_turn_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, log, asked = CommitQueue(tmp_path / "queue"), Log(tmp_path / "log"), list[YieldWindow]()

    def open_yield_window(last: YieldWindow) -> YieldWindow:
        asked.append(last)
        return YieldWindow(lost=7, seconds=4, taken=False)

    queue.commit(staged(tmp_path, "a"), log.append, open_yield_window)
    queue.commit(staged(tmp_path, "b"), log.append, open_yield_window)
    assert asked == [YieldWindow()]
    monkeypatch.setattr("ratify_lakehouse.engines.duckdb.group_commit._CHECK_LOST_S", 0)
    # Another process, to which the first has left what it knows; and one that was cut off while it wrote.
    CommitQueue(tmp_path / "queue").commit(staged(tmp_path, "c"), log.append, open_yield_window)
    assert asked[1:] == [YieldWindow(lost=7, seconds=4, taken=False)]
    (tmp_path / "queue" / "yield-window").write_text("")
    queue.commit(staged(tmp_path, "d"), log.append, open_yield_window)
    assert asked[2:] == [YieldWindow()]
    assert log.loads == ["a", "b", "c", "d"]
    # What the next turn is, after one of so many seconds that was taken or was not.
    after = {(2, True): 2, (8, True): 8, (2, False): 4, (20, False): 30}
    assert {(seconds, taken): YieldWindow(3, seconds, taken).next_seconds for seconds, taken in after} == after
    (tmp_path / "queue" / "yield-window").unlink()


def test_a_writer_that_leaves_while_others_read_and_answer_stops_nobody(
    tmp_path: Path, queue: CommitQueue, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C: one request disappears once the queue was listed, and another while its rows are committed."""
    leaves, follows = (queue._folder / f"{number:020d}-{'0' * 32}.request" for number in range(2))
    read_text = Path.read_text

    def gone_when_read(path: Path) -> str:
        if path == leaves:
            path.unlink()
        return read_text(path)

    def append(group: Sequence[Staged]) -> CommittedGroup:
        follows.unlink()
        return log.append(group)

    with ExitStack() as locks:
        for path in (leaves, follows):
            path.write_text(staged(tmp_path, path.stem).to_json())
            # As a living writer locks it.
            fcntl.flock(locks.enter_context(path.open()), fcntl.LOCK_EX)
        monkeypatch.setattr(Path, "read_text", gone_when_read)
        assert queue.commit(staged(tmp_path, "stays"), append) == Ratified(1, 1, ("stays",), shared=2)
    assert log.commits == [[follows.stem, "stays"]]
