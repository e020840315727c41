"""Records of transactions, and topics that are compacted or expire: what bronze has of them, and what its check says."""

import random
import time
from collections.abc import Generator, Iterator
from uuid import uuid4

import dagster as dg
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # pyright: ignore[reportPrivateImportUsage]

from ratify_lakehouse.components.checks.check_definitions import offsets_check
from ratify_lakehouse.components.checks.offset_checks import PARTITIONS, Accounted, Partition
from ratify_lakehouse.components.checks.topic_comparison import Accounting, TopicComparison
from ratify_lakehouse.components.stream.record_table import RecordTable, record_table
from ratify_lakehouse.errors import StreamFailed
from ratify_lakehouse.ingest.records.kafka_records import KafkaSource
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.kafka.kafka_transactions import up_to_last_record
from tests.components.event_tables import declared_events
from tests.components.topic_model import STEPS, TopicModel
from tests.engines.flink_client import eventually
from tests.engines.lakehouse import Lakehouse
from tests.ingest.topic_streamer import raw_table
from tests.kafka.topic_retention import delete_records
from tests.kafka.transactions import Transactions, readable, transactions

pytestmark = pytest.mark.stack


@pytest.fixture
def producer(kafka: Kafka, fresh_topic: str) -> Generator[Transactions]:
    with transactions(kafka, fresh_topic) as made:
        yield made


@pytest.fixture
def events(lake: Lakehouse, fresh_topic: str) -> Generator[RecordTable]:
    events = declared_events(f"raw_{uuid4().hex[:8]}", fresh_topic)
    lake.create(events.declaration)
    yield events
    lake.drop(events.declaration)


def test_committed_records_are_read_and_the_check_tells_a_loss_from_marks(
    lake: Lakehouse, kafka: Kafka, fresh_topic: str, events: RecordTable, producer: Transactions
) -> None:
    table = events.declaration

    def check(instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
        resources = {"kafka": kafka, "spark": lake.spark, "duckdb": lake.duckdb}
        assets, only = [record_table(events), offsets_check(table)], dg.AssetSelection.all_asset_checks()
        (found,) = dg.materialize(
            assets, selection=only, instance=instance, resources=resources
        ).get_asset_check_evaluations()
        return found

    def offsets() -> list[int]:
        return [row["offset"] for row in lake.look(f'SELECT "offset" FROM uc.{table.table_name} ORDER BY 1')]

    kafka.ensure_topic(fresh_topic)
    with transactions(kafka, f"{fresh_topic}-open") as other, dg.DagsterInstance.ephemeral() as instance:
        producer.commit([(fresh_topic, 0, "a")] * 3)
        producer.abort([(fresh_topic, 0, "b")] * 2)
        producer.commit([(fresh_topic, 0, "a")])
        other.send([(fresh_topic, 0, "c")] * 2)
        done = ingest(kafka, lake.spark, table, events.options)
        # The marks are 3, 6 and 8; 9 and 10 are not committed yet, and nobody waits for them.
        assert (offsets(), done.behind, done.position) == ([0, 1, 2, 7], 0, {fresh_topic: {0: 9}})
        source = KafkaSource(kafka, SourceOptions(topics=[fresh_topic]))
        assert not source.status({"offsets": {fresh_topic: {"0": 9}}}).has_new
        assert source.status({"offsets": {fresh_topic: {"0": 7}}}).has_new
        # The last record is what a reader like Flink comes to.
        assert up_to_last_record(kafka, [fresh_topic], "read_committed").latest == {fresh_topic: {0: 8}}
        assert up_to_last_record(kafka, [fresh_topic], "read_uncommitted").latest == {fresh_topic: {0: 11}}
        found = check(instance)
        assert (found.passed, found.metadata["without a record"].value) == (True, 4)
        # A row that is lost stays so when the topic has forgotten everything.
        lake.quick(f"DELETE FROM {lake.full(table)} WHERE offset = 1")
        delete_records(kafka, {fresh_topic: {0: 9}})
        found = check(instance)
        assert (found.passed, found.metadata["missing"].value, found.metadata["without a record"].value) == (False, 1, 4)
        # As a stream of uncommitted records has read them.
        row = "NULL::BLOB, NULL::BLOB, '{}', 0, unnest([9, 10])::BIGINT, NULL::TIMESTAMPTZ, NULL::INT, NULL"
        lake.insert(table, f"SELECT {row.format(fresh_topic)}")
        with pytest.raises(StreamFailed, match=f"still open: {fresh_topic}/0"):
            ingest(kafka, lake.spark, table, events.options)


COMPACTED = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "50",
    "delete.retention.ms": "0",
}
ROUNDS, LOOKS, CLOSES = 8, (3, 7), {4: True, 6: False}
_NAMES = [name for name in STEPS if name not in {"close", "compact", "ingest_open"}]


def rounds(chance: random.Random, partitions: int) -> Iterator[dict[int, tuple[str, int]]]:
    """For each round a step of each partition; each partition begins with records in its table."""
    for number in range(ROUNDS):
        name = ("commit", "ingest")[number] if number < 2 else ""
        yield {at: (name or chance.choice(_NAMES), chance.randint(1, 3)) for at in range(partitions)}


