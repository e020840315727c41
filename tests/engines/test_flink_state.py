"""Where a job of Flink begins, against a model: a topic, a table and its log, checkpoints, and jobs that are killed."""

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from ratify_lakehouse.engines.flink import flink_state
from ratify_lakehouse.engines.flink.flink_state import Beginning, beginning, digest, newest_state
from ratify_lakehouse.errors import FlinkStateLost, QueryChanged

NAME = "gold.counts"


def complete(folder: Path, number: int, *, savepoint: bool = False) -> Path:
    """Write the file by which Flink marks a checkpoint as complete."""
    at = folder / (f"savepoint-{uuid4().hex[:6]}" if savepoint else f"{uuid4().hex}/chk-{number}")
    at.mkdir(parents=True)
    (at / "_metadata").write_bytes(struct.pack(">iiq", 0x4960672D, 6, number) + b"state")
    return at


def app_id(generation: int) -> str:
    return f"ratify-{NAME}-{generation}-{uuid4().hex}"


def test_the_first_job_begins_at_the_start(tmp_path: Path) -> None:
    first = beginning(NAME, tmp_path / "missing", {}, "q")
    assert (first.generation.number, first.state) == (1, None)
    assert first.generation.uid(NAME) == f"ratify-{NAME}-1"


def test_a_job_begins_at_the_newest_complete_state(tmp_path: Path) -> None:
    folder = tmp_path / "1-q"
    complete(folder, 9)
    newest = complete(folder, 10, savepoint=True)
    (folder / uuid4().hex / "chk-11").mkdir(parents=True)
    partial = folder / uuid4().hex / "chk-12"
    partial.mkdir(parents=True)
    (partial / "_metadata").write_bytes(b"\x49\x60")
    found = beginning(NAME, tmp_path, {app_id(1): 10}, "q").state
    assert found
    assert (found.number, found.folder, found.is_savepoint) == (10, newest, True)


@pytest.mark.parametrize("newest", [0, 4])
def test_a_state_that_is_older_than_the_rows_is_refused(tmp_path: Path, newest: int) -> None:
    if newest:
        complete(tmp_path / "1-q", newest)
    # Of other tables, whose names are alike.
    others = {f"ratify-gold.counts2-1-{uuid4().hex}": 99, f"ratify-goldxcounts-1-{uuid4().hex}": 99, "ratify-x": 99}
    with pytest.raises(FlinkStateLost, match=r"rows of Flink's checkpoint 5.*full_refresh: true"):
        beginning(NAME, tmp_path, {app_id(1): 3, app_id(1): 5, **others}, "q")
    assert beginning(NAME, tmp_path, {app_id(1): 5}, "q", refresh=True).generation.number == 2


def test_another_query_is_refused_where_there_is_a_state(tmp_path: Path) -> None:
    complete(tmp_path / "3-q", 1)
    with pytest.raises(QueryChanged, match=r"undo the change"):
        beginning(NAME, tmp_path, {}, "other")
    again = beginning(NAME, tmp_path, {}, "other", refresh=True)
    assert (again.generation.number, again.state) == (4, None)
    assert digest("a", "b") != digest("a", "c")


