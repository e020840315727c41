"""Streams from one managed table to another: where they begin, how much they take at a time, and what they pass over."""

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import count, expr, lit
from pyspark.sql.streaming.query import StreamingQuery

from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.spark.table_stream import TableStream, bytes_outstanding
from ratify_lakehouse.errors import UnsafeDeclaration
from tests.engines.lakehouse import Lakehouse, append, pairs

UPDATES_ARE_MEANT = "SKIP_CHANGE_COMMITS|IGNORE_CHANGES|skipChangeCommits"
DELETES_ARE_MEANT = "IGNORE_DELETE|ignoreDeletes|skipChangeCommits"
SEEN = "seen"
# The ids of a batch as the bits of a number, which a query reports with its progress: a table to write costs more.
IDS = "bit_or(shiftleft(1L, CAST(id AS INT)))"


@dataclass
class Reading:
    """A stream of a table, which is run again and again from its checkpoint, and writes its rows nowhere."""

    lake: Lakehouse
    source: TableDeclaration
    checkpoint: Path

    def insert(self, first: int, end: int) -> None:
        append(self.lake.duckdb, self.source, f"SELECT range, 'r' FROM range({first}, {end})", f"{first}")

    def rows(self, stream: TableStream) -> DataFrame:
        return stream.read(self.lake.spark.session, self.lake.full(self.source)).toDF("id", "v")

    def run(self, stream: TableStream) -> list[list[int]]:
        """Stream all that there is; return the ids of each micro-batch, whose `v` are all 'r'."""
        query = self.start(stream, availableNow=True)
        query.awaitTermination()
        return seen(query)

    def start(self, stream: TableStream, **trigger: Any) -> StreamingQuery:
        # Before the functions: only a session tells them that they are Spark Connect's.
        rows = self.rows(stream)
        observed = count(lit(1)).alias("n"), expr(IDS).alias("ids"), expr("min(v = 'r')").alias("right")
        writer = rows.observe(SEEN, *observed).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()


def seen(query: StreamingQuery) -> list[list[int]]:
    """The ids of each micro-batch that had rows."""
    found = list[list[int]]()
    for progress in query.recentProgress:
        observed = json.loads(progress.json)["observedMetrics"].get(SEEN)
        number, bits, right = observed.get("values", [*observed.values()]) if observed else (0, 0, True)
        if number:
            ids = [id_ for id_ in range(63) if int(bits) >> id_ & 1]
            assert (len(ids), right) == (number, True)
            found.append(ids)
    return found


def ids(first: int, end: int) -> list[int]:
    return list(range(first, end))


@pytest.fixture
def reading(lake: Lakehouse, tmp_path: Path) -> Reading:
    """Of a table to which ten rows were appended three times."""
    lake.create(source := pairs())
    made = Reading(lake, source, tmp_path / "checkpoint")
    for first in (0, 10, 20):
        made.insert(first, first + 10)
    return made


@pytest.mark.stack
def test_all_rows_and_then_those_that_come_reach_another_table(reading: Reading) -> None:
    lake = reading.lake
    lake.create(target := pairs(Engine.SPARK))

    def copied() -> list[int]:
        before = lake.version(target)
        writer = reading.rows(TableStream()).writeStream.format("delta")
        writer = writer.option("checkpointLocation", str(reading.checkpoint)).trigger(availableNow=True)
        writer.toTable(lake.full(target)).awaitTermination()
        made = lake.version(target) - before
        return [commit.metrics["numOutputRows"] for commit in lake.spark.recent_commits(lake.full(target), made)]

    assert copied() == [30]
    assert copied() == []
    reading.insert(30, 35)
    assert copied() == [5]
    assert [row["id"] for row in lake.look(f"SELECT id FROM uc.{target.table_name} ORDER BY id")] == ids(0, 35)


@pytest.mark.stack
def test_how_much_is_left_to_read(reading: Reading) -> None:
    lake, name = reading.lake, reading.lake.full(reading.source)

    def left(version: int, index: int, *, initial: bool = False) -> int:
        position = {"reservoirVersion": version, "index": index, "isStartingVersion": initial}
        return bytes_outstanding(lake.spark, name, position)

    sizes = [commit.metrics["numOutputBytes"] for commit in lake.spark.recent_commits(name, 3)]
    assert len(sizes) == 3
    assert (left(4, -1), left(3, -1), left(1, -1)) == (0, sizes[0], sum(sizes))
    # At the start it knows files only, not which.
    assert [left(3, index, initial=True) for index in (-1, 0, 2)] == [sum(sizes), round(sum(sizes) * 2 / 3), 0]


@pytest.mark.stack
@pytest.mark.parametrize("by", ["version", pytest.param("timestamp", marks=pytest.mark.long)])
def test_from_a_version_or_a_time_on(reading: Reading, by: str) -> None:
    name = reading.lake.full(reading.source)
    (second,) = [commit for commit in reading.lake.spark.recent_commits(name, 3) if commit.version == 2]
    stream = TableStream(starting_version=2) if by == "version" else TableStream(starting_timestamp=second.timestamp)
    assert reading.run(stream) == [ids(10, 30)]


