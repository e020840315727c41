"""The tracker's events from bronze to gold: every record is accounted for, always."""

import datetime as dt
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import dagster as dg
import pytest

from ratify_lakehouse.cli.simulate_command import Simulation, send
from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.row_flow import ROW_FLOW
from ratify_lakehouse.components.stream.micro_batch import BatchStatements, batch_function
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.errors import ResetRefused
from tests.components.conftest import no_previews
from tests.engines.lakehouse import Lakehouse
from tests.sample.tracker_declared import (
    DEVICE_DAILY,
    EXPECTATIONS,
    HEART_RATE_MINUTE,
    QUARANTINE,
    STREAM,
    TRACKER_EVENTS,
    TRACKER_EVENTS_RAW,
    checks_of,
    refined_assets,
)
from tests.sample.tracker_lake import (
    ALL,
    CORRECTED,
    NUMBERS,
    PUT_BACK,
    Feed,
    assert_all_is,
    begin_corrected,
    counts,
    forget_entries,
    in_quarantine,
    ledger_entries,
    made_of_bronze,
    materialized,
    silver_rows,
    validate_bronze,
    versions,
)
from tests.sample.tracker_records import (
    NOON,
    Expected,
    Record,
    append,
    expected,
    made,
    text,
    without_unique,
)

__all__ = ["no_previews"]

pytestmark = [pytest.mark.stack, pytest.mark.locks("tables of the shipped events")]

_NAMES = tuple(rule.name for rule in EXPECTATIONS.all)


# A source that begins to send otherwise: a new field, one of another type, fields that are gone.
CHANGED = [
    Record(500, text(steps=5, time="2026-01-01T12:40:00Z"), at=NOON + dt.timedelta(minutes=40)),
    Record(501, text(heart_bpm={"bpm": 70})),
    Record(502, b'{"time": "2026-01-01T12:42:00Z"}', at=NOON + dt.timedelta(minutes=42)),
]


def begin_half_way(lake: Lakehouse) -> None:
    """Leave what a start does that was killed as it planned its first batch."""
    offsets = Path(stream_checkpoints.begin(lake.spark, TRACKER_EVENTS).url) / "offsets"
    offsets.mkdir()
    (offsets / ".0.half-written.tmp").touch()


def assert_gold_is(lake: Lakehouse, wanted: Expected) -> None:
    """The groups of gold have as many events as plain Python accepts."""
    events = [validated.event for validated in wanted.silver.values()]
    models = ["unknown" if each["model"] is None else each["model"] for each in events]
    minutes, days = (
        Counter(zip([each["time"].strftime(form) for each in events], models, strict=True))
        for form in ("%Y-%m-%d %H:%M", "%Y-%m-%d")
    )
    in_utc = "strftime(minute_utc AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M')"
    for table, group, groups in ((HEART_RATE_MINUTE, in_utc, minutes), (DEVICE_DAILY, "day_utc::VARCHAR", days)):
        found = lake.look(f"SELECT {group} AS at, model, events FROM uc.{table.table_name}")
        assert {(row["at"], row["model"]): row["events"] for row in found} == groups


def test_where_bronze_has_less_it_is_not_rebuilt(tracker: Lakehouse) -> None:
    """Created again, bronze is empty; silver keeps what it has, and says what to do."""
    lake = tracker
    begin_corrected(lake)
    before = silver_rows(lake)
    lake.drop(TRACKER_EVENTS_RAW)
    lake.create(TRACKER_EVENTS_RAW)
    stream_checkpoints.forget(lake.spark, TRACKER_EVENTS)
    with pytest.raises(ResetRefused, match=r"tracker-events/0: .*docs/expectations.md.*full_refresh: true"):
        STREAM.run(lake.spark)
    assert silver_rows(lake) == before != []
    assert in_quarantine(lake).keys() == {record.place for record in CORRECTED[1:]}


# test_tracker_validation.py compares how records are validated with plain Python; a test below has what a batch writes.
@pytest.mark.long
def test_in_batches_it_is_as_in_plain_python(tracker: Lakehouse) -> None:
    records = [*made(seed=2, count=500), *CHANGED]
    append(tracker, records)
    validate_bronze(tracker, "offset < 300", "offset >= 300")
    wanted = expected(records)
    assert wanted.numbers["duplicates"] > 20
    assert_all_is(tracker, wanted)


@pytest.mark.long
def test_in_any_cut_and_from_bronze_alone_when_no_topic_has_the_records_it_is_the_same(tracker: Lakehouse) -> None:
    lake, records = tracker, [*made(seed=2, count=500), *CHANGED]
    append(lake, records[:300])
    append(lake, records[300:])
    begin_half_way(lake)
    done = STREAM.run(lake.spark, max_files=1)
    wanted = expected(records)
    assert done.numbers["records"] == len(records)
    failed = {name: n for name, n in done.found.failed.items() if n}
    assert {name: failed[name] for name in without_unique(failed)} == wanted.failed
    assert wanted.numbers["duplicates"] > 20
    assert_all_is(lake, wanted)
    batches = ledger_entries(lake)
    assert len(batches) == len(set(batches)) > 1

    before = versions(lake)
    assert STREAM.run(lake.spark).numbers == dict.fromkeys(NUMBERS, 0)
    assert versions(lake) == before

    # Refreshed by force, bronze is empty; silver keeps what it has, and says what to do.
    lake.spark.truncate(lake.full(TRACKER_EVENTS_RAW))
    stream_checkpoints.forget(lake.spark, TRACKER_EVENTS)
    with pytest.raises(ResetRefused, match=r"tracker-events/0: .*docs/expectations.md.*full_refresh: true"):
        STREAM.run(lake.spark)
    assert silver_rows(lake) == wanted.rows
    assert in_quarantine(lake).keys() == {one.record.place for one in wanted.aside}

    # As one batch, into new tables.
    lake.drop(*ALL)
    for table in ALL:
        lake.create(table)
    forget_entries(lake)
    append(lake, records)
    validate_bronze(lake)
    assert_all_is(lake, wanted)


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
            STREAM.run(lake.spark)
    lake.run(PUT_BACK.format(raw=lake.full(TRACKER_EVENTS_RAW), version=version))
    assert STREAM.run(lake.spark).numbers["records"] == 2000
    assert made_of_bronze(lake) == whole
    assert records_reconciled(counts(lake)).passed
    # And where it is meant that way.
    assert feed.ingest(full_refresh=True, force=True) == 0
    assert STREAM.run(lake.spark, full_refresh=True).numbers["records"] == 0
    assert silver_rows(lake) == []
    # A lost checkpoint alone is a full refresh: the same code.
    records = feed.send(made(seed=4, count=300))
    assert feed.ingest() == 300
    STREAM.run(lake.spark)
    stream_checkpoints.forget(lake.spark, TRACKER_EVENTS)
    assert STREAM.run(lake.spark).numbers["records"] == 300
    assert_all_is(lake, expected(records))


