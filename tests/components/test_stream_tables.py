"""Tables of streams that are declared in YAML, as docs/own-tables.md declares one, on records that are put into bronze."""

import datetime as dt
import re
import threading
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.reconciliation import records_reconciled
from ratify_lakehouse.components.stream import quarantine_replay
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.micro_batch import batch_function
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.engines.duckdb.layout_migration import migrate
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.streaming_query import Batch, StreamOptions
from ratify_lakehouse.errors import QueryMismatch, WrittenAfterErasure
from ratify_lakehouse.ingest.records.record_source import RECORD
from ratify_lakehouse.table_layout import Layout
from tests.components.incremental_tables import moved
from tests.components.stream_rows import put_validated
from tests.components.test_yaml_tables import FILES, Project, project
from tests.engines.lakehouse import Lakehouse
from tests.ingest.record_rows import put_records

__all__ = ["project"]

pytestmark = pytest.mark.stack

RECORDS, EVENTS, QUERY = (
    FILES[f"{name}"] for name in ("bronze/clicks/defs.yaml", "silver/clicks/defs.yaml", "silver/clicks/clicks.sql")
)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LATE = NOON + dt.timedelta(hours=2)


class Clicks:
    """A declared table of records, into which a test puts some, and streams from it."""

    def __init__(self, lake: Lakehouse, project: Project) -> None:
        self.lake, self.project, self.offset = lake, project, 0
        self.created = self.divided = False
        project.write("bronze", "clicks", RECORDS)

    def stream(self, table: str, declaration: str, query: str) -> EventStream:
        self.project.write("silver", table, declaration, query)
        found = {stream.table.name: stream for stream in self.project.tables.streams}
        if not self.created:
            self.lake.create(self.records)
            self.created = True
        for written in found[table].written:
            self.lake.create(written)
        self.lake.spark.ensure_table(STREAM_BATCHES)
        return found[table]

    @property
    def records(self) -> TableDeclaration:
        return self.project.tables.record_tables[0].declaration

    def send(self, *records: tuple[str | None, str] | tuple[str | None, str, dt.datetime]) -> None:
        """Records of a key, a value, and a time, which is noon by default."""
        rows = [
            (key and key.encode(), value.encode(), "clicks", 0, self.offset + number, at[0] if at else NOON, 0, None)
            for number, (key, value, *at) in enumerate(records)
        ]
        self.offset += len(rows)
        if not self.divided:
            put_records(self.lake, self.records, rows)
            return
        # DuckDB writes to no table with partitions.
        columns = ", ".join(f"`{column.name}` {column.type}" for column in RECORD)
        frame = self.lake.spark.session.createDataFrame(rows, columns)
        frame.write.format("delta").mode("append").saveAsTable(self.lake.full(self.records))

    def divide(self, *by: str) -> None:
        """Divide the table of records into other partitions, or none."""
        name = self.lake.full(self.records)
        with closing(self.lake.another_duckdb()) as duckdb, duckdb.session() as session:
            assert migrate(session, duckdb.catalog, duckdb.log(name), name, Layout(by))
        self.divided = bool(by)

    def validate(self, stream: EventStream, *batches: str) -> None:
        """Validate the records of each condition as a batch, without a stream, whose start takes most of its time."""
        function = batch_function(stream.batch_statements(self.lake.spark, "c"))
        for number, records in enumerate(batches):
            with self.lake.spark.isolated_session() as session:
                function(session.table(self.lake.full(self.records)).where(records), number)

    def fence(self, stream: EventStream) -> None:
        """Fence all tables of a stream, as an erasure does."""
        for table in (*stream.tables, self.records):
            self.lake.duckdb.log(self.lake.full(table)).commit(fencing, partitioned=True)

    def counts(self, stream: EventStream) -> Mapping[str, int]:
        with self.lake.duckdb.session() as session:
            session.attach()
            return stream.reconciliation.counts(session)

    def rows(self, stream: EventStream, columns: str) -> list[tuple[Any, ...]]:
        return [
            tuple(row.values()) for row in self.lake.look(f"SELECT {columns} FROM uc.{stream.table.table_name} ORDER BY ALL")
        ]


