"""Bronze from files that another service lands, and from made-up events: each record exactly once, beside those of Kafka."""

import gzip
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.check_definitions import INTACT, REPORTED, offsets_check, table_checks
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from ratify_lakehouse.components.stream.record_table import record_table
from ratify_lakehouse.components.table_asset import step_name
from ratify_lakehouse.definitions.sensors.kafka_lag_sensor import kafka_lag_sensor
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions
from ratify_lakehouse.errors import FileUnreadable, LandingUnavailable, NotConfigured, ResetRefused, TableMissing
from ratify_lakehouse.ingest.records.file_records import LISTED, FileSource
from ratify_lakehouse.ingest.records.rate_records import TOPIC as RATE
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import Ingested, ingest, source_of
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.settings import Settings
from tests.components.event_tables import declared_events
from tests.engines.lakehouse import Lakehouse
from tests.ingest.topic_streamer import raw_table

NO_KAFKA = Kafka(bootstrap="127.0.0.1:1", timeout_seconds=0.1)
ODD = "a b%20+é#?[1]{2}.json"


class Landed:
    """A folder in which files land, and the table that they are read into, which `lake.create` or the first run makes."""

    def __init__(self, lake: Lakehouse, folder: Path) -> None:
        self.lake, self.folder = lake, folder
        self.table = raw_table(f"raw_{uuid4().hex[:8]}")
        folder.mkdir()

    def put(self, name: str, content: bytes) -> None:
        (path := self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    def ingest(self, options: StreamOptions | None = None, kafka: Kafka = NO_KAFKA, **config: Any) -> Ingested:
        return ingest(kafka, self.lake.spark, self.table, SourceOptions(**{"source": "files"} | config), options)

    def forget_checkpoint(self) -> None:
        shutil.rmtree(Path(Settings().checkpoints) / f"bronze.{self.table.name}")

    def values(self) -> dict[str, list[bytes]]:
        """The values of each topic, in the order of their offsets, which begin at 0 and have no gap."""
        values = dict[str, list[bytes]]()
        for row in self.rows('topic, "offset", value'):
            here = values.setdefault(row["topic"], [])
            assert row["offset"] == len(here)
            here.append(bytes(row["value"]))
        return values

    def rows(self, columns: str) -> list[dict[str, Any]]:
        return self.lake.look(f'SELECT {columns} FROM uc.{self.table.table_name} ORDER BY topic, "offset"')

    def offsets_once(self) -> Finding:
        spark = self.lake.spark
        rows = spark.rows(spark.sql(PARTITIONS, raw=spark.table(self.table)))
        return each_offset_once([Partition(**row) for row in rows])


@pytest.fixture
def landed(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Landed:
    monkeypatch.setenv("EVENTS_FILES", str(tmp_path / "in"))
    landed = Landed(lake, tmp_path / "in")
    lake.create(landed.table)
    return landed


def test_what_cannot_be_a_source_says_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfigured, match=r"no source 'kinesis'.*kafka, files, rate.*let Firehose land"):
        source_of(SourceOptions(source="kinesis"), NO_KAFKA)
    monkeypatch.delenv("EVENTS_FILES", raising=False)
    monkeypatch.setenv("EVENTS_SOURCE", "files")
    with pytest.raises(NotConfigured, match="set EVENTS_FILES"):
        source_of(SourceOptions(), NO_KAFKA)
    with pytest.raises(NotConfigured, match="as a pattern"):
        source_of(SourceOptions(files="/data/[new]"), NO_KAFKA)
    assert isinstance(source_of(SourceOptions(files="/data"), NO_KAFKA), FileSource)


def test_sound_files_are_validated_as_one() -> None:
    found = each_offset_once([Partition("files", 0, 30, 30, 0, 29, 7), Partition("files:a", 0, 3, 2, 0, 1)])
    assert (found.numbers["partitions"], found.numbers["rows"], found.numbers["doubled"]) == (8, 33, 1)
    assert "files:a/0: 3 rows, 2 offsets of 0 to 1" in found.description


def test_offsets_that_acknowledged_commits_removed_are_not_missing() -> None:
    partition = Partition("clicks", 1, 7, 7, 0, 9)
    assert not each_offset_once([partition], {"clicks/0": 3}).passed
    found = each_offset_once([partition], {"clicks/1": 3})
    assert found.passed
    assert "but 3 records that acknowledged commits removed" in found.description
    lost = each_offset_once([partition], {"clicks/1": 2})
    assert (lost.passed, lost.numbers["missing"]) == (False, 1)


@pytest.mark.stack
@pytest.mark.parametrize("and_back", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_line_once_with_the_bytes_that_it_has(landed: Landed, and_back: bool) -> None:
    """`and_back`: also where nothing is new, through a death half-way, and by the first checkpoint again."""
    megabyte = b"x" * 2**20
    landed.put(ODD, b"one\r\n\xff\xfe two\n\nlast")
    landed.put("partition=0/topic+0+0.json", b"p\n")
    landed.put("year=2026/firehose-without-a-suffix.gz", b"q\nr\n")
    landed.put("large", megabyte + b"\nafter\n")
    for passed_over in ("empty", "empty.gz", ".hidden", "_hidden", "_temporary/0", "making.tmp", ".large.crc"):
        landed.put(passed_over, b"" if passed_over.startswith("empty") else b"no")
    # As it is where files are copied with their dates.
    os.utime(landed.folder / ODD, (0, 0))
    # Two files have no records.
    first = landed.ingest(max_files=3)
    wanted = {
        f"files:{ODD}": [b"one", b"\xff\xfe two", b"", b"last"],
        "files:partition=0/topic+0+0.json": [b"p"],
        "files:year=2026/firehose-without-a-suffix.gz": [b"q", b"r"],
        "files:large": [megabyte, b"after"],
    }
    assert landed.values() == wanted
    assert first.run.rows == 9
    assert len(first.run.batches) > 1
    assert (first.position, first.behind, first.more["files"]) == (None, None, 5)
    if and_back:
        again = landed.ingest()
        assert (again.run.rows, again.more) == (0, first.more)
        assert landed.offsets_once().numbers == {"partitions": 4, "rows": 9, "doubled": 0, "missing": 0}
    # From another folder, in which the same files lie, the stream starts without a checkpoint: it knows them by their names.
    moved = landed.folder.rename(landed.folder.with_name("moved"))
    (moved / "new").write_bytes(b"n")
    there = FileSource(SourceOptions(files=str(moved))).checkpoint
    offsets = Path(stream_checkpoints.folder(landed.lake.spark, landed.table)) / there / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.half-written.tmp").touch()
    if and_back:
        stop = threading.Event()
        stop.set()
        landed.ingest(StreamOptions(stop=stop), files=str(moved), max_files=3)
    done = landed.ingest(files=str(moved))
    assert landed.values() == wanted | {"files:new": [b"n"]}
    assert done.more[LISTED] != first.more[LISTED]
    if not and_back:
        return
    # The checkpoint of the first folder is older than the table.
    moved.rename(landed.folder)
    assert landed.ingest().run.rows == 0
    assert landed.values() == wanted | {"files:new": [b"n"]}


@pytest.mark.long
@pytest.mark.stack
def test_a_lost_checkpoint_costs_nothing_and_doubles_nothing(landed: Landed) -> None:
    """Also where the run that starts over dies half-way, and where a line has ten megabytes."""
    ten_megabytes = b"x" * 10 * 2**20
    landed.put("a", ten_megabytes + b"\na2\n")
    landed.put("b", b"b\n")
    landed.ingest()
    landed.forget_checkpoint()
    landed.put("new", b"n")
    stop = threading.Event()
    stop.set()
    landed.ingest(StreamOptions(stop=stop), max_files=1)
    landed.ingest()
    assert landed.values() == {"files:a": [ten_megabytes, b"a2"], "files:b": [b"b"], "files:new": [b"n"]}


@pytest.mark.stack
def test_a_record_has_its_key_and_its_time(landed: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS_KEY", "$.who.id")
    monkeypatch.setenv("EVENTS_TIME", "at")
    landed.put("a", b'{"who": {"id": 7}, "at": 1767225600123}\n{"who": 1, "at": "2026-01-01T00:00:01Z"}\n{"who"\n\xff')
    landed.ingest()
    monkeypatch.setenv("EVENTS_FORMAT", "kcat")
    envelope = {"topic": "t", "partition": 3, "offset": 40, "tstype": "create", "ts": 1767225600123, "broker": 1}
    envelopes: list[dict[str, Any]] = [
        envelope | {"headers": ["n", "1", "é", "2"], "key": "u", "payload": '{"a": "é\n"}'},
        envelope | {"tstype": "logappend", "key": None, "payload": None},
        {"n": 60},
    ]
    landed.put("b", "\n".join([*map(json.dumps, envelopes), "no JSON"]).encode())
    landed.ingest()
    changed = (landed.folder / "a").stat().st_mtime
    rows = landed.rows("key, value, epoch_us(timestamp) / 1e6 AS at, timestamp_type, headers")
    ours, theirs = rows[:4], rows[4:]
    assert [(row["key"], row["timestamp_type"]) for row in ours] == [(b"7", 0), (None, 0), (None, 1), (None, 1)]
    assert [row["at"] for row in ours] == [1767225600.123, 1767225601.0, *[pytest.approx(changed, abs=0.01)] * 2]
    assert [(row["key"], row["value"], row["timestamp_type"]) for row in theirs] == [
        (b"u", '{"a": "é\n"}'.encode(), 0),
        (None, None, 1),
        (None, b'{"n": 60}', 1),
        (None, b"no JSON", 1),
    ]
    assert [row["at"] for row in theirs[:2]] == [1767225600.123] * 2
    place = {"kafka.topic": b"t", "kafka.partition": b"3", "kafka.offset": b"40"}
    headers = [{h["key"]: bytes(h["value"]) for h in row["headers"]} for row in theirs[:2]]
    assert headers == [{"n": b"1", "é": b"2"} | place, place]
    assert [row["headers"] for row in theirs[2:]] == [None, None]


@pytest.mark.stack
def test_files_that_cannot_be_read_are_named_and_the_stream_goes_on_without_them(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTS_FILES", str(tmp_path / "in"))
    landed = Landed(lake, tmp_path / "in")
    with pytest.raises(LandingUnavailable, match="set EVENTS_FILES"):
        landed.ingest(files=str(landed.folder / "nowhere"))
    with pytest.raises(TableMissing):
        lake.version(landed.table)
    assert landed.ingest().run.rows == 0
    landed.put("a.json", b"a\n")
    (landed.folder / "broken.gz").write_bytes(b"\x1f\x8b not whole")
    # More than there is memory for: it is refused before any file is opened.
    with (landed.folder / "huge").open("wb") as huge:
        huge.truncate(2**33)
    with pytest.raises(FileUnreadable, match=r"/huge is larger than EVENTS_MAX_FILE_BYTES \(67,108,864"):
        landed.ingest()
    (landed.folder / "huge").unlink()
    with pytest.raises(FileUnreadable, match=r"/broken\.gz cannot be read"):
        landed.ingest()
    landed.put("broken.gz", b"repaired\n")
    landed.put("b.json", b"b\n")
    landed.ingest()
    assert landed.values() == {"files:a.json": [b"a"], "files:b.json": [b"b"], "files:broken.gz": [b"repaired"]}


@pytest.mark.long
@pytest.mark.stack
def test_one_table_of_several_sources_is_not_read_again_from_one_of_them(
    landed: Landed, kafka: Kafka, fresh_topic: str
) -> None:
    landed.put("a", b"a1\na2\n")
    landed.put("b", b"b1\n")
    landed.ingest()
    assert landed.ingest(source="rate", rate=500).run.rows == 500
    landed.forget_checkpoint()
    for _ in range(2):
        assert landed.ingest(source="rate", rate=500).run.rows == 500
    kafka.ensure_topic(fresh_topic)
    with kafka.producer() as producer:
        producer.produce(fresh_topic, value=b"k1", key="u")
    in_kafka = {"source": "kafka", "topics": [fresh_topic], "kafka": kafka}
    assert landed.ingest(**in_kafka).run.rows == 1
    landed.put("c", b"c1\n")
    assert landed.ingest().run.rows == 1
    values = landed.values()
    assert len(values[RATE]) == len(set(values[RATE])) == 1500
    found = landed.offsets_once()
    assert found.passed
    assert found.numbers == {"partitions": 5, "rows": 1505, "doubled": 0, "missing": 0}
    (landed.folder / "a").unlink()
    lost = rf"1 of the 3 files that it holds are no longer in {landed.folder}: a\..*kafka \(1 row\), rate \(1,500 rows\)"
    with pytest.raises(ResetRefused, match=lost):
        landed.ingest(full_refresh=True)
    with pytest.raises(ResetRefused, match=r"0 offsets.*topic begins at 0.*files \(4 rows\), rate \(1,500 rows\)"):
        landed.ingest(**in_kafka, full_refresh=True)
    done = landed.ingest(full_refresh=True, force=True)
    assert (done.removed, landed.values()) == (1505, {"files:b": [b"b1"], "files:c": [b"c1"]})


@pytest.mark.stack
def test_the_asset_and_the_sensor_follow_the_settings(landed: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = landed.lake
    monkeypatch.setenv("EVENTS_SOURCE", "files")
    monkeypatch.setenv("EVENTS_KEY", "user_id")
    events = declared_events(f"raw_{uuid4().hex[:8]}", "clicks")
    table = events.declaration
    resources = {"kafka": NO_KAFKA, "spark": lake.spark, "duckdb": lake.duckdb}
    landed.put("a", b'{"user_id": "u", "time": 1767225600000, "model": "m"}\n' * 3)
    landed.put("b", b"no JSON\n")
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [record_table(events), table_checks(table), offsets_check(table)], instance=instance, resources=resources
        )
        tick = kafka_lag_sensor(events)(dg.build_sensor_context(instance=instance, resources={"kafka": NO_KAFKA}))
    assert isinstance(tick, dg.SkipReason)
    assert tick.skip_message == f"Nothing new in {landed.folder}."
    (event,) = done.asset_materializations_for_node(step_name(table))
    reported = {name: value.value for name, value in event.metadata.items()}
    assert (reported["records read"], reported["rows added"], reported["files"], "offsets" in reported) == (4, 4, 2, False)
    checks = {check.check_name: check for check in done.get_asset_check_evaluations()}
    assert set(checks) == {INTACT, REPORTED, "offsets_once"}
    assert {check.passed for check in checks.values()} == {True}
    assert checks["offsets_once"].metadata["partitions"].value == 2
    keys = lake.look(f"SELECT decode(key) AS key FROM uc.{table.table_name} ORDER BY 1 NULLS FIRST")
    assert [row["key"] for row in keys] == [None, "u", "u", "u"]


@pytest.mark.stack
def test_a_continuous_stream_takes_files_as_they_land(landed: Landed) -> None:
    stop, seen = threading.Event(), list[Batch]()

    def on_batch(batch: Batch) -> None:
        seen.append(batch)
        if len(seen) == 2:
            stop.set()
        landed.put("making.tmp", b"2\n")
        (landed.folder / "making.tmp").rename(landed.folder / "second")

    landed.put("first", b"1\n")
    landed.ingest(StreamOptions(0.2, stop, on_batch=on_batch))
    assert landed.values() == {"files:first": [b"1"], "files:second": [b"2"]}
