"""Since which version a table's feed is recorded, by what is left of its log."""

from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.errors import ChangesNotRecorded
from tests.delta.written_log import WrittenTable, metadata

OFF: dict[str, Any] = {"delta_enableChangeDataFeed": "false"}


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    return WrittenTable(tmp_path)


def opened(table: WrittenTable) -> TableLog:
    log = table.log()
    return TableLog(log, log.refresh())


def test_a_log_that_is_cut_has_the_feed_from_its_start_if_the_checkpoint_there_says_so(table: WrittenTable) -> None:
    table.commit(metadata())
    table.commits(10)
    table.checkpoint()
    table.commits(94)
    # A column is added, which states all properties again.
    table.commit(metadata(columns={"id": "long", "v": "string", "later": "long"}))
    table.commits(97)
    table.cut(10)
    assert opened(table).feed_since() == 10
    assert opened(table).recorded_range(90, None) == (90, 97)
    with pytest.raises(ChangesNotRecorded, match="since version 10: read from there on"):
        opened(table).recorded_range(9, None)
    table.checkpoint()
    table.log_file(10).unlink()
    assert opened(table).feed_since() == 11
    table.log_file(11).unlink()
    assert opened(table).feed_since() == 95, "it is not known what was set in version 11"


def test_what_the_checkpoint_says_counts(table: WrittenTable) -> None:
    table.commit(metadata(**OFF))
    table.commits(10)
    table.checkpoint()
    table.commits(20)
    table.commit(metadata())
    table.commits(25)
    table.cut(10)
    assert opened(table).feed_since() == 21


def test_without_a_checkpoint_only_what_the_log_says_counts(table: WrittenTable) -> None:
    table.commit(metadata())
    table.commits(5)
    table.commit(metadata(other="x"))
    table.checkpoint()
    table.commits(8)
    table.cut(4)
    assert opened(table).feed_since() == 6


def test_it_was_off_for_a_while(table: WrittenTable) -> None:
    table.commit(metadata())
    assert opened(table).feed_since() == 0
    table.commits(3)
    table.commit(metadata(**OFF))
    assert opened(table).feed_since() is None
    table.commits(6)
    table.commit(metadata())
    table.commit(metadata(other="x"))
    table.commits(12)
    table.checkpoint()
    assert opened(table).feed_since() == 7
    table.cut(12)
    assert opened(table).feed_since() == 12


@pytest.mark.parametrize("on", ["true", "TRUE"])
def test_what_delta_takes_for_on_is_on(table: WrittenTable, on: str) -> None:
    table.commit(metadata(delta_enableChangeDataFeed=on))
    table.commits(2)
    assert opened(table).recorded_range(None, None) == (0, 2)


def test_versions_that_do_not_exist_yet(table: WrittenTable) -> None:
    table.commit(metadata())
    table.commits(3)
    for first, last in ((9, None), (9, 9), (9, 2), (0, 9)):
        with pytest.raises(ChangesNotRecorded, match=r"The latest version of c\.s\.t is 3, so version 9 has no changes yet"):
            opened(table).recorded_range(first, last)
    with pytest.raises(ChangesNotRecorded, match=r"Version 3 of .* is not before version 2: swap them"):
        opened(table).recorded_range(3, 2)
