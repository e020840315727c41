"""What a table's history says of how it was computed."""

import datetime as dt

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import (
    ComputedInputs,
    FullRecompute,
    InputVersion,
    TablePosition,
    last_computed,
    last_position,
)


def record(after: int) -> ComputedInputs:
    return ComputedInputs("q", after, {"ratify.bronze.a": InputVersion("id", after + 10)})


def commit(version: int, operation: str, metadata: str = "") -> Commit:
    return Commit(version, dt.datetime.now(dt.UTC), operation, Engine.SPARK, "Spark", user_metadata=metadata)


def computed(version: int, after: int) -> Commit:
    return commit(version, "MERGE", f"ratify:1f {record(after).to_json()}")


def test_the_newest_record_counts() -> None:
    history = [computed(3, 2), computed(2, 1), computed(1, -1), commit(0, "CREATE TABLE")]
    assert last_computed(history) == record(2)
    assert last_computed(history[1:]) == record(1)
    assert last_computed(history[2:]) == record(-1)


def test_commits_that_leave_the_rows_do_not_matter() -> None:
    history = [commit(4, "SET TBLPROPERTIES"), computed(3, 1), commit(2, "OPTIMIZE"), computed(1, -1)]
    assert last_computed(history) == record(1)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([], "none of its latest commits records"),
        ([commit(0, "CREATE TABLE")], "none of its latest commits records"),
        ([commit(2, "DELETE"), computed(1, 0)], "version 2 of it, DELETE, does not record its input versions"),
        ([computed(3, 1), commit(2, "WRITE"), computed(1, 0)], "version 2 of it, WRITE"),
        ([computed(3, 1), commit(2, "OPTIMIZE", 'ratify:2e {"query": 1}')], ""),
        ([computed(9, 5), commit(8, "OPTIMIZE")], "none of its latest commits records"),
        ([commit(1, "MERGE", "ratify:1f not json")], "version 1 of it, MERGE"),
        ([commit(1, "MERGE", 'ratify:1f {"query": "q", "after": 0, "inputs": {"a": {"id": 1}}}')], "version 1 of it"),
    ],
)
def test_what_a_record_does_not_know_of(history: list[Commit], reason: str) -> None:
    if not reason:
        assert last_computed(history) == record(1)
        return
    with pytest.raises(FullRecompute, match=reason):
        last_computed(history)


def test_where_a_table_goes_on() -> None:
    created = commit(0, "CREATE TABLE")
    assert last_position([commit(3, "OPTIMIZE"), computed(2, 0), commit(1, "OPTIMIZE"), created]) == TablePosition(
        record(0), 2
    )
    assert last_position([commit(3, "OPTIMIZE"), computed(2, 0)]) == TablePosition(record(0), 2), "the rest is not needed"
    assert last_position([commit(1, "OPTIMIZE"), created]) == TablePosition(None, -1)
    assert last_position([]) == TablePosition(None, -1)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([commit(3, "OPTIMIZE")], "its log begins at version 3"),
        ([commit(3, "DELETE"), commit(2, "OPTIMIZE")], "its log begins at version 2"),
        ([commit(1, "WRITE"), commit(0, "CREATE TABLE")], "it has rows, such as those of its version 1"),
    ],
)
def test_where_it_is_not_known_what_a_table_has(history: list[Commit], reason: str) -> None:
    with pytest.raises(FullRecompute, match=reason):
        last_position(history)
