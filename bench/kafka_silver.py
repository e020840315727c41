"""What expectations cost: the part of `bench.kafka` that goes from bronze into silver.

What has come to bronze since the last run is taken by the package's stream (validated, counted, merged, those that fail set
aside, the batch entered in the ledger), by the same with no more expectations than it takes to have each event once, and by
a stream by hand that only parses and merges.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

from bench.ratios import UNCOUNTED, timed
from ratify_lakehouse.cli.simulate_command import Simulation, send
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.definitions.project_tables import event_stream, record_tables
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka

_TOPIC = "silver"


def silver(spark: Spark, kafka: Kafka, checkpoint: Path, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of our stream into silver, of the same without expectations, and of one by hand, round by round.

    Args:
        spark: Where the streams run.
        kafka: Where the events are sent.
        checkpoint: A folder for the stream by hand.
        sizes: Events of each turn of a round, round by round; the first `UNCOUNTED` do not count.
    """
    ours, (raw,) = event_stream("silver.tracker_events"), record_tables("bronze.tracker_events_raw")
    streams = {"ours": ours, "without": without_expectations(ours)}
    by_hand = SilverByHand(spark, ours, checkpoint)
    for table in (raw.declaration, *ours.tables):
        spark.ensure_table(table)
    took: dict[str, list[float]] = {"ours": [], "without": [], "by hand": []}
    for number, events in enumerate(sizes):
        for name in ("ours", "without") if number % 2 else ("without", "ours"):
            send(kafka, Simulation(events, seed=number), _TOPIC)
            ingest(kafka, spark, raw.declaration, SourceOptions(topics=[_TOPIC], consumer_group=""))
            for table in (*ours.written, by_hand.table):
                spark.rows(spark.sql(f"DELETE FROM {spark.full_name(table)}"))
            seconds = timed(lambda name=name: streams[name].run(spark))
            seconds_by_hand = timed(by_hand.stream)
            if number >= UNCOUNTED:
                took[name].append(seconds)
                if name == "ours":
                    # Of the same records.
                    took["by hand"].append(seconds_by_hand)
    return took


def without_expectations(stream: EventStream) -> EventStream:
    """Return the package's stream with only the expectations that deduplicate events and separate late ones."""
    keyed = Expectation("keyed", "typed AND user_id <> '' AND time IS NOT NULL", Action.DROP)
    late = next(rule for rule in stream.expectations.rules if rule.name == stream.late)
    return replace(stream, expectations=replace(stream.expectations, rules=(keyed, late)))


class SilverByHand:
    """A stream that parses, keeps what it can read, takes the last record for each key, and merges."""

    def __init__(self, spark: Spark, stream: EventStream, checkpoint: Path) -> None:
        self.table, self._stream = replace(stream.table, name="bench_events"), stream
        self._spark, self._checkpoint = spark, checkpoint
        self._spark.ensure_table(self.table)

    def stream(self) -> None:
        """Bring the table up to date with bronze."""
        spark = self._spark
        parsed = self._stream.parsed_sql(spark, "bare_batch")
        keyed = "PARTITION BY user_id, time ORDER BY kafka_timestamp DESC, partition DESC, offset DESC"
        once = f"WHERE typed QUALIFY row_number() OVER ({keyed}) = 1"
        validated = f"SELECT *, CAST(NULL AS STRING) AS decided_by FROM ({parsed}) {once}"
        text = self._stream.merge_sql(spark.full_name(self.table), "bare_validated")
        merge = Template(text).substitute(lower=-(2**55), upper=2**55)

        def write(frame: Any, _: int) -> None:
            frame.createOrReplaceTempView("bare_batch")
            session = frame.sparkSession
            session.sql(validated).createOrReplaceTempView("bare_validated")
            session.sql(merge).collect()

        with spark.isolated_session() as session:
            source = session.readStream.format("delta").table(spark.full_name(self._stream.records))
            writer = source.writeStream.foreachBatch(write).option("checkpointLocation", str(self._checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()
