"""What a follower, and `ratify changes`, make of what Spark says and gives."""

import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from ratify_lakehouse.cli.changes_command import _row
from ratify_lakehouse.components.feeds.paired_changes import readable
from ratify_lakehouse.errors import ChangesNotRecorded


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("[DELTA_VERSION_NOT_FOUND] Cannot time travel Delta table to version 9.", "`from_version: 11`"),
        ("[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE] It cannot.", "`from_version: 13`"),
    ],
)
def test_an_error_says_from_which_version_a_follower_goes_on(said: str, named: str) -> None:
    """The log begins at version 10, which was to be compared with the version before."""
    log = SimpleNamespace(full_name="ratify.bronze.a", version=12)
    spark = SimpleNamespace(catalog=SimpleNamespace(version=lambda name: 12))
    with (
        pytest.raises(ChangesNotRecorded, match="cannot be read") as raised,
        readable(cast("Any", spark), cast("Any", log), 10, "The trail"),
    ):
        raise AnalysisException(said)
    assert named in str(raised.value)


def test_columns_with_the_names_of_what_is_shown_of_a_commit() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    row = {"id": 1, "version": "a", "change": "b", "_change_type": "delete", "_commit_version": 7, "_commit_timestamp": at}
    assert _row(row) == {
        "version": 7,
        "committed at (UTC)": "2026-01-02 03:04:05",
        "change": "delete",
        "id": 1,
        "version (column)": "a",
        "change (column)": "b",
    }
