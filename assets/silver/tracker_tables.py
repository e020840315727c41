"""The tracker's silver tables and their expectations: events typed, validated and each once.

A stream reads bronze and writes three tables: the events, those in quarantine, and the ledger of its batches. What decides
on a record is in the record itself, never in the clock or in how the stream was cut into batches, so that a rebuild from
bronze gives the same rows. A record is late if Kafka received it more than ALLOWED_LATENESS after its own time; of several
records with one key, the last by Kafka's timestamp is in the table.
"""

import datetime as dt
from pathlib import Path

from assets.bronze.tracker_events_raw import TRACKER_EVENTS_RAW
from components.checks.reconciliation import Reconciliation
from components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from components.stream.stream_ledger import STREAM_BATCHES
from resources.declarations import Column, Engine, TableDeclaration

ALLOWED_LATENESS = dt.timedelta(hours=1)
ALLOWED_AHEAD = dt.timedelta(minutes=5)
"""A tracker's clock may be ahead of Kafka's by so much."""


def _raw(*columns: str) -> tuple[str, ...]:
    return tuple(f"bronze.tracker_events_raw.{column}" for column in columns)


_POSITION = (
    Column("topic", "string", sources=_raw("topic")),
    Column("partition", "int", sources=_raw("partition")),
    Column("offset", "bigint", sources=_raw("offset")),
)

TRACKER_EVENTS = TableDeclaration(
    layer="silver",
    name="tracker_events",
    columns=(
        Column("user_id", "string", "The key of the Kafka record", _raw("key")),
        Column("time", "timestamp", "When it was measured (UTC)", _raw("value")),
        Column("version", "string", "Of the tracker's software", _raw("value")),
        Column("model", "string", "Of the tracker", _raw("value")),
        Column("heart_bpm", "int", "Heartbeats a minute", _raw("value")),
        Column("kcal", "int", "Kilocalories", _raw("value")),
        *_POSITION,
        Column("kafka_timestamp", "timestamp", "Kafka's timestamp of the record", _raw("timestamp")),
    ),
    comment="Events of fitness trackers: the last record for each user and time",
    writer=Engine.SPARK,
    # A rebuild deletes all rows first.
    operations=frozenset({"MERGE", "DELETE"}),
    keys=("user_id", "time"),
)

QUARANTINE = TableDeclaration(
    layer="silver",
    name="tracker_events_quarantine",
    columns=(
        Column("key", "binary", sources=_raw("key")),
        Column("value", "binary", "As it came", _raw("value")),
        Column("headers", "array<struct<key:string,value:binary>>", sources=_raw("headers")),
        *_POSITION,
        Column("timestamp", "timestamp", "Kafka's timestamp of the record", _raw("timestamp")),
        Column("reasons", "array<string>", "Names of the expectations that it fails"),
        Column("quarantined_at", "timestamp", "When it was first validated (UTC)"),
        Column("corrected", "binary", "A value that a replay reads in place of `value`"),
        Column("replayed_at", "timestamp", "When it left quarantine (UTC); NULL while it is there"),
    ),
    comment="Records of the tracker that fail an expectation, with the reasons, to be corrected and replayed",
    writer=Engine.SPARK,
    operations=frozenset({"WRITE", "MERGE", "DELETE", "UPDATE"}),
    keys=("topic", "partition", "offset"),
)

TRACKER_RECONCILIATION = Reconciliation(
    Path(__file__).with_name("tracker_reconciled.sql"),
    {"bronze": TRACKER_EVENTS_RAW, "silver": TRACKER_EVENTS, "quarantine": QUARANTINE, "ledger": STREAM_BATCHES},
)

STREAM = TRACKER_EVENTS.table_name
REPLAY = f"{STREAM}.replay"
ON_TIME, UNIQUE = "on_time", "one_event_for_user_and_time"


def _seconds(span: dt.timedelta) -> str:
    return f"INTERVAL {int(span.total_seconds())} SECONDS"


# A record that cannot be read fails that expectation alone; one with a wrong type does not also fail for the missing value.
EXPECTATIONS = Expectations(
    rules=(
        Expectation("value_is_readable", "readable", Action.QUARANTINE, "A JSON object, in UTF-8, or Avro"),
        Expectation("types_as_declared", "NOT readable OR typed", Action.QUARANTINE),
        Expectation("user_is_given", "user_id <> ''", Action.QUARANTINE, "The record's key, in UTF-8"),
        Expectation("time_is_given", "NOT (readable AND typed) OR time IS NOT NULL", Action.QUARANTINE),
        Expectation(
            "not_from_the_future",
            f"time IS NULL OR time <= kafka_timestamp + {_seconds(ALLOWED_AHEAD)}",
            Action.QUARANTINE,
            "The tracker's clock is wrong",
        ),
        Expectation("heart_rate_is_plausible", "heart_bpm IS NULL OR heart_bpm BETWEEN 20 AND 250", Action.DROP),
        Expectation("kcal_is_not_negative", "kcal IS NULL OR kcal >= 0", Action.DROP),
        Expectation(ON_TIME, f"time IS NULL OR time >= kafka_timestamp - {_seconds(ALLOWED_LATENESS)}", Action.DROP),
        Expectation("fields_are_known", "size(unknown_fields) = 0", Action.WARN, "Undeclared fields are not read"),
        Expectation("model_is_given", "NOT (readable AND typed) OR model IS NOT NULL", Action.WARN),
    ),
    identity=("topic", "partition", "offset"),
    example="to_json(struct(topic, partition, offset, make_valid_utf8(CAST(substring(value, 1, 200) AS STRING)) AS value))",
    unique=Unique(UNIQUE, TRACKER_EVENTS.keys, ("kafka_timestamp", "partition", "offset", "topic")),
    raw=("key", "value", "headers"),
)
