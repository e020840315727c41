"""Made-up events of the tracker, for tests and trying out: the same ones for the same offsets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ingest.records.record_source import RecordSource, SourceOptions, SourceProgress, SourceStatus, StreamTarget, refused
from resources.declarations import TableDeclaration
from resources.errors import StreamError
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions, StreamRun
from resources.sql.spark_sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "rate:events"
_SQL = Path(__file__).with_name("rate_records.sql")


class RateSource(RecordSource):
    """Spark's counter; each number is an event."""

    checkpoint = "rate"

    def __init__(self, config: SourceOptions) -> None:
        self._rate = config.rate

    def status(self, told: Mapping[str, Any]) -> SourceStatus:
        return SourceStatus(False, "The source is rate, which always has more: start a run by hand.")

    def look(self) -> None:
        """There is nothing to see."""

    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        return refused(spark.full_name(table), "its records of the source rate can all be made again", "the source")

    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        def read() -> "DataFrame":
            # Without a checkpoint the counter begins at 0 again.
            next_ = f"SELECT coalesce(max(offset) + 1, 0) AS first FROM {{raw}} WHERE topic = {literal(TOPIC)}"
            (held,) = target.spark.rows(target.noted(next_, anew=not target.begun))
            stream = target.spark.session.readStream.format("rate-micro-batch")
            made = stream.option("rowsPerBatch", self._rate).option("numPartitions", 1).load()
            records = Template(_SQL.read_text()).substitute(first=held["first"], topic=literal(TOPIC))
            return target.spark.sql(records, made=made)

        return read

    def progressed(self, position: Any) -> None:
        """Nobody else asks for it."""

    def failed(self, target: StreamTarget, error: StreamError) -> None:
        """Nothing more can be known of it."""

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        return SourceProgress()
