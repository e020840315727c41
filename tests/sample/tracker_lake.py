"""The tracker's tables on the run's stack: what is in them, and how records get there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.stream.micro_batch import batch_function
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.components.stream_rows import put_validated
from tests.engines.lakehouse import Lakehouse
from tests.kafka.topic_retention import MAINTAINED, delete_records
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


ALL = (*STREAM.written, TRACKER_EVENTS_RAW, HEART_RATE_MINUTE, DEVICE_DAILY)
OF_STREAM = f"stream IN ('{STREAM.name}', '{STREAM.replay_name}')"


# How a person puts back into bronze what a refresh took out of it: as docs/expectations.md says it.
PUT_BACK = """
INSERT INTO {raw} SELECT old.* FROM {raw} VERSION AS OF {version} AS old LEFT ANTI JOIN {raw} AS now
ON old.topic = now.topic AND old.partition = now.partition AND old.offset = now.offset
"""


def silver_rows(lake: Lakehouse) -> list[tuple[Any, ...]]:
    rows = lake.look(
        "SELECT user_id, strftime(time AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S') AS at, version, model, heart_bpm, kcal, "
        f'topic, partition, "offset" FROM uc.{TRACKER_EVENTS.table_name}'
    )
    return sorted(
        (r["user_id"], r["at"], *(str(r[n]) for n in ("version", "model", "heart_bpm", "kcal")), *list(r.values())[-3:])
        for r in rows
    )


def in_quarantine(lake: Lakehouse) -> dict[tuple[str, int, int], tuple[str, ...]]:
    rows = lake.look(f'SELECT topic, partition, "offset", reasons, replayed_at FROM uc.{QUARANTINE.table_name}')
    assert len({(r["topic"], r["partition"], r["offset"]) for r in rows}) == len(rows)
    return {(r["topic"], r["partition"], r["offset"]): tuple(r["reasons"]) for r in rows if r["replayed_at"] is None}


def ledger_entries(lake: Lakehouse) -> list[tuple[str, int]]:
    """The stream and the batch of each entry in the ledger, which other streams have entries in, too."""
    rows = lake.look(f"SELECT stream, batch_id FROM uc.{STREAM_BATCHES.table_name} WHERE {OF_STREAM} ORDER BY ALL")
    return [(row["stream"], row["batch_id"]) for row in rows]


def forget_entries(lake: Lakehouse) -> None:
    """Delete the entries of the stream from the ledger."""
    if ledger_entries(lake):
        delete = f"DELETE FROM {lake.full(STREAM_BATCHES)} WHERE {OF_STREAM}"
        lake.spark.commit(lake.full(STREAM_BATCHES), lambda: lake.run(delete))


def counts(lake: Lakehouse) -> dict[str, int]:
    with lake.duckdb.session() as session:
        session.attach()
        return STREAM.reconciliation.counts(session)


def versions(lake: Lakehouse) -> tuple[list[int], list[tuple[str, int]]]:
    """What each write moves: the versions of the stream's own tables, and its entries in the ledger."""
    return [lake.version(table) for table in STREAM.written], ledger_entries(lake)


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
        self.kafka.ensure_topic(self.topic, 2, MAINTAINED)
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


def validate_bronze(lake: Lakehouse, *batches: str) -> None:
    """Validate the records of each condition, by default all, as a batch; without a stream, whose start takes most time."""
    checkpoint = stream_checkpoints.begin(lake.spark, TRACKER_EVENTS)
    write = batch_function(STREAM.batch_statements(lake.spark, checkpoint.name))
    for number, records in enumerate(batches or ("true",)):
        with lake.spark.isolated_session() as session:
            write(session.table(lake.full(TRACKER_EVENTS_RAW)).where(records), number)


def made_of_bronze(lake: Lakehouse) -> dict[str, list[str]]:
    """All rows of silver, quarantine and gold, but for the time at which they were entered."""

    def rows(table: TableDeclaration) -> list[str]:
        found = lake.look(f"FROM uc.{table.table_name}")
        return sorted(repr({name: value for name, value in row.items() if name != "quarantined_at"}) for row in found)

    return {table.name: rows(table) for table in (TRACKER_EVENTS, QUARANTINE, HEART_RATE_MINUTE, DEVICE_DAILY)}


CORRECTED = [
    Record(0, text()),
    Record(1, b'{"time": "2026-01-01T12:00'),
    Record(2, text(heart_bpm="70", time="2026-01-01T12:01:00Z")),
    Record(3, text(time="2027-01-01T12:00:00Z")),
    Record(4, wrapped(EVENT | {"heart_bpm": "x"})),
    Record(5, text(), key=None),
]


def begin_corrected(lake: Lakehouse) -> None:
    """Leave the records of CORRECTED as a batch of the stream does: `test_tracker_events.py` shows what one does."""
    good, *bad = (
        {"topic": record.topic, "partition": record.partition, "offset": record.offset, "kafka_timestamp": record.at}
        for record in CORRECTED
    )
    aside = [
        {
            **place,
            "key": record.key,
            "value": record.value,
            "timestamp": record.at,
            "reasons": [],
            "quarantined_at": record.at,
        }
        for place, record in zip(bad, CORRECTED[1:], strict=True)
    ]
    stream_checkpoints.begin(lake.spark, TRACKER_EVENTS)
    put_validated(lake, STREAM, [{**EVENT, **good, "user_id": "ada"}], aside)