@pytest.fixture
def clicks(lake: Lakehouse, project: Project) -> Clicks:
    return Clicks(lake, project)


def click(minute: int, page: str = "home") -> str:
    return f'{{"at": "2026-01-01T12:{minute:02}:00Z", "page": "{page}"}}'


def test_the_example_of_the_page_accounts_for_every_record(clicks: Clicks) -> None:
    stream = clicks.stream("clicks", EVENTS, QUERY)
    clicks.send(("ann", click(1)), ("ann", click(2)), ("bob", click(1)), (None, click(1)), ("cid", "{"))
    # The same key again, later by Kafka's clock, and an event that comes two hours late.
    clicks.send(("ann", click(1, "cart"), NOON + dt.timedelta(minutes=2)), ("dan", click(0), LATE))
    clicks.validate(stream, "true")
    assert clicks.rows(stream, '"user", minute(clicked_at) AS minute, page') == [
        ("ann", 1, "cart"),
        ("ann", 2, "home"),
        ("bob", 1, "home"),
    ]
    found = clicks.counts(stream)
    counted = {"records": 7, "accepted": 3, "dropped": 0, "quarantined": 2, "late": 1, "duplicates": 1}
    assert {name: found[name] for name in counted} == counted
    assert records_reconciled(found).passed, records_reconciled(found).description
    assert {column.name for column in stream.quarantine.columns if column.pii} == {"key", "value", "headers", "corrected"}
    assert stream.shown.columns[1].sources == (f"{clicks.project.schema('bronze')}.clicks.value",)


