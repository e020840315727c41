"""Entries of the ledger that may give rows another ingest order: found by the statistics of its files, without a query."""

import json
from typing import Any

import pytest

from ratify_lakehouse.components.strategies.query_inputs import _may_place
from ratify_lakehouse.delta.computed_inputs import InputVersion
from ratify_lakehouse.delta.snapshot import LiveFile

SINCE = InputVersion("5e0c", 7)


def entries(least: dict[str, Any], most: dict[str, Any]) -> LiveFile:
    stats = {"numRecords": 2, "minValues": least, "maxValues": most}
    return LiveFile({"path": "a.parquet", "stats": json.dumps(stats)}, 3)


@pytest.mark.parametrize(
    ("version", "status", "may"),
    [
        (8, "loaded", False),
        (8, "refused", False),
        # Rows of version 7 got their entry after they had been read.
        (7, "loaded", True),
        (8, "repeated", True),
        (8, "rewritten", True),
        (8, "withdrawn", True),
    ],
)
def test_entries_of_what_was_loaded_later_or_refused_place_nothing_else(version: int, status: str, may: bool) -> None:
    found = entries({"version": version, "status": "loaded"}, {"version": 9, "status": status})
    assert _may_place(found, SINCE) == may


def test_entries_without_statistics_may_place_anything() -> None:
    assert _may_place(LiveFile({"path": "a.parquet"}, 3), SINCE)
    assert _may_place(entries({"version": 8}, {"version": 9}), SINCE)
    assert _may_place(entries({"status": "loaded"}, {"status": "loaded"}), SINCE)


@pytest.mark.parametrize(
    ("least", "most", "may"),
    [
        ("5e0c", "5e0c", True),
        ("1a", "9f", True),
        # Bounds of a long text are its beginning.
        ("5e", "5e", True),
        ("5e0", "5e0\U0010ffff", True),
        ("6", "9f", False),
        ("1a", "5e0b", False),
    ],
)
def test_entries_of_other_tables_place_nothing(least: str, most: str, may: bool) -> None:
    assert _may_place(entries({"table_id": least}, {"table_id": most}), SINCE) == may