class Topic:
    """A topic, and a table of its records, whose partitions do what their models do."""

    def __init__(self, kafka: Kafka, name: str, lake: Lakehouse, partitions: int, **config: str) -> None:
        self.kafka, self.name, self.lake = kafka, name, lake
        self.models = {at: TopicModel() for at in range(partitions)}
        self.table = raw_table(f"raw_{uuid4().hex[:8]}")
        lake.create(self.table)
        kafka.ensure_topic(name, partitions, config)

    def step(self, steps: dict[int, tuple[str, int]], producer: Transactions, other: Transactions) -> None:
        """Do a step of each partition; all of one kind are of one transaction."""
        before = {at: (len(model.log), set(model.table), model.earliest) for at, model in self.models.items()}
        for at, (name, count) in steps.items():
            STEPS[name](self.models[at], count)
        with self.kafka.producer() as plain:
            for at in self._sent("plain", steps, before):
                plain.produce(self.name, None, partition=at)
        for kind, send in (("commit", producer.commit), ("abort", producer.abort), ("open", other.send)):
            if sent := self._sent(kind, steps, before):
                send([(self.name, at, "k") for at in sent])
        if begins := {at: model.earliest for at, model in self.models.items() if model.earliest > before[at][2]}:
            delete_records(self.kafka, {self.name: begins})
        self.write({at: (before[at][1], model.table) for at, model in self.models.items()})

    def _sent(self, kind: str, steps: dict[int, tuple[str, int]], before: dict[int, tuple[int, set[int], int]]) -> list[int]:
        """The partitions of the records of a kind, without the marks of transactions."""
        grown = {at: len(self.models[at].log) - before[at][0] for at, (name, _) in steps.items() if name == kind}
        return [at for at, count in grown.items() for _ in range(count - (kind in {"commit", "abort"}))]

    def close(self, other: Transactions, *, commit: bool) -> None:
        """End the open transaction."""
        if other.is_open:
            other.end(commit=commit)
        for model in self.models.values():
            model.close(2 if commit else 1)

    def write(self, tables: dict[int, tuple[set[int], set[int]]]) -> None:
        """Make the rows of partitions others than they were."""
        added = [f"({at}, {offset})" for at, (was, now) in tables.items() for offset in now - was]
        lost = [f"(partition = {at} AND offset = {offset})" for at, (was, now) in tables.items() for offset in was - now]
        if added:
            columns = f"NULL::BLOB, NULL::BLOB, '{self.name}', p::INT, n::BIGINT, NULL::TIMESTAMPTZ, NULL::INT, NULL"
            self.lake.insert(self.table, f"SELECT {columns} FROM (VALUES {', '.join(added)}) AS v(p, n)")
        if lost:
            self.lake.quick(f"DELETE FROM {self.lake.full(self.table)} WHERE {' OR '.join(lost)}")

    def check(self, known: Accounting | None) -> tuple[dict[str, int], Accounting]:
        """The records that the check says are lost, and what it has found."""
        lake = self.lake
        found = lake.spark.rows(lake.spark.sql(PARTITIONS, raw=lake.spark.table(self.table)))
        now = Accounting("id", lake.version(self.table))
        comparison = TopicComparison(self.kafka, lake.spark, self.table, "read_committed")
        lost, after = comparison.lost([Partition(**row) for row in found], {}, known, now)
        return {name: count for name, count in lost.items() if count}, Accounting.read(after.json)


@pytest.mark.long
def test_partitions_at_random_and_what_the_model_says_of_them(
    lake: Lakehouse, kafka: Kafka, fresh_topic: str, producer: Transactions
) -> None:
    topic, known, expected = Topic(kafka, fresh_topic, lake, 16), None, dict[str, int]()
    with transactions(kafka, f"{fresh_topic}-open") as other:
        for number, steps in enumerate(rounds(random.Random(49), 16)):  # noqa: S311
            if number in CLOSES:
                topic.close(other, commit=CLOSES[number])
            topic.step(steps, producer, other)
            if number in LOOKS:
                given = kafka.offset_range([fresh_topic], "read_committed")
                assert given.latest[fresh_topic] == {at: model.stable for at, model in topic.models.items()}
                seen = readable(kafka, fresh_topic, given.earliest)
                assert seen == {at: model.readable() for at, model in topic.models.items()}
                expected = {f"{fresh_topic}/{at}": count for at, model in topic.models.items() if (count := model.lost())}
                lost, known = topic.check(known)
                assert (number, lost) == (number, expected)
    assert expected


def test_a_compacted_topic_has_no_losses_but_real_ones(
    lake: Lakehouse, kafka: Kafka, fresh_topic: str, producer: Transactions
) -> None:
    clean_at_once(kafka)
    topic = Topic(kafka, fresh_topic, lake, 1, **COMPACTED)
    producer.commit([(fresh_topic, 0, key) for key in "abbb"])
    # A segment of a record that is 50 ms older than the next one ends before that, and may be compacted.
    time.sleep(0.06)
    producer.commit([(fresh_topic, 0, "c")])
    eventually(lambda: readable(kafka, fresh_topic, {fresh_topic: {0: 0}}) == {0: {0, 3, 5}})
    topic.write({0: (set(), {0, 3, 5})})
    lost, found = topic.check(None)
    assert (lost, found.partitions) == ({}, {f"{fresh_topic}/0": Accounted(0, 6, 3, 0)})
    topic.write({0: ({0, 3, 5}, {0, 5})})
    assert topic.check(found)[0] == {f"{fresh_topic}/0": 1}


def clean_at_once(kafka: Kafka) -> None:
    """Have the broker compact topics ten times a second, and not every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    with kafka._admin() as (admin, ask):
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        ask(lambda: admin.incremental_alter_configs([broker]))