@pytest.mark.parametrize("started_again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_stream_that_runs_goes_on_after_the_fence_of_an_erasure(clicks: Clicks, started_again: bool) -> None:
    """Its tables are fenced between two batches, and before its next start; no record is lost or doubled."""
    stream, spark, stop, batches = clicks.stream("clicks", EVENTS, QUERY), clicks.lake.spark, threading.Event(), list[int]()

    def after_a_batch(_: Batch) -> None:
        batches.append(1)
        if len(batches) > 1:
            stop.set()
            return
        clicks.fence(stream)
        clicks.send(("bob", click(3)))

    # Each batch writes to one table besides the ledger, the first of two starts to none: a write takes most of its time.
    if started_again:
        clicks.send(("ann", click(1), LATE))
        assert stream.run(spark).numbers["late"] == 1
        clicks.fence(stream)
    begun = stream_checkpoints.current(spark, stream.table)
    clicks.send((None, click(2)))
    done = stream.run(spark, options=StreamOptions(every=1, stop=stop, on_batch=after_a_batch))
    assert done.numbers == {"records": 2, "accepted": 1, "dropped": 0, "quarantined": 1, "late": 0, "duplicates": 0}
    assert not started_again or stream_checkpoints.current(spark, stream.table) == begun
    assert clicks.rows(stream, '"user"') == [("bob",)]
    found = clicks.counts(stream)
    assert records_reconciled(found).passed, records_reconciled(found).description


# The fence beside a stream is in the test above; the sample has a replay without one.
@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
def test_a_replay_beside_an_erasure_has_read_its_records_before(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """It says so, and the next one does not."""
    stream, spark = clicks.stream("clicks", EVENTS, QUERY), clicks.lake.spark
    stream_checkpoints.begin(spark, stream.table)
    clicks.send((None, click(1)), (None, click(2)))
    aside = [
        {"value": click(offset + 1).encode(), "topic": "clicks", "partition": 0, "offset": offset, "timestamp": NOON}
        for offset in range(2)
    ]
    put_validated(clicks.lake, stream, [], aside)
    fence = partial(clicks.fence, stream)
    with moved(monkeypatch, quarantine_replay, "batch_function", fence), pytest.raises(WrittenAfterErasure, match="again"):
        stream.replay(spark)
    if again:
        stream.replay(spark)
    found = clicks.counts(stream)
    assert (found["quarantine"], found["records"]) == (2, 2)
    assert records_reconciled(found).passed, records_reconciled(found).description


@pytest.mark.long
def test_records_that_are_divided_otherwise(clicks: Clicks, caplog: pytest.LogCaptureFixture) -> None:
    """After all were read the stream goes on; before that it is computed again, for it would read NULL in the partitions."""
    stream = clicks.stream("clicks", EVENTS, QUERY)
    clicks.send(("ann", click(1)))
    stream.run(clicks.lake.spark)
    clicks.divide("topic")
    clicks.send(("ann", click(2)))
    assert stream.run(clicks.lake.spark).numbers["records"] == 1
    assert "starts from the beginning" not in caplog.text
    clicks.send(("bob", click(3)))
    clicks.divide()
    clicks.send(("bob", click(4)))
    assert stream.run(clicks.lake.spark).numbers["records"] == 4
    assert "starts from the beginning" in caplog.text
    assert clicks.rows(stream, '"user", minute(clicked_at) AS minute, topic') == [
        *(("ann", 1, "clicks"), ("ann", 2, "clicks"), ("bob", 3, "clicks"), ("bob", 4, "clicks"))
    ]
    assert records_reconciled(clicks.counts(stream)).passed


@pytest.mark.parametrize("batches", [("offset < 4", "offset >= 4"), pytest.param(("true",), marks=pytest.mark.long)])
def test_keys_of_any_type_and_null_have_one_row_however_the_stream_is_cut(clicks: Clicks, batches: tuple[str, ...]) -> None:
    declaration = "\n".join(
        (
            *(
                "type: ratify_lakehouse.StreamTable",
                "attributes:",
                "  description: The last page of each user",
                "  keys: [user]",
            ),
            *("  columns:", "    - {name: user, type: string}", "    - {name: order, type: string}"),
        )
    )
    query = re.sub(r"(?s)  try_validate_utf8.*readable", "  CAST(key AS STRING) AS user, click.page AS `order`", QUERY)
    stream = clicks.stream("last_pages", declaration, query)
    at = [(minute, NOON + dt.timedelta(minutes=minute)) for minute in (1, 2, 3)]
    clicks.send(*((key, click(minute, str(minute)), sent) for minute, sent in at for key in ("ann", None)))
    clicks.validate(stream, *batches)
    assert clicks.rows(stream, '"user", "order"') == [("ann", "3"), (None, "3")]
    counted = clicks.counts(stream)
    assert records_reconciled(counted).passed
    assert (counted["records"], counted["accepted"], counted["duplicates"]) == (6, 2, 4)


def test_a_query_of_other_types_than_declared_writes_nothing(clicks: Clicks) -> None:
    stream = clicks.stream("typed", EVENTS.replace("{name: page, type: string}", "{name: page, type: int}"), QUERY)
    clicks.send(("ann", click(1)))
    with pytest.raises(QueryMismatch, match=r"column page: its declared type is int, but the query returns string"):
        stream.run(clicks.lake.spark)
    assert clicks.rows(stream, '"user"') == []
    star = clicks.stream("starred", EVENTS, "SELECT *, CAST(key AS STRING) AS user FROM bronze.clicks")
    with pytest.raises(QueryMismatch, match="the query returns no column 'clicked_at', only key, value"):
        star.run(clicks.lake.spark)


def test_several_tables_of_records_have_sensors_and_streams_of_their_own(clicks: Clicks) -> None:
    clicks.project.write("bronze", "orders", RECORDS.replace("[clicks]", "[orders]") + "  max_records: 7\n")
    tables = clicks.project.tables
    assert [(table.declaration.name, table.options.topics, table.options.max_records) for table in tables.record_tables] == [
        ("clicks", ["clicks"], 500_000),
        ("orders", ["orders"], 7),
    ]
    schema = clicks.project.schema("bronze")
    config = {
        asset.op.name: asset.op.config_schema.config_type
        for asset in tables.definitions.assets or ()
        if isinstance(asset, dg.AssetsDefinition)
    }
    (fields,) = [found.fields for name, found in config.items() if name == f"{schema}__orders"]
    assert (fields["topics"].default_value, fields["max_records"].default_value) == (["orders"], 7)