@dataclass
class ModelJobs:
    """A topic of numbered records, a table with a record a row, and the jobs between them, as Flink runs them.

    Attributes:
        topic: How many records there are.
        rows: The records in the table, in order.
        log: The table's `txn` versions by their app ids.
        read: How many records each complete state has read, by its folder.
        pending: Records that a state has handed to the committer, with their app id and number, by the state's folder.
    """

    folder: Path
    chance: random.Random
    topic: int = 0
    rows: list[int] = field(default_factory=list[int])
    log: dict[str, int] = field(default_factory=dict[str, int])
    read: dict[Path, int] = field(default_factory=dict[Path, int])
    pending: dict[Path, tuple[str, int, list[int]]] = field(default_factory=dict[Path, tuple[str, int, list[int]]])

    def run(self, *, refresh: bool = False) -> None:
        """A job that completes a few checkpoints, and is killed at any point or stopped; errors come before it starts."""
        begins = beginning(NAME, self.folder, self.log, "q", refresh=refresh)
        at, number = self._restored(begins, refresh=refresh)
        if at is None:
            return
        job = app_id(begins.generation.number)
        for _ in range(self.chance.randrange(4)):
            self.topic += self.chance.randrange(4)
            records = list(range(at, self.topic))
            at, number = self.topic, number + 1
            stopped = self.chance.random() < 0.2
            state = complete(self.folder / begins.generation.name, number, savepoint=stopped)
            self.read[state], self.pending[state] = at, (job, number, records)
            if self.chance.random() < 0.3:
                return
            self._commit(state)
            if stopped:
                return

    def _restored(self, begins: Beginning, *, refresh: bool) -> tuple[int | None, int]:
        """How far a job has read that begins so, and the number of its state; None where it is killed before it runs."""
        if begins.state:
            if self.chance.random() < 0.2:
                return None, 0
            # A restored job commits first what its state had passed on.
            self._commit(begins.state.folder)
            return self.read[begins.state.folder], begins.state.number
        if self.rows and not refresh:
            raise FlinkStateLost
        (self.folder / begins.generation.name).mkdir(parents=True, exist_ok=True)
        if self.chance.random() < 0.2:
            return None, 0
        self.rows = []
        return (0, 0) if self.chance.random() < 0.8 else (None, 0)

    def _commit(self, state: Path) -> None:
        job, number, records = self.pending[state]
        if records and self.log.get(job, 0) < number:
            self.rows += records
            self.log[job] = number

    def lose_states(self) -> None:
        """Somebody deletes a state, the newest one more often."""
        states = sorted(self.read, key=lambda state: self.read[state])
        if states:
            gone = states[-1] if self.chance.random() < 0.5 else self.chance.choice(states)
            (gone / "_metadata").unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(200))
def test_no_row_is_lost_or_doubled_whatever_happens(tmp_path: Path, seed: int) -> None:
    jobs, refused = ModelJobs(tmp_path, random.Random(seed)), 0  # noqa: S311 a sequence of a test
    for _ in range(12):
        if jobs.chance.random() < 0.1:
            jobs.lose_states()
        try:
            jobs.run(refresh=jobs.chance.random() < 0.1 or refused > 2)
            refused = 0
        except FlinkStateLost:
            refused += 1
        assert len(jobs.rows) == len(set(jobs.rows)), "a row is doubled"
        newest = max(
            (state for state in jobs.folder.glob("*-q")), key=lambda path: int(path.name.split("-")[0]), default=None
        )
        state = newest_state(newest) if newest else None
        if state and jobs.rows and not refused:
            handed = jobs.pending[state.folder][2]
            missing = set(range(jobs.read[state.folder])) - set(jobs.rows)
            assert missing <= set(handed), "a row is lost"


_committed, _newest_state = flink_state._committed, flink_state.newest_state


def _of_the_first_job(name: str, versions: Mapping[str, int]) -> dict[int, int]:
    found = dict[int, int]()
    for at, version in versions.items():
        found = _committed(name, {at: version}) | found
    return found


FAULTS: dict[str, tuple[str, Callable[..., object]]] = {
    "the log is not asked": ("_committed", lambda name, versions: {}),
    "the first job hides those after it": ("_committed", _of_the_first_job),
    "a state of any generation is taken": ("newest_state", lambda folder: _newest_state(folder.parent)),
}


def sequences(folder: Path) -> None:
    for seed in range(200):
        (each := folder / str(seed)).mkdir()
        test_no_row_is_lost_or_doubled_whatever_happens(each, seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(flink_state, *FAULTS[fault])
    with pytest.raises((AssertionError, KeyError)):
        sequences(tmp_path)
