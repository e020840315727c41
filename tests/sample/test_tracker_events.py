"""The tracker's events from bronze to gold: Spark validates as plain Python does, and every record is accounted for,
always."""

import datetime as dt
import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from assets.gold.gold_tracker import DEVICE_DAILY, HEART_RATE_MINUTE, tracker_gold_assets
from assets.silver import tracker_stream
from assets.silver.tracker_events import tracker_events
from assets.silver.tracker_stream import TABLES, batch_statements, ensure_tables, parsed_sql, replay, stopped, stream
from assets.silver.tracker_tables import EXPECTATIONS, QUARANTINE, TRACKER_EVENTS, TRACKER_RECONCILIATION
from assets.table_checks import events_reconciled
from components.checks.check_definitions import history_checks
from components.checks.reconciliation import records_reconciled
from components.expectations.expectation_checks import check_results
from components.expectations.expectation_rules import Action
from components.expectations.validation import validation_result
from components.stream.micro_batch import BatchStatements, batch_function
from components.stream.quarantine_corrections import Correction, read_corrections, write_corrections
from components.stream.stream_ledger import STREAM_BATCHES
from components.table_asset import asset_key
from ingest.records.record_source import SourceOptions
from ingest.records.record_stream import ingest
from orchestration.cli.main import app
from orchestration.cli.simulate_command import Simulation, send
from resources.errors import BadCorrection, ExpectationFailed, ResetRefused
from resources.kafka.kafka_client import Kafka
from resources.spark import stream_checkpoints
from tests.resources.lakehouse import Lakehouse
from tests.resources.topic_retention import delete_records
from tests.sample.tracker_records import (
    EVENT,
    NOON,
    RAW_SCHEMA,
    Expected,
    Record,
    append,
    avro,
    expected,
    made,
    text,
    validate,
    without_unique,
    wrapped,
)

pytestmark = pytest.mark.stack

NUMBERS = ("records", "accepted", "dropped", "quarantined", "late", "duplicates")
ALL = (*TABLES, TRACKER_EVENTS_RAW, HEART_RATE_MINUTE, DEVICE_DAILY)


# How a person puts back into bronze what a refresh took out of it: as docs/expectations.md says it.
PUT_BACK = """
INSERT INTO {raw} SELECT old.* FROM {raw} VERSION AS OF {version} AS old LEFT ANTI JOIN {raw} AS now
ON old.topic = now.topic AND old.partition = now.partition AND old.offset = now.offset
"""


@pytest.fixture(scope="module")
def tables(engines: Lakehouse) -> Generator[None]:
    """The tables of the tracker, for this module only: other tests have records of their own."""

    def drop() -> None:
        for table in ALL:
            engines.run(f"DROP TABLE IF EXISTS {engines.full(table)}")

    drop()
    ensure_tables(engines.spark)
    yield
    drop()


