"""What the tracker's expectations do with records: Spark validates as plain Python does, and no bytes stop it."""

from dataclasses import replace
from typing import cast

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.expectations.expectation_checks import check_results
from ratify_lakehouse.components.expectations.expectation_rules import Action
from ratify_lakehouse.components.expectations.validation import validation_result
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.errors import ExpectationFailed
from tests.components.stream_rows import put_validated
from tests.engines.lakehouse import Lakehouse
from tests.sample.tracker_declared import EXPECTATIONS, STREAM, TRACKER_EVENTS, UNIQUE
from tests.sample.tracker_lake import NUMBERS, counts, in_quarantine, versions
from tests.sample.tracker_records import (
    EVENT,
    NOON,
    RAW_SCHEMA,
    Record,
    append,
    avro,
    expected,
    made,
    text,
    validate,
    without_unique,
)

pytestmark = [pytest.mark.stack, pytest.mark.locks("tables of the shipped events")]


def test_spark_validates_as_plain_python_does(lake: Lakehouse) -> None:
    records = made(seed=1, count=1500)
    frame = lake.spark.session.createDataFrame([record.row for record in records], RAW_SCHEMA)
    frame.createOrReplaceTempView("tracker_records")
    query = EXPECTATIONS.validated(STREAM.parsed_sql(lake.spark, "tracker_records"))
    validated = f"SELECT *, unix_micros(time) AS us FROM ({query})"
    rows = {row["offset"]: row for row in lake.run(validated)}
    assert len(rows) == len(records)
    for one in map(validate, records):
        row = rows[one.record.offset]
        assert without_unique(row["failed"]) == one.failed, one
        assert row["decided_by"] in {one.decided_by, UNIQUE}, one
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
    found = lake.run(EXPECTATIONS.validated(STREAM.parsed_sql(lake.spark, "tracker_hostile")))
    assert {
        name: row["decided_by"] in _ASIDE
        for name, row in zip(HOSTILE, sorted(found, key=lambda r: r["offset"]), strict=True)
    } == dict.fromkeys(HOSTILE, True)


_ASIDE = EXPECTATIONS.named(Action.QUARANTINE)


def test_an_expectation_that_fails_stops_the_batch(tracker: Lakehouse) -> None:
    append(tracker, [Record(0, text()), Record(1, text(model="zz", time="2026-01-01T12:01:00Z"))])
    rules = tuple(
        replace(rule, predicate="model <> 'zz'", action=Action.FAIL) if rule.name == "model_is_given" else rule
        for rule in EXPECTATIONS.rules
    )
    before = versions(tracker)
    strict = replace(STREAM, expectations=replace(EXPECTATIONS, rules=rules))
    with pytest.raises(ExpectationFailed, match=r"2 records was not committed.*model_is_given \(1\)") as caught:
        strict.run(tracker.spark)
    assert versions(tracker) == before
    results = {
        found.check_name: found
        for found in check_results(strict.expectations, asset_key(TRACKER_EVENTS), validation_result(caught.value.counted))
    }
    stopped_by = results["model_is_given"]
    assert (stopped_by.passed, stopped_by.severity) == (False, dg.AssetCheckSeverity.ERROR)
    (example,) = cast("dg.TableMetadataValue", stopped_by.metadata["examples"]).records
    assert example.data["model"] == "zz"
    # When the cause is gone it goes on with the same records.
    assert STREAM.run(tracker.spark).numbers["accepted"] == 2
    assert records_reconciled(counts(tracker)).passed


def test_an_event_that_is_there_twice_and_one_that_no_record_brought_are_counted(tracker: Lakehouse) -> None:
    records = [Record(0, text()), Record(1, text(time="2026-01-01T12:01:00Z"))]
    append(tracker, records)
    sound = [
        {**EVENT, "time": f"2026-01-01T12:0{record.offset}:00Z", "user_id": "ada", "topic": record.topic, "partition": 0}
        | {"offset": record.offset, "kafka_timestamp": record.at}
        for record in records
    ]
    put_validated(tracker, STREAM, sound, [])
    assert records_reconciled(counts(tracker)).passed
    # One event is lost and the other is there twice, so that all sums agree.
    silver = tracker.full(TRACKER_EVENTS)
    tracker.quick(f"UPDATE {silver} SET `offset` = 0, time = TIMESTAMP '2026-01-01 12:00:00+00' WHERE `offset` = 1")
    found = counts(tracker)
    assert (found["silver"], found["accepted"], found["doubled"]) == (2, 2, 1)
    assert not records_reconciled(found).passed
    tracker.quick(f"UPDATE {silver} SET `offset` = `offset` + 9")
    assert counts(tracker)["orphans"] == 2


def test_what_a_stream_died_of_is_said() -> None:
    died = [
        "[STREAM_FAILED] Query",
        "Traceback:",
        "  File x",
        "pyspark.X.ParseException: ",
        "[PARSE] near 'x'",
        "JVM stacktrace:",
    ]
    assert str(STREAM.stopped("\n".join([*died, "a.BException: y"]))).endswith("pyspark.X.ParseException: [PARSE] near 'x'")
    assert str(STREAM.stopped("Broken\nmore")).endswith("Broken")


@pytest.mark.long
def test_records_that_are_all_malformed_and_one_of_ten_megabytes_are_set_aside(tracker: Lakehouse) -> None:
    records = [Record(number, text()[: 20 + number % 30]) for number in range(200)]
    append(tracker, [*records, Record(200, HOSTILE["ten megabytes, cut short"])])
    done = STREAM.run(tracker.spark)
    assert done.numbers == dict.fromkeys(NUMBERS, 0) | {"records": 201, "quarantined": 201}
    results = {found.check_name: found for found in check_results(EXPECTATIONS, asset_key(TRACKER_EVENTS), done.found)}
    readable = results["value_is_readable"]
    assert readable.metadata["failed rate"] == dg.MetadataValue.float(1.0)
    assert (readable.passed, readable.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert len(in_quarantine(tracker)) == 201
    assert records_reconciled(counts(tracker)).passed


def test_without_spark_avro_records_in_avro_are_unreadable_and_all_others_as_before(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [text(), avro(EVENT | {"time": NOON}), avro(EVENT | {"time": NOON}, header=True), b"\2no"]
    rows = [Record(number, value).row for number, value in enumerate(values)]
    lake.spark.session.createDataFrame(rows, RAW_SCHEMA).createOrReplaceTempView("tracker_avro")
    asked = "SELECT readable, typed, time IS NULL AS timeless FROM ({0}) ORDER BY offset"
    with_it = lake.run(asked.format(STREAM.parsed_sql(lake.spark, "tracker_avro")))
    monkeypatch.setattr("ratify_lakehouse.components.stream.event_stream._TRIAL", "SELECT raise_error('AVRO_NOT_LOADED')")
    without = STREAM.parsed_sql(lake.spark, "tracker_avro")
    assert "from_avro" not in without
    assert [row["readable"] for row in with_it] == [True, True, True, False]
    assert [tuple(row.values()) for row in lake.run(asked.format(without))] == [
        (True, True, False),
        *[(False, False, True)] * 3,
    ]
