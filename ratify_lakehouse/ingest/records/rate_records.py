"""Generated events, for tests and demonstrations: the same ones for the same offsets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions
from ratify_lakehouse.ingest.records.record_source import (
    RecordSource,
    SourceOptions,
    SourceStatus,
    StreamTarget,
    refusal_text,
)
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "rate:events"
_SQL = Path(__file__).with_name("rate_records.sql")


class RateSource(RecordSource):
    """Spark's counter; each number is an event."""

    checkpoint = "rate"

    def __init__(self, config: SourceOptions) -> None:
        self._rate = config.rate

    def status(self, reported: Mapping[str, Any]) -> SourceStatus:
        return SourceStatus(False, "The source is rate, which always has more: start a run by hand.")

    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        return refusal_text(
            spark.full_name(table), "its records of the source rate can all be generated again", "the source"
        )

    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        def read() -> "DataFrame":
            # Without a checkpoint the counter starts at 0 again.
            next_ = f"SELECT coalesce(max(offset) + 1, 0) AS first FROM {{raw}} WHERE topic = {literal(TOPIC)}"
            (row,) = target.spark.rows(target.snapshot(next_, refresh=not target.begun))
            stream = target.spark.session.readStream.format("rate-micro-batch")
            counter = stream.option("rowsPerBatch", self._rate).option("numPartitions", 1).load()
            records = Template(_SQL.read_text()).substitute(first=row["first"], topic=literal(TOPIC))
            return target.spark.sql(records, counter=counter)

        return read
