"""What a stream of records can be read from: Kafka, files that another service lands, or generated events.

Whatever the source, a record has a topic, a partition and an offset, which together identify it. So one table takes records
of several sources, and silver does not depend on the source.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions, StreamRun, failure
from ratify_lakehouse.errors import StreamError
from ratify_lakehouse.input_settings import Events
from ratify_lakehouse.kafka.kafka_client import Isolation, Offsets
from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string", "Kafka's topic; `files:` and a file's path; `rate:`"),
    Column("partition", "int"),
    Column("offset", "bigint", "unique within topic and partition; in a file the line's number, from 0"),
    Column("timestamp", "timestamp", "when the record was created, or the broker received it"),
    Column("timestamp_type", "int", "0: by the producer's clock, 1: by the broker's, or the file's"),
    Column("headers", "array<struct<key:string,value:binary>>"),
)
"""The columns of a table of records."""

OFFSETS = "offsets"
"""Metadata key: the next offset of each partition of Kafka."""

# Kafka lets no topic have a colon in its name.
IN_KAFKA = "NOT contains(topic, ':')"
"""The condition that a record came from Kafka itself."""
SOURCE = f"IF({IN_KAFKA}, 'kafka', substring_index(topic, ':', 1))"
"""The name of a record's source."""


class DeclaredSource(BaseModel):
    """Which records are read, and how, as the declaration of their table says it. The settings fill in what is empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(default="", description="kafka, files or rate; empty: EVENTS_SOURCE")
    min_file_bytes: int = Field(default=64 * 2**20, ge=1, description="Files of one commit are compacted up to this size")

    topics: list[str] = Field(default=[], description="Kafka: topics to read")
    starting: Literal["earliest", "latest"] = Field(default="earliest", description="Kafka: where a new stream begins")
    starting_offsets: dict[str, dict[str, int]] = Field(
        default={}, description="Kafka: where it begins in these partitions: {topic: {partition: offset}}"
    )
    max_records: int = Field(default=500_000, ge=1, description="Kafka: records in one batch, and so in one commit, at most")
    min_records: int = Field(default=1, ge=1, description="Kafka: a continuous stream waits for so many records")
    allowed_latency: float = Field(default=60, gt=0, description="Kafka: but at most so many seconds")
    consumer_group: str = Field(default="ratify", description="Shows the progress to Kafka's tools; empty: not at all")
    on_data_loss: Literal["fail", "continue"] = Field(
        default="fail", description="Kafka: when records expired before they were read; a gap is always reported"
    )

    isolation: Isolation = Field(
        default="read_committed",
        description="Kafka: only records of transactions that are committed, or also those of open and aborted ones",
    )

    files: str = Field(default="", description="Files: their folder or URL; empty: EVENTS_FILES")
    format: Literal["", "json", "kcat"] = Field(
        default="", description="Files: lines that are values, or of kcat -J; empty: EVENTS_FORMAT"
    )
    key: str = Field(default="", description="Files of json: the field of a value that is the key; empty: EVENTS_KEY")
    time: str = Field(default="", description="Files of json: the one that is the timestamp; empty: EVENTS_TIME")
    max_files: int = Field(default=1000, ge=1, description="Files in one batch, and so in one commit, at most")

    rate: int = Field(default=1000, ge=1, description="Rate: events in one batch; a run that is not continuous has one")

    @property
    def events(self) -> Events:
        """The settings of the source, overridden by what is configured here."""
        given = {name: getattr(self, name) for name in ("source", "files", "format", "key", "time")}
        return Settings().events.model_copy(update={name: value for name, value in given.items() if value})


class SourceOptions(DeclaredSource):
    """Which records one run reads, and how."""

    full_refresh: bool = Field(default=False, description="Empty the table and read what the source still has")
    force: bool = Field(default=False, description="Do so even if rows are lost that the source no longer has")


@dataclass(frozen=True)
class StreamTarget:
    """The table that a stream writes, and its checkpoint.

    Attributes:
        checkpoint: The checkpoint's folder.
        begun: Whether the stream ever planned a batch with that checkpoint.
    """

    spark: Spark
    table: TableDeclaration
    checkpoint: str
    begun: bool

    def snapshot(self, query: str, *, refresh: bool) -> "DataFrame":
        """Return the rows of a query over the table {raw} as of the last `refresh`, however the table has changed since.

        They are stored beside the checkpoint.
        """
        session, folder = self.spark.session, f"{self.checkpoint}/held"
        if refresh:
            self.spark.sql(query, raw=self.spark.table(self.table)).write.mode("overwrite").parquet(folder)
        return session.read.parquet(folder)


@dataclass(frozen=True)
class Gap:
    """Offsets, `first` to `last`, that expired from a partition of Kafka before they were read."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class SourceProgress:
    """Where a run left its source.

    Attributes:
        position: The next offset of each partition of Kafka.
        behind: Records in Kafka that are not read yet.
        more: Other metadata of the materialization.
    """

    position: Offsets | None = None
    behind: int | None = None
    gaps: tuple[Gap, ...] = ()
    more: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceStatus:
    """Whether a source has records that were not read, and a text that describes it."""

    has_new: bool
    text: str


class RecordSource(ABC):
    """Where the records of one run come from."""

    checkpoint = ""
    """Subfolder of the table's checkpoint folder, for a source that needs a checkpoint of its own."""

    @abstractmethod
    def status(self, reported: Mapping[str, Any]) -> SourceStatus:
        """Return whether there are new records since the materialization with the metadata `reported`.

        Raises:
            NotConfigured, StreamError, LandingUnavailable: the source cannot be read.
        """

    def look(self) -> None:  # noqa: B027 a hook: generated events need no look
        """Find out what there is to read, before the table is touched; not every source has to.

        Raises:
            NotConfigured, StreamError, LandingUnavailable: nothing can be read.
        """

    @abstractmethod
    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        """Return what a full refresh would lose of the table's rows, as the text of the refusal."""

    @abstractmethod
    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        """Return the function that starts reading: a stream of the columns `RECORD`, from the target's position."""

    def progressed(self, position: Any) -> None:  # noqa: B027 a hook: only Kafka shows its progress elsewhere
        """Handle the stream's position after batches that had rows."""

    def explained(self, error_text: str) -> StreamError:
        """Return the error for Spark's text when the query failed."""
        return failure(error_text)

    def failed(self, target: StreamTarget, error: StreamError) -> None:  # noqa: B027 a hook: only Kafka can look again
        """Look at the source again after an error of the stream.

        Raises:
            StreamError: a more exact one.
        """

    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        """Return where a successful run left the source.

        Raises:
            StreamFailed: the run ended too early.
        """
        return SourceProgress()


def refusal_text(table: str, lost: str, source: str) -> str:
    """Return why a full refresh of a table is refused: rows would be `lost` that `source` does not have."""
    return (
        f"A full refresh of {table} is refused: {lost}. What is computed from it (silver, gold) can be rebuilt without one. "
        f"To refresh it anyway, set force as well: rows that {source} no longer has are then lost."
    )
