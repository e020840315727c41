"""How far readers of a table are behind it, by what their own commits say."""

import time
from typing import Any

import pytest

from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from ratify_lakehouse.delta.reader_lag import ReaderLag, longest_lag
from ratify_lakehouse.delta.snapshot import Snapshot, SnapshotState
from ratify_lakehouse.errors import TableMissing

NOW = 1_000_000.0


class AgedLog:
    """The log of a table: its commits by their age in hours, oldest first; None for one that is gone."""

    def __init__(self, *hours: float | None, inputs: dict[int, InputVersion] | None = None) -> None:
        self.hours, self.inputs = hours, inputs or {}

    def refresh(self) -> Snapshot:
        return snapshot("c.s.reader", len(self.hours) - 1)

    def actions(self, version: int) -> list[dict[str, Any]]:
        if (age := self.hours[version]) is None:
            raise FileNotFoundError
        info: dict[str, Any] = {"inCommitTimestamp": int((NOW - age * 3600) * 1000), "operation": "MERGE"}
        if version in self.inputs:
            record = ComputedInputs("q", version - 1, {"c.s.t": self.inputs[version]})
            info["userMetadata"] = f"ratify {record.to_json()}"
        return [{"commitInfo": info}]


class NoAgedLog(AgedLog):
    def refresh(self) -> Snapshot:
        raise TableMissing("none")


def snapshot(name: str, version: int) -> Snapshot:
    return Snapshot(name, version, "id", "", [], {}, [], SnapshotState())


def lag(hours: tuple[float | None, ...], **readers: AgedLog) -> ReaderLag | None:
    return longest_lag(AgedLog(*hours), snapshot("c.s.t", len(hours) - 1), readers)  # pyright: ignore[reportArgumentType]


def reader(version: int, *, table_id: str = "id", later: int = 0) -> AgedLog:
    return AgedLog(*([9.0] * (2 + later)), inputs={1: InputVersion(table_id, version)})


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def test_the_reader_that_is_furthest_behind_is_named() -> None:
    hours = (50.0, 40.0, 30.0, 20.0)
    found = lag(
        hours, near=reader(2), far=reader(0), none=AgedLog(9.0), missing=NoAgedLog(), other=reader(0, table_id="before")
    )
    assert found == ReaderLag("far", 40 * 3600)
    assert lag(hours, done=reader(3)) == ReaderLag("done", 0)
    assert lag(hours, none=AgedLog(9.0)) is None
    assert lag(hours) is None


def test_what_the_log_has_lost_counts_from_the_next_version_that_it_has() -> None:
    assert lag((None, None, 30.0), far=reader(0)) == ReaderLag("far", 30 * 3600)


def test_only_the_newest_commits_of_a_reader_are_looked_at() -> None:
    hours = (50.0, 40.0)
    assert lag(hours, quiet=reader(0, later=29)) is not None
    assert lag(hours, quiet=reader(0, later=30)) is None
