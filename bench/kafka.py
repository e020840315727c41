"""What it costs to take events from Kafka into a governed table, and to validate them on their way into silver.

    python -m bench.kafka [--events 500000] [--rates 1000 10000 50000] [--seconds 20] [--rounds 3] [--quick]

On the same topics, of a broker on this machine:

- ours: the package's bronze stream, into a table whose commits the catalog ratifies;
- bare Spark: the same stream by hand, into a folder that is a Delta table no catalog knows;
- Python: a consumer of librdkafka (confluent-kafka) that gathers records and appends them to a folder with deltalake.

*Drain*: what has come to a topic since the last run is read, by each in turn, in batches of the size that is our default.
*Live*: a producer sends at a rate; a micro-batch begins every second (Python: a commit every second); the latency of an
event is from its timestamp to its commit. *Silver*: see bench/kafka_silver.py.

Prints events a second, the latencies, and the ratios that are aimed at (of rounds, their median); the exit code is 1 where
one is missed. Needs the embedded stack, which it starts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer
from deltalake import write_deltalake
from rich.table import Table

from bench.kafka_silver import silver
from bench.ratios import UNCOUNTED, console, paired, within_bounds
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.simulate_command import PARTITIONS, Simulation, send
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.ingest.records.record_source import RECORD, SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import literal

BATCH = SourceOptions().max_records
TRIGGER_S = 1.0
AIMED_RATE = 10_000
WARM_S = 5
FIRST = 1_000
"""Events of the run before the one that is measured."""
DRAINS = 3
"""Rounds of the drain for each that is requested: it is short, and its rounds differ more than those of silver."""
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


@dataclass
class KafkaBench:
    """What all measures share."""

    spark: Spark
    kafka: Kafka
    folder: Path
    tables: int = 0

    def table(self) -> TableDeclaration:
        """Create a new table of records."""
        self.tables += 1
        table = TableDeclaration(
            "bronze", f"bench_{self.tables}", RECORD, "of a benchmark", Engine.SPARK, frozenset({"STREAMING UPDATE"})
        )
        self.spark.ensure_table(table)
        return table

    def location(self, table: TableDeclaration) -> Path:
        """Where the table's files are."""
        found = self.spark.catalog.table(self.spark.full_name(table)).storage_location or ""
        return Path(unquote(urlsplit(found).path))

    def path(self) -> Path:
        """A new folder."""
        self.tables += 1
        return self.folder / f"path_{self.tables}"


class PackageStream:
    """The package's bronze stream."""

    name = "ours"

    def __init__(self, bench: KafkaBench, topic: str) -> None:
        self._bench, self._topic, self._table = bench, topic, bench.table()

    def read(self, stop: threading.Event | None = None) -> Path:
        """Read to the end, or until it is stopped; return where the table is."""
        config = SourceOptions(topics=[self._topic], max_records=BATCH, consumer_group="")
        options = StreamOptions(TRIGGER_S, stop) if stop else StreamOptions()
        ingest(self._bench.kafka, self._bench.spark, self._table, config, options)
        return self._bench.location(self._table)


class BareSpark:
    """The same by hand, into a folder."""

    name = "bare Spark"

    def __init__(self, bench: KafkaBench, topic: str) -> None:
        self._bench, self._topic, self._path = bench, topic, bench.path()

    def read(self, stop: threading.Event | None = None) -> Path:
        """Read to the end, or until it is stopped; return where the table is."""
        options = {
            **self._bench.kafka.source_options(),
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH),
            "includeHeaders": "true",
        }
        records = self._bench.spark.session.readStream.format("kafka").options(**options).load()
        trigger: dict[str, Any] = {"processingTime": f"{TRIGGER_S:g} seconds"} if stop else {"availableNow": True}
        query = (
            records.writeStream.format("delta")
            .option("checkpointLocation", f"{self._path}_checkpoint")
            .trigger(**trigger)
            .start(str(self._path))
        )
        if stop:
            stop.wait()
            query.stop()
        else:
            query.awaitTermination()
        return self._path