# A replay that dies so is in tests/sample/test_tracker_replay.py, a continuous stream that is killed in test_stream.py.
@pytest.mark.long
def test_a_batch_that_died_half_way_or_comes_twice_changes_nothing(tracker: Lakehouse) -> None:
    records = made(seed=3, count=120)
    append(tracker, records)
    good = STREAM.batch_statements(tracker.spark, "c1")

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


@pytest.mark.usefixtures("no_previews")
def test_the_asset_tells_what_it_did_and_its_checks_pass(tracker: Lakehouse, tmp_path: Path) -> None:
    append(tracker, [*CORRECTED, Record(6, text(steps=1, model=None)), Record(7, text(kcal=-1))])
    begin_half_way(tracker)
    resources = {"spark": tracker.spark, "duckdb": tracker.another_duckdb(), "catalog": tracker.catalog}
    checks = checks_of(TRACKER_EVENTS, QUARANTINE)
    assert {"records_reconciled", "table_is_intact"} < {key.name for check in checks for key in check.check_keys}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        done = dg.materialize([*refined_assets(), *checks], instance=instance, resources=resources)
    assert done.success
    verdicts = {found.check_name: found for found in done.get_asset_check_evaluations() if found.check_name in _NAMES}
    assert set(verdicts) == set(_NAMES)
    failed = {name for name, found in verdicts.items() if not found.passed}
    assert failed == {
        *("value_is_readable", "types_as_declared", "user_is_given", "not_from_the_future"),
        *("kcal_is_not_negative", "fields_are_known", "model_is_given"),
    }
    assert {found.severity for found in verdicts.values()} == {dg.AssetCheckSeverity.WARN}
    kcal = verdicts["kcal_is_not_negative"].metadata
    assert (kcal["rows"].value, kcal["failed"].value, kcal["failed rate"].value) == (8, 1, 0.125)
    (example,) = cast("dg.TableMetadataValue", kcal["examples"]).records
    assert example.data["kcal"] in (-1, "-1")
    examples = [str(found.metadata["examples"].value) for found in verdicts.values() if not found.passed]
    assert examples
    assert not [example for example in examples if "user_id" in example], "it is personal"
    others = [found for found in done.get_asset_check_evaluations() if found.check_name not in _NAMES]
    assert [found.check_name for found in others if not found.passed] == []
    (event,) = done.asset_materializations_for_node("silver__tracker_events")[:1]
    assert {name: event.metadata[name].value for name in ROW_FLOW} == {
        "rows in": 8,
        "rows out": 1,
        "rows quarantined": 5,
        "rows dropped": 1,
        "duplicates": 1,
        "rows late": 0,
    }
    # Numbers, which Dagster plots.
    numbers = {name: value.value for name, value in event.metadata.items() if isinstance(value.value, int | float)}
    assert {"inputRowsPerSecond", "batches"} < set(numbers)
    assert (numbers["state rows"], numbers["numBytesOutstanding"]) == (0, 0)
    assert numbers["processedRowsPerSecond"] > 0
    assert {name: numbers[f"failed {name}"] for name in _NAMES} == {
        name: found.metadata["failed"].value for name, found in verdicts.items()
    }
    (minute,) = tracker.look(f"FROM uc.{HEART_RATE_MINUTE.table_name}")
    assert (minute["events"], minute["users"], minute["mean_heart_bpm"], minute["model"]) == (1, 1, 70.0, "unknown")
    (day,) = tracker.look(f"FROM uc.{DEVICE_DAILY.table_name}")
    assert (day["day_utc"], day["events"], day["versions"], day["kcal"]) == (dt.date(2026, 1, 1), 1, 1, 3)


@pytest.mark.long
def test_gold_has_what_silver_has(tracker: Lakehouse) -> None:
    records = made(seed=2, count=500)
    append(tracker, records)
    wanted = expected(records)
    failed = materialized(tracker)
    assert {name: n for name, n in failed.items() if without_unique([name])} == wanted.failed
    assert_gold_is(tracker, wanted)
    whole = made_of_bronze(tracker)
    assert materialized(tracker) == {}
    # Of new tables it is the same.
    tracker.drop(*STREAM.written, HEART_RATE_MINUTE, DEVICE_DAILY)
    assert {name: n for name, n in materialized(tracker).items() if without_unique([name])} == wanted.failed
    assert made_of_bronze(tracker) == whole
