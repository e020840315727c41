"""A process that streams a topic into a bronze table until all of it is there, and may be killed."""

import os
import sys
import time
from pathlib import Path

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.ingest.records.record_source import RECORD, SourceOptions
from ratify_lakehouse.ingest.records.record_stream import ingest
from ratify_lakehouse.kafka.kafka_client import Kafka
from tests.killable import Killable


def raw_table(name: str) -> TableDeclaration:
    """A table of Kafka's records."""
    return TableDeclaration("bronze", name, RECORD, "of a test", Engine.SPARK, frozenset({"STREAMING UPDATE"}))


class Streamer(Killable):
    """The process. It ends when the topic is in the table, once the file `all_sent` is there."""

    def __init__(self, folder: Path, topic: str, table: TableDeclaration, max_records: int, **environment: str) -> None:
        self.all_sent = folder / "all-sent"
        arguments = [topic, table.name, str(max_records), str(self.all_sent)]
        command = [sys.executable, "-m", "tests.ingest.topic_streamer", *arguments]
        super().__init__(command, {**os.environ, **environment}, folder / "streamer.log")


def assert_exact(spark: Spark, kafka: Kafka, table: TableDeclaration, topic: str) -> None:
    """Each offset of the topic is in the table, and once."""
    query = "SELECT partition, count(*) AS n, count(DISTINCT offset) AS d, max(offset) + 1 AS next FROM {raw} GROUP BY ALL"
    held = {
        row["partition"]: (row["n"], row["d"], row["next"]) for row in spark.rows(spark.sql(query, raw=spark.table(table)))
    }
    assert held == {partition: (end, end, end) for partition, end in kafka.offset_range([topic]).latest[topic].items()}


def main(topic: str, table: str, max_records: str, all_sent: str) -> None:
    """Stream until all is there, whatever becomes of Spark and Kafka meanwhile."""
    kafka, spark = Kafka(), Spark(catalog=UnityCatalog())
    config = SourceOptions(topics=[topic], max_records=int(max_records))
    options = StreamOptions(on_batch=lambda batch: print(batch, flush=True))
    while True:
        last = Path(all_sent).exists()
        try:
            done = ingest(kafka, spark, raw_table(table), config, options)
            if last and not done.behind:
                break
        except RatifyError as error:
            print(type(error).__name__, error, flush=True)
        time.sleep(0.2)
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