@pytest.fixture
def tracker(lake: Lakehouse, tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Empty tables of the tracker, and no checkpoint."""
    monkeypatch.setenv("RATIFY_CHECKPOINTS", str(tmp_path / "checkpoints"))
    for table in (*TABLES, TRACKER_EVENTS_RAW):
        lake.run(f"DELETE FROM {lake.full(table)}")
    return lake


def silver_rows(lake: Lakehouse) -> list[tuple[Any, ...]]:
    rows = lake.run(
        "SELECT user_id, date_format(time, \"yyyy-MM-dd'T'HH:mm:ss\") AS at, version, model, heart_bpm, kcal, "
        f"topic, partition, offset FROM {lake.full(TRACKER_EVENTS)}"
    )
    return sorted(
        (r["user_id"], r["at"], *(str(r[n]) for n in ("version", "model", "heart_bpm", "kcal")), *list(r.values())[-3:])
        for r in rows
    )


def in_quarantine(lake: Lakehouse) -> dict[tuple[str, int, int], tuple[str, ...]]:
    rows = lake.run(f"SELECT topic, partition, offset, reasons, replayed_at FROM {lake.full(QUARANTINE)}")
    assert len({(r["topic"], r["partition"], r["offset"]) for r in rows}) == len(rows)
    return {(r["topic"], r["partition"], r["offset"]): tuple(r["reasons"]) for r in rows if r["replayed_at"] is None}


def counts(lake: Lakehouse) -> dict[str, int]:
    with lake.duckdb.session() as session:
        session.attach()
        return TRACKER_RECONCILIATION.counts(session)


def versions(lake: Lakehouse) -> list[int]:
    return [lake.version(table) for table in TABLES]


def assert_all_is(lake: Lakehouse, wanted: Expected) -> None:
    """The tables and the ledger hold just what plain Python says."""
    assert silver_rows(lake) == wanted.rows
    assert in_quarantine(lake) == {one.record.place: one.failed for one in wanted.aside}
    found = counts(lake)
    assert {name: found[name] for name in wanted.numbers} == wanted.numbers
    assert records_reconciled(found).passed, records_reconciled(found).description


def test_spark_validates_as_plain_python_does(lake: Lakehouse) -> None:
    records = made(seed=1, count=1500)
    frame = lake.spark.session.createDataFrame([record.row for record in records], RAW_SCHEMA)
    frame.createOrReplaceTempView("tracker_records")
    validated = (
        f"SELECT *, unix_micros(time) AS us FROM ({EXPECTATIONS.validated(parsed_sql(lake.spark, 'tracker_records'))})"
    )
    rows = {row["offset"]: row for row in lake.run(validated)}
    assert len(rows) == len(records)
    for one in map(validate, records):
        row = rows[one.record.offset]
        assert without_unique(row["failed"]) == one.failed, one
        assert row["decided_by"] in {one.decided_by, "one_event_for_user_and_time"}, one
        if one.decided_by is None:
            wanted = (
                one.event["user_id"],
                round(one.event["time"].timestamp() * 1e6),
                *(one.event[n] for n in ("version", "model", "heart_bpm", "kcal")),
            )
            assert (row["user_id"], row["us"], row["version"], row["model"], row["heart_bpm"], row["kcal"]) == wanted
        assert (row["value"] is None) == (
            one.decided_by is None or "quarantine" not in _action(one.decided_by) or one.record.value is None
        )
    assert sum(row["decided_by"] is None for row in rows.values()) == len(expected(records).silver) > 50
    assert {name for one in map(validate, records) for name in one.failed} == {rule.name for rule in EXPECTATIONS.rules}


def _action(name: str) -> str:
    return next(rule.action.value for rule in EXPECTATIONS.rules if rule.name == name)


HOSTILE = {
    "nested beyond any stack": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a number of 3000 digits": b'{"kcal":' + b"9" * 3000 + b"}",
    "a time that overflows": text(time=9223372036854775807),
    "a time of an hour only": text(time="10:00"),
    "control characters": b'{"model":"a\x00b"}',
    "one half of a surrogate pair": text(time=None).replace(b'"a"', b'"\\ud800"'),
    "a field twice": b'{"kcal":"x","kcal":1}',
    "quotes of the wrong kind": b"{'kcal':1}",
    "a mark of byte order": b"\xef\xbb\xbf" + text(),
    "bytes that are no text": bytes(range(256)),
    "Avro's header and nothing else": b"\0\0\0\0\1",
    "ten megabytes, cut short": b'{"model":"' + b"x" * 10_000_000,
    "half of a record in Avro": avro(EVENT | {"time": NOON})[:5],
}


def test_no_bytes_stop_the_stream(lake: Lakehouse) -> None:
    rows = [Record(number, value).row for number, value in enumerate(HOSTILE.values())]
    lake.spark.session.createDataFrame(rows, RAW_SCHEMA).createOrReplaceTempView("tracker_hostile")
    found = lake.run(EXPECTATIONS.validated(parsed_sql(lake.spark, "tracker_hostile")))
    assert {
        name: row["decided_by"] in _ASIDE
        for name, row in zip(HOSTILE, sorted(found, key=lambda r: r["offset"]), strict=True)
    } == dict.fromkeys(HOSTILE, True)


_ASIDE = EXPECTATIONS.named(Action.QUARANTINE)


# A source that begins to send otherwise: a new field, one of another type, fields that are gone.
CHANGED = [
    Record(0, text(steps=5, time="2026-01-01T12:40:00Z"), at=NOON + dt.timedelta(minutes=40)),
    Record(0, text(heart_bpm={"bpm": 70})),
    Record(0, b'{"time": "2026-01-01T12:42:00Z"}', at=NOON + dt.timedelta(minutes=42)),
]


@dataclass
class Feed:
    """A topic and the bronze table that it is read into."""

    lake: Lakehouse
    kafka: Kafka
    topic: str

    def send(self, records: Iterable[Record]) -> list[Record]:
        """Send records; return them as the topic has them."""
        self.kafka.ensure_topic(self.topic, 2)
        ends, there = self.kafka.offset_range([self.topic]).latest[self.topic], list[Record]()
        with self.kafka.producer() as producer:
            for record in records:
                stamp = round(record.at.timestamp() * 1000)
                producer.produce(self.topic, record.value, record.key, record.partition, timestamp=stamp)
                there.append(replace(record, topic=self.topic, offset=ends[record.partition]))
                ends[record.partition] += 1
        return there

    def ingest(self, **config: Any) -> int:
        """Read what is new into bronze; return how many records that was."""
        config["topics"] = [self.topic]
        return ingest(self.kafka, self.lake.spark, TRACKER_EVENTS_RAW, SourceOptions(**config)).run.rows

    def expire(self) -> None:
        """Delete all records of the topic."""
        delete_records(self.kafka, self.kafka.offset_range([self.topic]).latest)


@pytest.fixture
def feed(tracker: Lakehouse, kafka: Kafka, fresh_topic: str) -> Feed:
    return Feed(tracker, kafka, fresh_topic)


def materialized(lake: Lakehouse) -> dict[str, int]:
    """Materialize silver and gold; return how many records failed each expectation."""
    done = dg.materialize([tracker_events, *tracker_gold_assets], resources={"spark": lake.spark})
    found = {check.check_name: check.metadata["failed"].value for check in done.get_asset_check_evaluations()}
    return {name: int(str(failed)) for name, failed in found.items() if failed}


def made_of_bronze(lake: Lakehouse) -> dict[str, list[str]]:
    """All rows of silver, quarantine and gold, but for the time at which they were entered."""
    frames = {table.name: lake.spark.table(table) for table in (TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)}
    return {name: sorted(map(repr, lake.spark.rows(frame.drop("quarantined_at")))) for name, frame in frames.items()}


def test_in_any_cut_and_from_bronze_alone_when_the_topic_has_expired_it_is_the_same(feed: Feed) -> None:
    lake = feed.lake
    records = feed.send([*made(seed=2, count=500), *CHANGED])
    assert feed.ingest(max_records=300) == len(records)
    # What a start leaves that was killed as it planned its first batch.
    offsets = Path(stream_checkpoints.begin(lake.spark, TRACKER_EVENTS).url) / "offsets"
    offsets.mkdir()
    (offsets / ".0.half-written.tmp").touch()
    assert stream(lake.spark, max_files=1).numbers["records"] == len(records)
    wanted = expected(records)
    assert wanted.numbers["duplicates"] > 20
    assert_all_is(lake, wanted)
    batches = lake.run(f"SELECT batch_id, count(*) AS n FROM {lake.full(STREAM_BATCHES)} GROUP BY ALL")
    assert len(batches) > 1
    assert {row["n"] for row in batches} == {1}

    before = versions(lake)
    assert materialized(lake) == {}
    assert versions(lake) == before
    whole = made_of_bronze(lake)
    assert min(map(len, whole.values())) > 2

    feed.expire()
    assert feed.ingest() == 0
    for table in (TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY):
        lake.run(f"DROP TABLE {lake.full(table)}")
    failed = materialized(lake)
    assert {name: n for name, n in failed.items() if without_unique([name])} == wanted.failed
    assert_all_is(lake, wanted)
    assert made_of_bronze(lake) == whole

    # Refreshed by force, bronze is empty; silver keeps what it has, and says what to do.
    assert feed.ingest(full_refresh=True, force=True) == 0
    with pytest.raises(ResetRefused, match=f"{feed.topic}/0: .*docs/expectations.md.*full_refresh: true"):
        stream(lake.spark)
    assert made_of_bronze(lake) == whole


@pytest.mark.long
def test_after_a_refresh_of_bronze_silver_is_rebuilt_where_nothing_is_lost(feed: Feed) -> None:
    lake = feed.lake
    sent = send(feed.kafka, Simulation(2000, bad=0.01, seed=3), feed.topic)
    assert feed.ingest() == 2000
    assert materialized(lake)["value_is_readable"] > 0
    whole = made_of_bronze(lake)
    assert len(whole["tracker_events"]) == sent.accepted
    # The topic still has all.
    assert feed.ingest(full_refresh=True, force=True) == 2000
    materialized(lake)
    assert made_of_bronze(lake) == whole
    assert records_reconciled(counts(lake)).passed
    # It has nothing any more.
    feed.expire()
    version = lake.version(TRACKER_EVENTS_RAW)
    assert feed.ingest(full_refresh=True, force=True) == 0
    # Also when it is tried again.
    for _ in range(2):
        with pytest.raises(ResetRefused):
            stream(lake.spark)
    lake.run(PUT_BACK.format(raw=lake.full(TRACKER_EVENTS_RAW), version=version))
    assert stream(lake.spark).numbers["records"] == 2000
    assert made_of_bronze(lake) == whole
    assert records_reconciled(counts(lake)).passed
    # And where it is meant that way.
    assert feed.ingest(full_refresh=True, force=True) == 0
    assert stream(lake.spark, full_refresh=True).numbers["records"] == 0
    assert silver_rows(lake) == []
    # A lost checkpoint alone is a full refresh: the same code.
    records = feed.send(made(seed=4, count=300))
    assert feed.ingest() == 300
    stream(lake.spark)
    stream_checkpoints.forget(lake.spark, TRACKER_EVENTS)
    assert stream(lake.spark).numbers["records"] == 300
    assert_all_is(lake, expected(records))


def test_records_that_are_all_malformed_and_one_of_ten_megabytes_are_set_aside(tracker: Lakehouse) -> None:
    records = [Record(number, text()[: 20 + number % 30]) for number in range(200)]
    append(tracker, [*records, Record(200, HOSTILE["ten megabytes, cut short"])])
    done = stream(tracker.spark)
    assert done.numbers == dict.fromkeys(NUMBERS, 0) | {"records": 201, "quarantined": 201}
    results = {found.check_name: found for found in check_results(EXPECTATIONS, asset_key(TRACKER_EVENTS), done.found)}
    readable = results["value_is_readable"]
    assert readable.metadata["failed rate"] == dg.MetadataValue.float(1.0)
    assert (readable.passed, readable.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert len(in_quarantine(tracker)) == 201
    assert records_reconciled(counts(tracker)).passed


def test_a_batch_that_died_half_way_or_comes_twice_changes_nothing(tracker: Lakehouse) -> None:
    records = made(seed=3, count=120)
    append(tracker, records)
    good = batch_statements(tracker.spark, "c1")

    def run(how: BatchStatements) -> None:
        with tracker.spark.isolated_session() as session:
            batch_function(how)(session.table(tracker.full(TRACKER_EVENTS_RAW)), 7)

    for dies_at in ("quarantine", "account"):
        with pytest.raises(Exception, match="died here"):
            run(replace(good, **{dies_at: "SELECT raise_error('died here')"}))
    run(good)
    wanted = expected(records)
    assert_all_is(tracker, wanted)
    before = versions(tracker)
    run(good)
    assert versions(tracker) == before


CORRECTED = [
    Record(0, text()),
    Record(1, b'{"time": "2026-01-01T12:00'),
    Record(2, text(heart_bpm="70", time="2026-01-01T12:01:00Z")),
    Record(3, text(time="2027-01-01T12:00:00Z")),
    Record(4, wrapped(EVENT | {"heart_bpm": "x"})),
    Record(5, text(), key=None),
]


@pytest.fixture
def corrections(tmp_path: Path) -> Path:
    """Of the records of CORRECTED that can be corrected; one of them still wrongly."""
    right = {
        1: EVENT | {"time": "2026-01-01T12:05:00Z"},
        2: json.dumps(EVENT | {"time": "2026-01-01T12:01:00Z"}),
        # Too late, that is no longer set aside.
        3: EVENT | {"time": "2026-01-01T10:00:00Z"},
        4: EVENT | {"heart_bpm": "still wrong"},
    }
    lines = [
        {"topic": "tracker-events", "partition": 0, "offset": offset, "value": value} for offset, value in right.items()
    ]
    (file := tmp_path / "corrections.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return file


def replay_dies(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Replay, and die before one of the writes of the batch."""

    def dying(*args: Any, **named: Any) -> BatchStatements:
        return replace(batch_statements(*args, **named), **{at: "SELECT raise_error('died here')"})

    with monkeypatch.context() as patched:
        patched.setattr(tracker_stream, "batch_statements", dying)
        with pytest.raises(Exception, match="died here"):
            replay(lake.spark)


def assert_corrected(lake: Lakehouse) -> None:
    offsets = {0: "2026-01-01T12:00:00", 1: "2026-01-01T12:05:00", 2: "2026-01-01T12:01:00"}
    assert {row[-1]: row[1] for row in silver_rows(lake)} == offsets
    assert {place[-1]: reasons for place, reasons in in_quarantine(lake).items()} == {
        4: ("types_as_declared",),
        5: ("user_is_given",),
    }
    found = counts(lake)
    assert found["late"] == 1
    assert records_reconciled(found).passed, records_reconciled(found).description


def test_ratify_replay_brings_corrected_records_back_once_though_it_was_killed(
    tracker: Lakehouse, corrections: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tracker, CORRECTED)
    stream(tracker.spark)
    assert set(in_quarantine(tracker)) == {record.place for record in CORRECTED[1:]}
    with pytest.raises(BadCorrection, match="tracker-events/0/0"):
        write_corrections(
            tracker.spark, QUARANTINE, [Correction("tracker-events", 0, 0, b"{}"), *read_corrections(corrections)]
        )
    write_corrections(tracker.spark, QUARANTINE, read_corrections(corrections))
    # It dies when silver has the events and the ledger has no line yet.
    replay_dies(tracker, monkeypatch, "account")
    assert not records_reconciled(counts(tracker)).passed
    # Also beside the continuous mode, which runs the stream.
    with stream_checkpoints.exclusive(TRACKER_EVENTS):
        done = CliRunner().invoke(app, ["replay", "silver.tracker_events", "--corrections", str(corrections), "--json"])
        assert done.exit_code == 0, done.output
        (said,) = json.loads(done.stdout)
        assert_corrected(tracker)
        corrections.write_text('{"topic": "tracker-events", "partition": 0, "offset": 99, "value": ""}')
        failed = CliRunner().invoke(app, ["replay", "silver.tracker_events", "--corrections", str(corrections)])
    # Of five, one is wrong still, and one has no key.
    assert (said["replayed"], said["replayed into silver"], said["dagster/row_count"]) == (3, 2, 3)
    assert failed.exit_code == 1
    assert "tracker-events/0/99" in failed.output


@pytest.mark.long
@pytest.mark.parametrize("at", ["merge", "quarantine", "account"])
def test_a_replay_may_die_before_any_of_its_writes_and_a_rebuild_keeps_what_it_did(
    tracker: Lakehouse, corrections: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    append(tracker, CORRECTED)
    stream(tracker.spark)
    write_corrections(tracker.spark, QUARANTINE, read_corrections(corrections))
    replay_dies(tracker, monkeypatch, at)
    assert replay(tracker.spark).numbers["accepted"] == 2
    assert_corrected(tracker)

    rows, found = silver_rows(tracker), counts(tracker)
    assert replay(tracker.spark).numbers == dict.fromkeys(NUMBERS, 0)
    write_corrections(tracker.spark, QUARANTINE, read_corrections(corrections))
    stream(tracker.spark, full_refresh=True)
    assert silver_rows(tracker) == rows
    assert set(in_quarantine(tracker)) == {record.place for record in CORRECTED[4:]}
    assert counts(tracker) | {"bronze": found["bronze"]} == found
    assert replay(tracker.spark).numbers["accepted"] == 0


def test_the_asset_tells_what_it_did_and_its_checks_pass(tracker: Lakehouse, tmp_path: Path) -> None:
    append(tracker, [*CORRECTED, Record(6, text(steps=1, model=None)), Record(7, text(kcal=-1))])
    resources = {"spark": tracker.spark, "duckdb": tracker.another_duckdb(), "catalog": tracker.catalog}
    checks = [history_checks(TRACKER_EVENTS), history_checks(QUARANTINE), events_reconciled]
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        done = dg.materialize([tracker_events, *tracker_gold_assets, *checks], instance=instance, resources=resources)
    assert done.success
    verdicts = {found.check_name: found for found in done.get_asset_check_evaluations() if found.check_name in _NAMES}
    assert set(verdicts) == set(_NAMES)
    failed = {name for name, found in verdicts.items() if not found.passed}
    assert failed == {
        *("value_is_readable", "types_as_declared", "user_is_given", "not_from_the_future"),
        *("kcal_is_not_negative", "fields_are_known", "model_is_given", "one_event_for_user_and_time"),
    }
    assert {found.severity for found in verdicts.values()} == {dg.AssetCheckSeverity.WARN}
    kcal = verdicts["kcal_is_not_negative"].metadata
    assert (kcal["rows"].value, kcal["failed"].value, kcal["failed rate"].value) == (8, 1, 0.125)
    assert '\\"kcal\\": -1' in str(kcal["examples"].value)
    others = [found for found in done.get_asset_check_evaluations() if found.check_name not in _NAMES]
    assert [found.check_name for found in others if not found.passed] == []
    (event,) = done.asset_materializations_for_node("tracker_events")[:1]
    assert {name: event.metadata[name].value for name in NUMBERS} == {
        "records": 8,
        "accepted": 1,
        "dropped": 1,
        "quarantined": 5,
        "late": 0,
        "duplicates": 1,
    }
    # Numbers, which Dagster plots.
    numbers = {name: value.value for name, value in event.metadata.items() if isinstance(value.value, int | float)}
    assert {"inputRowsPerSecond", "batches"} < set(numbers)
    assert (numbers["state rows"], numbers["numBytesOutstanding"]) == (0, 0)
    assert numbers["processedRowsPerSecond"] > 0
    assert {name: numbers[f"failed {name}"] for name in _NAMES} == {
        name: found.metadata["failed"].value for name, found in verdicts.items()
    }
    (minute,) = tracker.spark.rows(tracker.spark.table(HEART_RATE_MINUTE))
    assert (minute["events"], minute["users"], minute["mean_heart_bpm"], minute["model"]) == (1, 1, 70.0, "unknown")
    (day,) = tracker.spark.rows(tracker.spark.table(DEVICE_DAILY))
    assert (day["day_utc"], day["events"], day["versions"], day["kcal"]) == (dt.date(2026, 1, 1), 1, 1, 3)


_NAMES = tuple(rule.name for rule in EXPECTATIONS.all)


def test_an_expectation_that_fails_stops_the_batch(
    tracker: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tracker, [Record(0, text()), Record(1, text(model="zz", time="2026-01-01T12:01:00Z"))])
    rules = tuple(
        replace(rule, predicate="model <> 'zz'", action=Action.FAIL) if rule.name == "model_is_given" else rule
        for rule in EXPECTATIONS.rules
    )
    before = versions(tracker)
    with monkeypatch.context() as patched:
        patched.setattr(tracker_stream, "EXPECTATIONS", replace(EXPECTATIONS, rules=rules))
        with pytest.raises(ExpectationFailed, match=r"2 records was not committed.*model_is_given \(1\)") as caught:
            stream(tracker.spark)
    assert versions(tracker) == before
    results = {
        found.check_name: found
        for found in check_results(
            replace(EXPECTATIONS, rules=rules), asset_key(TRACKER_EVENTS), validation_result(caught.value.counted)
        )
    }
    found = results["model_is_given"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert '\\"zz\\"' in str(found.metadata["examples"].value)
    # When the cause is gone it goes on with the same records.
    assert stream(tracker.spark).numbers["accepted"] == 2


def test_what_a_stream_died_of_is_said() -> None:
    died = [
        "[STREAM_FAILED] Query",
        "Traceback:",
        "  File x",
        "pyspark.X.ParseException: ",
        "[PARSE] near 'x'",
        "JVM stacktrace:",
    ]
    assert str(stopped("\n".join([*died, "a.BException: y"]))).endswith("pyspark.X.ParseException: [PARSE] near 'x'")
    assert str(stopped("Broken\nmore")).endswith("Broken")


def test_corrections_are_read_or_refused_as_a_whole(tmp_path: Path) -> None:
    (file := tmp_path / "c.jsonl").write_text('{"topic": "t", "partition": 0, "offset": 1, "value_base64": "AAE="}\n\n')
    assert read_corrections(file) == [Correction("t", 0, 1, b"\0\1")]
    for bad in (
        "{",
        "[]",
        '{"topic": "t"}',
        '{"topic": "t", "partition": 0, "offset": "x", "value": 1}',
        '{"topic": "t", "partition": 0, "offset": 1, "value_base64": "?"}',
    ):
        file.write_text(f'{{"topic": "t", "partition": 0, "offset": 1, "value": {{}}}}\n{bad}')
        with pytest.raises(BadCorrection, match="line 2"):
            read_corrections(file)
