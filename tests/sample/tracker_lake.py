"""The tracker's tables on the run's stack: what is in them, and how records get there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from components.checks.reconciliation import records_reconciled
from ingest.records.record_source import SourceOptions
from ingest.records.record_stream import ingest
from resources.kafka.kafka_client import Kafka
from tests.resources.lakehouse import Lakehouse
from tests.resources.topic_retention import KEPT, delete_records
from tests.sample.tracker_declared import (
    DEVICE_DAILY,
    HEART_RATE_MINUTE,
    QUARANTINE,
    STREAM,
    TRACKER_EVENTS,
    TRACKER_EVENTS_RAW,
    refined_assets,
)
from tests.sample.tracker_records import (
    EVENT,
    Expected,
    Record,
    text,
    wrapped,
)

NUMBERS = ("records", "accepted", "dropped", "quarantined", "late", "duplicates")


ALL = (*STREAM.tables, TRACKER_EVENTS_RAW, HEART_RATE_MINUTE, DEVICE_DAILY)


# How a person puts back into bronze what a refresh took out of it: as docs/expectations.md says it.
PUT_BACK = """
INSERT INTO {raw} SELECT old.* FROM {raw} VERSION AS OF {version} AS old LEFT ANTI JOIN {raw} AS now
ON old.topic = now.topic AND old.partition = now.partition AND old.offset = now.offset
"""


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
        return STREAM.reconciliation.counts(session)


def versions(lake: Lakehouse) -> list[int]:
    return [lake.version(table) for table in STREAM.tables]


def assert_all_is(lake: Lakehouse, wanted: Expected) -> None:
    """The tables and the ledger hold just what plain Python says."""
    assert silver_rows(lake) == wanted.rows
    assert in_quarantine(lake) == {one.record.place: one.failed for one in wanted.aside}
    found = counts(lake)
    assert {name: found[name] for name in wanted.numbers} == wanted.numbers
    assert records_reconciled(found).passed, records_reconciled(found).description


@dataclass
class Feed:
    """A topic and the bronze table that it is read into."""

    lake: Lakehouse
    kafka: Kafka
    topic: str

    def send(self, records: Iterable[Record]) -> list[Record]:
        """Send records; return them as the topic has them."""
        self.kafka.ensure_topic(self.topic, 2, KEPT)
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


def materialized(lake: Lakehouse) -> dict[str, int]:
    """Materialize silver and gold; return how many records failed each expectation."""
    done = dg.materialize(refined_assets(), resources={"spark": lake.spark})
    found = {check.check_name: check.metadata["failed"].value for check in done.get_asset_check_evaluations()}
    return {name: int(str(failed)) for name, failed in found.items() if failed}


def made_of_bronze(lake: Lakehouse) -> dict[str, list[str]]:
    """All rows of silver, quarantine and gold, but for the time at which they were entered."""
    frames = {table.name: lake.spark.table(table) for table in (TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)}
    return {name: sorted(map(repr, lake.spark.rows(frame.drop("quarantined_at")))) for name, frame in frames.items()}


CORRECTED = [
    Record(0, text()),
    Record(1, b'{"time": "2026-01-01T12:00'),
    Record(2, text(heart_bpm="70", time="2026-01-01T12:01:00Z")),
    Record(3, text(time="2027-01-01T12:00:00Z")),
    Record(4, wrapped(EVENT | {"heart_bpm": "x"})),
    Record(5, text(), key=None),
]
