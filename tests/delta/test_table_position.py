"""The position of a table that goes on from its last commit: which commit of its history decides."""

import datetime as dt

import pytest

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, FullRecompute, InputVersion, last_position


def commit(number: int, operation: str = "WRITE", read: int | None = None, **parameters: str) -> Commit:
    """`read`: the version of the input that its record says."""
    record = ComputedInputs("q", number - 1, {"c.s.a": InputVersion("id", read)}).to_json() if read is not None else ""
    mark = f"ratify:full refresh:1 {record}" if parameters.pop("full_refresh", "") else f"ratify:1 {record}"
    time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return Commit(number, time, operation, Engine.SPARK, "", user_metadata=mark, parameters=parameters)


FENCED = '{"ratify.erased": "1"}'
CREATED, FIRST, SECOND = commit(0, "CREATE TABLE"), commit(1, read=5), commit(2, read=7)


@pytest.mark.parametrize(
    ("history", "read", "version"),
    [
        ([], None, -1),
        ([CREATED], None, -1),
        ([CREATED, FIRST], 5, 1),
        ([CREATED, FIRST, SECOND], 7, 2),
        # Of another writer.
        ([CREATED, FIRST, SECOND, commit(3), commit(4, "DELETE")], 7, 2),
        ([CREATED, FIRST, SECOND, commit(3, read=9, full_refresh="true")], 9, 3),
        # The next pass follows the RESTORE, not the commit that it brings back.
        ([CREATED, FIRST, SECOND, commit(3, "RESTORE", version="1")], 5, 3),
        ([CREATED, FIRST, SECOND, commit(3, "RESTORE", version="0")], None, 3),
        ([CREATED, FIRST, SECOND, commit(3, "RESTORE", version="1"), commit(4, "RESTORE", version="2")], 7, 4),
        ([CREATED, FIRST, SECOND, commit(3, "RESTORE", version="1"), commit(4, read=8)], 8, 4),
        # The next pass follows the fence of an erasure, which refuses what follows an earlier version.
        ([CREATED, FIRST, commit(2, "SET TBLPROPERTIES", properties=FENCED)], 5, 2),
        ([CREATED, commit(1, "SET TBLPROPERTIES", properties=FENCED)], None, 1),
        ([CREATED, FIRST, commit(2, "SET TBLPROPERTIES", properties='{"a": "1"}')], 5, 1),
        ([CREATED, FIRST, commit(2, "SET TBLPROPERTIES", properties=FENCED), commit(3, "RESTORE", version="1")], 5, 3),
    ],
)
def test_the_newest_record_decides_that_was_not_taken_back(history: list[Commit], read: int | None, version: int) -> None:
    found = last_position(reversed(history))
    assert (found.record and found.record.inputs["c.s.a"].version, found.version) == (read, version)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([CREATED, commit(1)], "such as those of its version 1, and no commit records"),
        ([CREATED, FIRST, commit(2, "RESTORE", timestamp="2026-01-01")], "version 2 of it is a RESTORE to a time"),
    ],
)
def test_it_is_not_known(history: list[Commit], reason: str) -> None:
    with pytest.raises(FullRecompute, match=reason):
        last_position(reversed(history))
