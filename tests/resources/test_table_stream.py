"""Streams from one managed table to another: where they begin, how much they take at a time, and what they pass over."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from resources.declarations import Engine, TableDeclaration
from resources.errors import UnsafeDeclaration
from resources.spark.table_stream import TableStream, bytes_outstanding
from tests.resources.lakehouse import Lakehouse, pairs

UPDATES_ARE_MEANT = "SKIP_CHANGE_COMMITS|IGNORE_CHANGES|skipChangeCommits"
DELETES_ARE_MEANT = "IGNORE_DELETE|ignoreDeletes|skipChangeCommits"


@dataclass
class Copy:
    """A stream from a table to another of the same columns, which is run again and again from its checkpoint."""

    lake: Lakehouse
    source: TableDeclaration
    target: TableDeclaration
    checkpoint: Path

    def run(self, stream: TableStream) -> list[int]:
        """Stream all that there is; return the rows of each micro-batch."""
        before = self.lake.version(self.target)
        rows = stream.read(self.lake.spark.session, self.lake.full(self.source)).toDF("id", "v")
        self.start(rows, availableNow=True).awaitTermination()
        history = self.lake.spark.history(self.lake.full(self.target))
        return [commit.metrics["numOutputRows"] for commit in reversed(history) if commit.version > before]

    def start(self, rows: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start a stream of rows into the target."""
        writer = rows.writeStream.format("delta").option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).toTable(self.lake.full(self.target))

    @property
    def ids(self) -> list[int]:
        return [row[0] for row in self.lake.rows(self.target)]


@pytest.fixture
def copy(lake: Lakehouse, tmp_path: Path) -> Copy:
    """Of a table to which ten rows were appended three times."""
    source, target = pairs(Engine.SPARK), pairs(Engine.SPARK)
    for table in (source, target):
        lake.spark.ensure_table(table)
    made = Copy(lake, source, target, tmp_path / "checkpoint")
    for first in (0, 10, 20):
        insert(made, first, first + 10)
    return made


def insert(copy: Copy, first: int, end: int) -> None:
    copy.lake.run(f"INSERT INTO {copy.lake.full(copy.source)} SELECT id, 'r' FROM range({first}, {end}, 1, 1)")


@pytest.mark.stack
def test_all_rows_and_then_those_that_come(copy: Copy) -> None:
    assert copy.run(TableStream()) == [30]
    assert copy.run(TableStream()) == []
    insert(copy, 30, 35)
    assert copy.run(TableStream()) == [5]
    assert copy.ids == list(range(35))


@pytest.mark.stack
def test_how_much_is_left_to_read(copy: Copy) -> None:
    def left(version: int, index: int, *, initial: bool = False) -> int:
        position = {"reservoirVersion": version, "index": index, "isStartingVersion": initial}
        return bytes_outstanding(copy.lake.spark, copy.lake.full(copy.source), position)

    sizes = [c.metrics["numOutputBytes"] for c in copy.lake.spark.history(copy.lake.full(copy.source)) if c.version > 0]
    assert len(sizes) == 3
    assert (left(4, -1), left(3, -1), left(1, -1)) == (0, sizes[0], sum(sizes))
    # At the start it knows files only, not which.
    assert [left(3, index, initial=True) for index in (-1, 0, 2)] == [sum(sizes), round(sum(sizes) * 2 / 3), 0]


@pytest.mark.stack
@pytest.mark.parametrize("by", ["version", "timestamp"])
def test_from_a_version_or_a_time_on(copy: Copy, by: str) -> None:
    (second,) = [commit for commit in copy.lake.spark.history(copy.lake.full(copy.source)) if commit.version == 2]
    stream = TableStream(starting_version=2) if by == "version" else TableStream(starting_timestamp=second.timestamp)
    copy.run(stream)
    assert copy.ids == list(range(10, 30))


@pytest.mark.stack
def test_from_now_on(copy: Copy) -> None:
    query = copy.start(TableStream(starting_version="latest").read(copy.lake.spark.session, copy.lake.full(copy.source)))
    try:
        query.processAllAvailable()
        insert(copy, 30, 35)
        query.processAllAvailable()
    finally:
        query.stop()
    assert copy.ids == list(range(30, 35))


@pytest.mark.stack
@pytest.mark.parametrize(
    "limit", [{"max_files_per_trigger": 1}, pytest.param({"max_bytes_per_trigger": 1}, marks=pytest.mark.long)]
)
def test_so_much_at_a_time(copy: Copy, limit: dict[str, Any]) -> None:
    assert copy.run(TableStream(**limit)) == [10, 10, 10]
    assert copy.ids == list(range(30))


