"""Entries of the ledger that may give rows another ingest order: found by the statistics of its files, without a query."""

import json
from typing import Any

import pytest

from ratify_lakehouse.components.strategies.query_inputs import _may_place
from ratify_lakehouse.delta.snapshot import LiveFile


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
    assert _may_place(found, 7) == may


def test_entries_without_statistics_may_place_anything() -> None:
    assert _may_place(LiveFile({"path": "a.parquet"}, 3), 7)
    assert _may_place(entries({"version": 8}, {"version": 9}), 7)
    assert _may_place(entries({"status": "loaded"}, {"status": "loaded"}), 7)
