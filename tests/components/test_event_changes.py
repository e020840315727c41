"""The SQL by which events of change are applied, by DuckDB over many random batches, beside the model in plain Python."""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb
import pytest

from ratify_lakehouse.components.strategies.destination_changes import OPERATION, applied, deletions
from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents
from ratify_lakehouse.sql.transpiled import by_duckdb
from tests.components.sync_model import Event, EventModel, random_events

_transpiled = cache(by_duckdb)
_EVENTS = ChangeEvents("op", "seq", ("d",), ("t",))


class Destination:
    """A destination, and the deletions that are remembered, as tables of DuckDB."""

    def __init__(self) -> None:
        self.con = duckdb.connect(config={"threads": 1})
        self.con.execute("CREATE TABLE stored (k VARCHAR, seq BIGINT, v INT)")
        self.con.execute("CREATE TABLE deleted (k VARCHAR, seq BIGINT, truncated BOOLEAN)")
        self.con.execute(f"CREATE TABLE events ({OPERATION} VARCHAR, k VARCHAR, seq BIGINT, v INT)")

    def apply(self, events: Sequence[Event]) -> int:
        """Apply a batch, and return how many rows of the destination it changes."""
        self.con.execute("TRUNCATE events")
        given = [*dict.fromkeys(events)]
        marks = ", ".join(["(?, ?, ?, ?)"] * len(given))
        self.con.execute(f"INSERT INTO events VALUES {marks}", [value for event in given for value in event])
        changes = self.rows(applied(["k"], ["k", "seq", "v"], _EVENTS, "events", "stored", "deleted"))
        keys = [key for key, *_ in changes]
        assert len(set(keys)) == len(keys)
        before = self.con.execute("DELETE FROM stored WHERE k IN (SELECT unnest(?)) RETURNING k", [keys]).fetchall()
        assert sorted(before) == sorted((key,) for key, *_, found in changes if found)
        if rows := [row for _, *row, present, _ in changes if present]:
            marks = ", ".join(["(?, ?, ?)"] * len(rows))
            self.con.execute(f"INSERT INTO stored VALUES {marks}", [value for row in rows for value in row])
        # As `DeletedKeys.add` merges them.
        self.con.execute(f"INSERT INTO deleted {_transpiled(deletions(['k'], _EVENTS, 'events'))}")
        self.con.execute(
            "CREATE OR REPLACE TABLE deleted AS SELECT k, max(seq) AS seq, truncated FROM deleted GROUP BY k, truncated"
        )
        return len(changes)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return self.con.execute(_transpiled(text)).fetchall()


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_those_of_the_model(seed: int) -> None:
    check(seed)


@pytest.mark.long
def test_rows_are_those_of_the_model_at_length() -> None:
    for seed in range(10, 300):
        check(seed)


def check(seed: int) -> None:
    chance, model, destination = random.Random(seed), EventModel(), Destination()  # noqa: S311 events, not keys
    made = dict[tuple[str, int], Event]()
    batches = [random_events(chance, number, made) for number in range(6)]
    chance.shuffle(batches)
    for batch in batches:
        assert bool(destination.apply(batch)) == model.apply(batch), batch
        found = destination.rows("SELECT k, seq, v FROM stored ORDER BY k")
        assert found == [(key, *row) for key, row in sorted(model.rows.items())], batch
        # Events that were applied before change nothing.
        assert destination.apply(batch) == 0, batch
    destination.con.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_truncation_leaves_rows_of_its_sequence(order: Sequence[int]) -> None:
    destination = Destination()
    batches = [[("c", "a", 5, 1), ("c", "b", 4, 1)], [("t", "a", 5, None)]]
    for number in order:
        destination.apply(batches[number])
    assert destination.rows("SELECT k, seq FROM stored") == [("a", 5)]
    assert destination.apply([("d", "a", 5, None)]) == 1
