"""A table and its quarantine agree after the next pass, whatever passes were killed or overtook each other.

The tables are plain Python here; what decides is `computed_inputs`. Passes are interleaved step by step, as processes are.
"""

import datetime as dt
import random
import sys
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import (
    ComputedInputs,
    FullRecompute,
    InputVersion,
    QuarantineVersion,
    last_computed,
    quarantine_record,
    with_quarantine,
)

Rows = dict[int, int]
joined = with_quarantine


@dataclass
class QuarantinedTable:
    """A table with its versions, and the Delta `txn` that orders what passes merge."""

    rows: list[Rows] = field(default_factory=lambda: [{}])
    commits: list[Commit] = field(default_factory=lambda: [commit(0, "CREATE TABLE", "")])
    txn: int = -1

    @property
    def version(self) -> int:
        return len(self.rows) - 1

    def merge(self, changes: dict[int, int | None], record: str, following: int | None) -> bool:
        """Apply changed rows; False where another pass that followed the same version was faster."""
        if following is not None:
            if following + 1 <= self.txn:
                return False
            self.txn = following + 1
        rows = dict(self.rows[-1])
        for key, value in changes.items():
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        self.rows.append(rows)
        self.commits.append(commit(self.version, "MERGE", f"ratify:1f {record}"))
        return True


def commit(version: int, operation: str, metadata: str) -> Commit:
    return Commit(version, dt.datetime.fromtimestamp(version, dt.UTC), operation, Engine.SPARK, "", user_metadata=metadata)


class QuarantinedLake:
    """An input, of which rows below zero are bad; the table of its good rows, and the quarantine of its bad ones."""

    def __init__(self) -> None:
        self.input = list[Rows]([{}])
        self.table, self.quarantine, self.ids = QuarantinedTable(), QuarantinedTable(), 0

    def change(self, chance: random.Random) -> None:
        rows = dict(self.input[-1])
        for _ in range(chance.randint(1, 2)):
            key = chance.randint(0, 3)
            rows.pop(key, None)
            if chance.random() < 0.8:
                rows[key] = chance.randint(-2, 2)
        self.input.append(rows)

    def wanted(self, version: int) -> tuple[Rows, Rows]:
        good = {key: value for key, value in self.input[version].items() if value >= 0}
        return good, {key: value for key, value in self.input[version].items() if value < 0}

    def one_pass(self) -> Generator[None]:
        """A pass; at each `yield` others may act, or it may be killed."""
        table, quarantine = self.table, self.quarantine
        read = len(self.input) - 1
        yield
        after = table.version
        self.ids += 1
        record = ComputedInputs("q", after, {"i": InputVersion("i", read)}, str(self.ids))
        yield
        last, affected = None, set(range(4))
        full = True
        try:
            last = last_computed(reversed(table.commits))
            since = joined(last, "t", quarantine.version, reversed(quarantine.commits)).inputs["i"].version
            if since <= read:
                was, now = self.input[since], self.input[read]
                affected = {key for key in range(4) if was.get(key) != now.get(key)}
                full = False
        except FullRecompute:
            pass
        good, bad = self.wanted(read)
        yield
        q_after = quarantine.version
        q_changes = differing(bad, quarantine.rows[q_after], affected)
        yield
        record = ComputedInputs(
            record.query, after, record.inputs, record.id, QuarantineVersion("t", q_after, bool(q_changes))
        )
        # In full, the MERGE compares with the version that it meets.
        changes = differing(good, table.rows[-1 if full else after], affected)
        if changes and not table.merge(changes, record.to_json(), None if full else after):
            return
        yield
        of = record if changes or last is None else last
        if q_changes:
            quarantine.merge(q_changes, quarantine_record(of, record.inputs), q_after)


def differing(wanted: Rows, stored: Rows, keys: set[int]) -> dict[int, int | None]:
    return {key: wanted.get(key) for key in keys if wanted.get(key) != stored.get(key)}


def run(seed: int) -> None:
    chance, lake = random.Random(seed), QuarantinedLake()  # noqa: S311 an order, not keys
    for _ in range(chance.randint(1, 6)):
        passes = list[Generator[None]]()
        for _ in range(chance.randint(1, 14)):
            match chance.choice(("change", "start", "step", "step", "step", "kill")):
                case "change":
                    lake.change(chance)
                case "start":
                    passes.append(lake.one_pass())
                case "kill" if passes:
                    passes.pop(chance.randrange(len(passes))).close()
                case _ if passes:
                    step = chance.choice(passes)
                    if next(step, "ended") == "ended":
                        passes.remove(step)
                case _:
                    pass
        for each in passes:
            each.close()
        for _ in lake.one_pass():
            pass
        assert (lake.table.rows[-1], lake.quarantine.rows[-1]) == lake.wanted(len(lake.input) - 1), seed


def run_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(seed)


@given(st.integers(0, 2**40))
@settings(max_examples=500)
def test_they_agree_after_the_next_pass(seed: int) -> None:
    run(seed)


@pytest.mark.long
@given(st.integers(0, 2**40))
@settings(max_examples=60_000)
def test_they_agree_after_the_next_pass_at_length(seed: int) -> None:
    run(seed)


def believing(record: ComputedInputs, *_: object) -> ComputedInputs:
    """As if the quarantine were always as the table's record says."""
    return record


def with_marks(record: ComputedInputs, table_id: str, version: int, history: Iterable[Commit]) -> ComputedInputs:
    """As if the quarantine's records did not say which inputs they agree with."""
    with_quarantine(record, table_id, version, history)
    return record


@pytest.mark.parametrize("broken", [believing, with_marks])
def test_a_rule_that_is_left_out_is_found(broken: Callable[..., ComputedInputs], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "joined", broken)
    with pytest.raises(AssertionError):
        run_all(range(5_000))