class PythonConsumer:
    """A consumer that appends with deltalake."""

    name = "Python with deltalake"

    def __init__(self, bench: KafkaBench, topic: str) -> None:
        self._bench, self._topic, self._path = bench, topic, bench.path()
        self._read = 0

    def read(self, stop: threading.Event | None = None) -> Path:
        """Read to the end, or until it is stopped; return where the table is."""
        latest = self._bench.kafka.offset_range([self._topic]).latest[self._topic]
        consumer = Consumer(
            {
                "bootstrap.servers": self._bench.kafka.connection.bootstrap,
                "group.id": f"bench-{self._path.name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._topic])
        left, gathered, started = sum(latest.values()) - self._read, list[Any](), time.monotonic()
        while not stop.is_set() if stop else left > 0:
            messages = consumer.consume(10_000, timeout=0.1)
            gathered += messages
            left -= len(messages)
            self._read += len(messages)
            full = len(gathered) >= BATCH or (stop and time.monotonic() - started >= TRIGGER_S)
            if gathered and (full or (not stop and left <= 0)):
                self._append(gathered)
                consumer.commit(asynchronous=False)
                gathered, started = [], time.monotonic()
        consumer.close()
        return self._path

    def _append(self, messages: Sequence[Any]) -> None:
        columns = [
            [message.key() for message in messages],
            [message.value() for message in messages],
            [message.topic() for message in messages],
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            pa.array([message.timestamp()[1] * 1000 for message in messages], pa.int64()).cast(_SCHEMA.field(5).type),
        ]
        write_deltalake(self._path, pa.table(columns, schema=_SCHEMA), mode="append")


WAYS = (PackageStream, BareSpark, PythonConsumer)


@dataclass(frozen=True)
class Latency:
    """Seconds from an event's timestamp to its commit, of those that came when the stream was warm."""

    events: int
    p50: float
    p95: float


def latency(table: Path) -> Latency:
    """Return the latencies, from a table's log and files."""
    committed = dict[str, float]()
    for log in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        at = (info.get("inCommitTimestamp") or info.get("timestamp") or 0) / 1000
        committed |= {str(table / unquote(action["add"]["path"])): at for action in actions if "add" in action}
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute("CREATE TABLE committed (filename VARCHAR, seconds DOUBLE)")
        con.executemany("INSERT INTO committed VALUES (?, ?)", list(committed.items()))
        names = ", ".join(map(literal, committed))
        query = (
            "WITH arrived AS ("
            "SELECT epoch(timestamp) AS sent, seconds - epoch(timestamp) AS latency "
            f"FROM read_parquet([{names}], filename = true, union_by_name = true) JOIN committed USING (filename)) "
            "SELECT count(*), quantile_cont(latency, 0.5), quantile_cont(latency, 0.95) "
            f"FROM arrived WHERE sent > (SELECT min(sent) FROM arrived) + {WARM_S}"
        )
        [(events, p50, p95)] = con.execute(query).fetchall()
    return Latency(events, p50, p95)


def drain(bench: KafkaBench, events: int, rounds: int) -> dict[str, list[float]]:
    """Events a second of each way, reading what has come since its last run, round by round, in turns."""
    took: dict[str, list[float]] = {way.name: [] for way in WAYS}
    for number in range(rounds + UNCOUNTED):
        topic = f"drain-{events}-{number}"
        first = number % len(WAYS)
        ways = [way(bench, topic) for way in (*WAYS[first:], *WAYS[:first])]
        send(bench.kafka, Simulation(FIRST, seed=number), topic)
        for way in ways:
            way.read()
        send(bench.kafka, Simulation(events, seed=number), topic)
        for way in ways:
            start = time.perf_counter()
            table = way.read()
            seconds = time.perf_counter() - start
            if (found := rows_in(table)) != FIRST + events:
                raise SystemExit(f"{way.name} has {found:,} of {FIRST + events:,} events: no ratio")
            if number >= UNCOUNTED:
                took[way.name].append(events / seconds)
    return took


def rows_in(table: Path) -> int:
    """Rows by the statistics in the log."""
    lines = [json.loads(line) for log in (table / "_delta_log").glob("*.json") for line in log.read_text().splitlines()]
    return sum(json.loads(line["add"]["stats"])["numRecords"] for line in lines if "add" in line)


def live(bench: KafkaBench, way: type[PackageStream | BareSpark | PythonConsumer], rate: int, seconds: int) -> Latency:
    """The latency of events that come at a rate."""
    topic = f"live-{way.__name__.lower()}-{rate}"
    bench.kafka.ensure_topic(topic, PARTITIONS)
    one, stop, found = way(bench, topic), threading.Event(), list[Path]()
    thread = threading.Thread(target=lambda: found.append(one.read(stop)))
    thread.start()
    # A process of its own: what it generates is not to wait for what reads.
    arguments = ["--rate", str(rate), "--events", str(rate * seconds), "--topic", topic, "--bad", "0%"]
    command = [sys.executable, "-m", "ratify_lakehouse.cli", "simulate", "tracker", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
    time.sleep(10)
    stop.set()
    thread.join()
    return latency(found[0])


def run(bench: KafkaBench, events: int, rates: Sequence[int], seconds: int, rounds: int) -> bool:
    """All measures on a stack that runs. True where every aim is met."""
    drained = drain(bench, events, DRAINS * rounds)
    table = Table(title=f"Reading a topic of {events:,} events, medians", title_justify="left", header_style="bold")
    for column in ("", "events/s"):
        table.add_column(column, justify="right" if column else "left")
    for name, rates_of in drained.items():
        table.add_row(name, f"{statistics.median(rates_of):,.0f}")
    console.print(table)
    table = Table(title="From an event's timestamp to its commit", title_justify="left", header_style="bold")
    for column in ("", "sent/s", "events", "p50 s", "p95 s"):
        table.add_column(column, justify="right" if column else "left")
    found = dict[tuple[str, int], Latency]()
    for rate in rates:
        for way in WAYS:
            one = found[way.name, rate] = live(bench, way, rate, seconds)
            table.add_row(way.name, f"{rate:,}", f"{one.events:,}", f"{one.p50:.2f}", f"{one.p95:.2f}")
    console.print(table)
    took = silver(bench.spark, bench.kafka, bench.path(), [FIRST, *[events] * (rounds + UNCOUNTED - 1)])
    shown = ", ".join(f"{name} {statistics.median(seconds):.1f} s" for name, seconds in took.items())
    console.print(f"Silver, {events:,} records of bronze: {shown}")
    ratios: list[tuple[str, float, float | None, bool]] = [
        ("drain: events/s of ours against bare Spark", paired(drained["ours"], drained["bare Spark"]), 0.9, True),
        ("drain: events/s of ours against Python", paired(drained["ours"], drained["Python with deltalake"]), None, True),
        ("silver: time with expectations against without", paired(took["ours"], took["without"]), 1.15, False),
        ("silver: time with expectations against by hand", paired(took["ours"], took["by hand"]), None, False),
    ]
    for rate in rates:
        p95 = {way.name: found[way.name, rate].p95 for way in WAYS}
        aim = 1 if rate == AIMED_RATE else None
        ratios += [
            (f"live, {rate:,}/s: p95 of ours against trigger + 5 s", p95["ours"] / (TRIGGER_S + 5), aim, False),
            (f"live, {rate:,}/s: p95 of ours against bare Spark", p95["ours"] / p95["bare Spark"], None, False),
            (f"live, {rate:,}/s: p95 of ours against Python", p95["ours"] / p95["Python with deltalake"], None, False),
        ]
    return within_bounds(ratios)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=500_000, help="events of a topic that is drained (default 500,000)")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000, 50_000], help="events a second")
    parser.add_argument("--seconds", type=int, default=20, help="of each rate (default 20)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="counted rounds of silver; of the drain thrice that (default 3)"
    )
    parser.add_argument("--quick", action="store_true", help="few events, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.events, options.rates, options.seconds, options.rounds = 20_000, [1_000], 10, 1
    jars = Settings().jars
    with tempfile.TemporaryDirectory(prefix="ratify-bench-") as home:
        os.environ["RATIFY_HOME"] = home
        config = StackConfig(home=Path(home), jars_dir=jars, kafka=True)
        with running(config, lambda message: console.print(message, style="dim")):
            spark = Spark(catalog=UnityCatalog())
            try:
                bench = KafkaBench(spark, Kafka(), Path(home) / "paths")
                return 0 if run(bench, options.events, options.rates, options.seconds, options.rounds) else 1
            finally:
                spark.close()


if __name__ == "__main__":
    sys.exit(main())
