"""The continuous mode, bronze and silver, whatever is killed with -9, and however often: itself, Spark, the broker."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.simulate_command import PARTITIONS, EventKind, Sent, Simulation, send
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES, account
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.project_tables import event_stream, record_tables
from ratify_lakehouse.embedded.embedded_stack import running, status
from ratify_lakehouse.embedded.stack_state import StackConfig, StackState
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.cli.ratify_command import RATIFY, environment, is_ours
from tests.conftest import say
from tests.engines.lakehouse import another_catalog
from tests.ingest.topic_streamer import assert_exact
from tests.killable import Killable

EVENTS, KILLS, PATIENCE_S = 500_000, 20, 600
(RECORDS,) = record_tables()
RAW, STREAM = RECORDS.declaration, event_stream()
# Silver's columns, and those of quarantine that do not tell when it was validated.
COMPARED: tuple[tuple[TableDeclaration, str], ...] = (
    (STREAM.table, "*"),
    (STREAM.quarantine, "key, value, topic, partition, offset, timestamp, reasons"),
)


class Streams(Killable):
    """`ratify stream run`, killed and started again."""

    def __init__(self, home: Path) -> None:
        command = [RATIFY, "stream", "run", "--every", "1", "--round-seconds", "20"]
        super().__init__(command, environment(home), home / "logs" / "chaos.log")

    def wait_until(self, check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not check():
            assert time.monotonic() < deadline, self.output
            # Nothing that is killed may end the streams: they go on by themselves.
            assert self.process.poll() is None, self.output
            time.sleep(0.5)


def alive(home: Path) -> StackState | None:
    """The stack, when all of it answers."""
    state = status(home)
    return state if state and state.spark and state.kafka else None


@pytest.mark.stack
@pytest.mark.long
def test_twenty_kills_of_anything_lose_and_double_nothing(
    tmp_path: Path, jars_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in [name for name in os.environ if is_ours(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RATIFY_HOME", str(home))
    chance = random.Random(4)  # noqa: S311 moments and victims
    sent = list[Sent]()
    with running(StackConfig(home=home, jars_dir=jars_dir, kafka=True), say) as state:
        kafka, catalog = Kafka(), another_catalog(state)
        (topic,) = RECORDS.source.topics
        kafka.ensure_topic(topic, PARTITIONS)
        sender = threading.Thread(target=lambda: sent.append(send(kafka, Simulation(EVENTS, rate=1000), topic)))
        sender.start()
        streams = Streams(home)
        try:
            for number in range(KILLS):
                # Of three kills one meets the streams starting; the others wait for a commit, so that they are at work.
                if number % 3 and not sent:
                    table = (RAW, STREAM.table)[number % 3 - 1]
                    before = version(catalog, table)
                    streams.wait_until(lambda table=table, before=before: bool(sent) or version(catalog, table) > before)
                time.sleep(chance.uniform(0, 5))
                streams.wait_until(lambda: alive(home) is not None)
                now = alive(home)
                assert now is not None
                assert now.spark is not None
                assert now.kafka is not None
                victim = chance.choice(("spark", "kafka", "run"))
                say(f"kill {number}: {victim}")
                if victim == "run":
                    streams.kill()
                else:
                    os.kill({"spark": now.spark.pid, "kafka": now.kafka.pid}[victim], signal.SIGKILL)
            sender.join()
            streams.wait_until(lambda: alive(home) is not None)
            # The producer writes each record once, so that the topic has no more than was sent.
            assert kafka.offset_range([topic]).behind({}) == sent[0].records == EVENTS
            with closing(Spark(catalog=catalog)) as spark:
                # Kills that come fast leave no time for a first batch of silver.
                streams.wait_until(lambda: version(catalog, STREAM_BATCHES) >= 0 and records_read(spark) == EVENTS)
                streams.process.send_signal(signal.SIGTERM)
                assert streams.process.wait(120) == 0, streams.output
                assert_exact(spark, kafka, RAW, topic)
                assert_as_sent(spark, sent[0])
                assert_as_by_a_clean_run(spark, kafka)
        finally:
            streams.process.kill()


def version(catalog: UnityCatalog, table: TableDeclaration) -> int:
    """The table's last version; -1 where it is not made yet."""
    try:
        return catalog.version(table.full_name(catalog.connection.name))
    except TableMissing:
        return -1


def records_read(spark: Spark) -> int:
    """Records of bronze that silver has accounted for."""
    (row,) = spark.rows(spark.sql("SELECT coalesce(sum(records), 0) AS n FROM {ledger}", ledger=spark.table(STREAM_BATCHES)))
    return int(row["n"])


def assert_as_sent(spark: Spark, sent: Sent) -> None:
    """Silver and quarantine have as many rows as the simulator says, and the ledger the same."""
    aside = sum(sent.kinds[kind] for kind in (EventKind.MALFORMED, EventKind.WRONG_TYPE, EventKind.FUTURE))
    assert (spark.count(STREAM.table), spark.count(STREAM.quarantine)) == (sent.accepted, aside)
    done = account(spark, "true").numbers
    assert (done["accepted"], done["quarantined"]) == (sent.accepted, aside)
    assert (done["late"], done["duplicates"], done["dropped"]) == (
        sent.kinds[EventKind.LATE],
        sent.kinds[EventKind.DUPLICATE],
        0,
    )


def assert_as_by_a_clean_run(spark: Spark, kafka: Kafka) -> None:
    """Read and validated again, with nothing killed, the topic gives the same rows."""
    versions = [spark.catalog.version(spark.full_name(table)) for table, _ in COMPARED]
    ingest(kafka, spark, RAW, SourceOptions(topics=RECORDS.source.topics, full_refresh=True, force=True))
    STREAM.run(spark, full_refresh=True)
    for (table, columns), version in zip(COMPARED, versions, strict=True):
        name = spark.full_name(table)
        chaos = f"SELECT {columns} FROM {name} VERSION AS OF {version}"
        clean = f"SELECT {columns} FROM {name}"
        for one, other in ((chaos, clean), (clean, chaos)):
            differing = spark.rows(spark.sql(f"SELECT * FROM ({one} EXCEPT ALL {other}) LIMIT 3"))
            assert not differing, (table.name, differing)