@pytest.mark.stack
def test_deleted_files_are_passed_over_where_that_is_asked_for(copy: Copy) -> None:
    copy.run(TableStream())
    copy.lake.run(f"DELETE FROM {copy.lake.full(copy.source)} WHERE id < 10")
    insert(copy, 30, 35)
    with pytest.raises(PySparkException, match=DELETES_ARE_MEANT):
        copy.run(TableStream())
    assert copy.ids == list(range(30))
    assert copy.run(TableStream(ignore_deletes=True)) == [5]
    assert copy.ids == list(range(35))


@pytest.mark.stack
def test_changed_rows_are_passed_over_where_that_is_asked_for(copy: Copy) -> None:
    copy.run(TableStream())
    copy.lake.run(f"UPDATE {copy.lake.full(copy.source)} SET v = 'other' WHERE id = 4")
    insert(copy, 30, 35)
    for stream in (TableStream(), TableStream(ignore_deletes=True)):
        with pytest.raises(PySparkException, match=UPDATES_ARE_MEANT):
            copy.run(stream)
    assert copy.run(TableStream(skip_change_commits=True)) == [5]
    assert copy.lake.rows(copy.target) == [(number, "r") for number in range(35)]


@pytest.mark.stack
def test_the_change_feed_has_every_change(lake: Lakehouse, tmp_path: Path) -> None:
    source = pairs(Engine.SPARK, properties={"delta.enableChangeDataFeed": "true"})
    target = pairs(Engine.SPARK)
    for table in (source, target):
        lake.spark.ensure_table(table)
    copy = Copy(lake, source, target, tmp_path / "checkpoint")
    insert(copy, 0, 2)
    lake.run(f"UPDATE {lake.full(source)} SET v = 'new' WHERE id = 0")
    lake.run(f"DELETE FROM {lake.full(source)} WHERE id = 1")
    changes = "named_struct('id', id, 'v', concat_ws(' ', _commit_version, _change_type, v)) AS s"
    stream = TableStream(change_feed=True, starting_version=1)
    rows = stream.read(lake.spark.session, lake.full(source)).selectExpr(changes).select("s.*")
    copy.start(rows, availableNow=True).awaitTermination()
    assert lake.rows(target) == [
        (0, "1 insert r"),
        (0, "2 update_postimage new"),
        (0, "2 update_preimage r"),
        (1, "1 insert r"),
        (1, "3 delete r"),
    ]


@pytest.mark.stack
def test_a_renamed_column_stops_the_stream_once_and_then_it_goes_on(lake: Lakehouse, tmp_path: Path) -> None:
    """Not a table that Ratify declares, for DuckDB reads none with column mapping: one that others have made."""
    source, target = pairs(Engine.SPARK), pairs(Engine.SPARK)
    lake.spark.ensure_table(target)
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode'='name')"
    lake.run(f"CREATE TABLE {lake.full(source)} (id BIGINT, v STRING) USING DELTA {mapped}")
    checkpoint = tmp_path / "checkpoint"
    copy = Copy(lake, source, target, checkpoint)
    schemas = str(checkpoint / "schemas")
    stream, accepting = (TableStream(schema_tracking_location=schemas, accept_renames=accept) for accept in (False, True))
    insert(copy, 0, 10)
    assert copy.run(stream) == [10]
    lake.run(f"ALTER TABLE {lake.full(source)} RENAME COLUMN v TO w")
    lake.run(f"INSERT INTO {lake.full(source)} VALUES (10, 'after')")
    with pytest.raises(PySparkException, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        copy.run(stream)
    with pytest.raises(PySparkException, match="RENAME COLUMN"):
        copy.run(stream)
    copy.run(accepting)
    assert copy.ids == list(range(11))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"starting_version": 1, "starting_timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "not at both"),
        ({"starting_timestamp": dt.datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 that is what is refused
        ({"change_feed": True, "skip_change_commits": True}, "cannot pass over"),
        ({"max_files_per_trigger": 0}, "gets nowhere"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=why):
        TableStream(**given)


def test_options_have_delta_s_names() -> None:
    at = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert TableStream().options() == {}
    assert TableStream(starting_timestamp=at, max_bytes_per_trigger=1024, ignore_deletes=True).options() == {
        "startingTimestamp": "2026-01-01T12:00:00+00:00",
        "maxBytesPerTrigger": "1024b",
        "ignoreDeletes": "true",
    }