@pytest.mark.stack
def test_from_now_on(reading: Reading) -> None:
    query = reading.start(TableStream(starting_version="latest"))
    try:
        query.processAllAvailable()
        reading.insert(30, 35)
        query.processAllAvailable()
        assert seen(query) == [ids(30, 35)]
    finally:
        query.stop()


@pytest.mark.stack
@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"max_files_per_trigger": 2}, [20, 10]),
        pytest.param({"max_bytes_per_trigger": 1}, [10, 10, 10], marks=pytest.mark.long),
    ],
)
def test_so_much_at_a_time(reading: Reading, limit: dict[str, Any], batches: list[int]) -> None:
    found = reading.run(TableStream(**limit))
    assert [len(batch) for batch in found] == batches
    assert sorted(id_ for batch in found for id_ in batch) == ids(0, 30)


@pytest.mark.stack
def test_deleted_files_and_changed_rows_are_passed_over_where_that_is_asked_for(reading: Reading) -> None:
    lake, name = reading.lake, reading.lake.full(reading.source)
    assert reading.run(TableStream()) == [ids(0, 30)]
    lake.run(f"DELETE FROM {name} WHERE id < 10")
    reading.insert(30, 35)
    with pytest.raises(PySparkException, match=DELETES_ARE_MEANT):
        reading.run(TableStream())
    assert reading.run(TableStream(ignore_deletes=True)) == [ids(30, 35)]
    lake.quick(f"UPDATE {name} SET v = 'other' WHERE id = 14")
    reading.insert(40, 45)
    with pytest.raises(PySparkException, match=UPDATES_ARE_MEANT):
        reading.run(TableStream(ignore_deletes=True))
    assert reading.run(TableStream(skip_change_commits=True)) == [ids(40, 45)]


@pytest.mark.stack
def test_the_change_feed_has_every_change(lake: Lakehouse, tmp_path: Path) -> None:
    source, target = pairs(properties={"delta.enableChangeDataFeed": "true"}), pairs(Engine.SPARK)
    lake.create(source)
    lake.create(target)
    Reading(lake, source, tmp_path).insert(0, 2)
    lake.quick(f"UPDATE {lake.full(source)} SET v = 'new' WHERE id = 0")
    lake.quick(f"DELETE FROM {lake.full(source)} WHERE id = 1")
    changes = "named_struct('id', id, 'v', concat_ws(' ', _commit_version, _change_type, v)) AS s"
    stream = TableStream(change_feed=True, starting_version=1)
    rows = stream.read(lake.spark.session, lake.full(source)).selectExpr(changes).select("s.*")
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).toTable(lake.full(target)).awaitTermination()
    found = lake.look(f"SELECT id, v FROM uc.{target.table_name} ORDER BY ALL")
    assert [tuple(row.values()) for row in found] == [
        (0, "1 insert r"),
        (0, "2 update_postimage new"),
        (0, "2 update_preimage r"),
        (1, "1 insert r"),
        (1, "3 delete r"),
    ]


@pytest.mark.stack
@pytest.mark.long
def test_a_renamed_column_stops_the_stream_once_and_then_it_goes_on(lake: Lakehouse, tmp_path: Path) -> None:
    """Not a table that Ratify declares, for DuckDB reads none with column mapping: one that others have made."""
    source = pairs(Engine.SPARK)
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode'='name')"
    lake.run(f"CREATE TABLE {lake.full(source)} (id BIGINT, v STRING) USING DELTA {mapped}")
    reading = Reading(lake, source, tmp_path / "checkpoint")
    schemas = str(reading.checkpoint / "schemas")
    stream, accepting = (TableStream(schema_tracking_location=schemas, accept_renames=accept) for accept in (False, True))
    lake.run(f"INSERT INTO {lake.full(source)} SELECT id, 'r' FROM range(10)")
    assert reading.run(stream) == [ids(0, 10)]
    lake.run(f"ALTER TABLE {lake.full(source)} RENAME COLUMN v TO w")
    lake.run(f"INSERT INTO {lake.full(source)} VALUES (10, 'r')")
    with pytest.raises(PySparkException, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        reading.run(stream)
    with pytest.raises(PySparkException, match="RENAME COLUMN"):
        reading.run(stream)
    assert reading.run(accepting) == [[10]]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"starting_version": 1, "starting_timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "not at both"),
        ({"starting_timestamp": dt.datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 that is what is refused
        ({"change_feed": True, "skip_change_commits": True}, "cannot be skipped"),
        ({"max_files_per_trigger": 0}, "must be at least 1"),
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
    assert TableStream(starting_version="latest", max_files_per_trigger=2, skip_change_commits=True).options() == {
        "startingVersion": "latest",
        "maxFilesPerTrigger": "2",
        "skipChangeCommits": "true",
    }
    assert TableStream(change_feed=True, schema_tracking_location="/s", accept_renames=True).options() == {
        "readChangeFeed": "true",
        "schemaTrackingLocation": "/s",
        "allowSourceColumnRename": "always",
        "allowSourceColumnDrop": "always",
    }
