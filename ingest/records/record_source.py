"""What a stream of records can be read from: Kafka, files that another service lands, or made-up events.

Whichever it is, a record has a topic, a partition and an offset, which together name it once and for all, so that one table
holds records of several sources, and silver asks for none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from resources.declarations import Column, TableDeclaration
from resources.errors import StreamError
from resources.kafka.kafka_client import Offsets
from resources.settings import Settings, Tracker
from resources.spark.spark_engine import Spark
from resources.spark.streaming_query import StreamOptions, StreamRun, failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string", "Kafka's topic; `files:` and a file's path; `rate:`"),
    Column("partition", "int"),
    Column("offset", "bigint", "unique within topic and partition; in a file the line's number, from 0"),
    Column("timestamp", "timestamp", "when the record was made, or the broker got it"),
    Column("timestamp_type", "int", "0: made by the producer, 1: by the broker, or the file's"),
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


class SourceOptions(BaseModel):
    """What records are read, and how. What is empty is as the settings say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(default="", description="kafka, files or rate; empty: TRACKER_SOURCE")
    min_file_bytes: int = Field(default=64 * 2**20, ge=1, description="Files of one batch are put together up to this size")
    full_refresh: bool = Field(default=False, description="Empty the table and read what the source still has")
    force: bool = Field(default=False, description="Do so although rows are lost that the source no longer has")

    topics: list[str] = Field(default=[], description="Kafka: topics to read; empty: KAFKA_TOPICS")
    starting: Literal["earliest", "latest"] = Field(default="earliest", description="Kafka: where a new stream begins")
    starting_offsets: dict[str, dict[str, int]] = Field(
        default={}, description="Kafka: where it begins in these partitions: {topic: {partition: offset}}"
    )
    max_records: int = Field(default=500_000, ge=1, description="Kafka: records in one batch, and so in one commit, at most")
    min_records: int = Field(default=1, ge=1, description="Kafka: a continuous stream waits for so many records")
    allowed_latency: float = Field(default=60, gt=0, description="Kafka: but no longer than so many seconds")
    consumer_group: str = Field(default="ratify", description="Where Kafka's tools see how far it is; empty: nowhere")
    on_data_loss: Literal["fail", "continue"] = Field(
        default="fail", description="Kafka: when records are gone before they were read; a gap is always told"
    )

    files: str = Field(default="", description="Files: their folder or URL; empty: TRACKER_FILES")
    max_files: int = Field(default=1000, ge=1, description="Files in one batch, and so in one commit, at most")

    rate: int = Field(default=1000, ge=1, description="Rate: events in one batch; a run that is not continuous has one")

    @property
    def named_topics(self) -> list[str]:
        """The topics, by configuration or settings."""
        return self.topics or [topic.strip() for topic in Settings().kafka_topics.split(",") if topic.strip()]

    @property
    def tracker(self) -> Tracker:
        """The settings of the source, with what is configured here in place of them."""
        given = {"source": self.source, "files": self.files}
        return Settings().tracker.model_copy(update={name: value for name, value in given.items() if value})


@dataclass(frozen=True)
class StreamTarget:
    """The table that a stream writes, and how far it is.

    Attributes:
        checkpoint: The folder where the stream notes that.
        begun: Whether it ever planned a batch by that checkpoint.
    """

    spark: Spark
    table: TableDeclaration
    checkpoint: str
    begun: bool

    def noted(self, query: str, *, anew: bool) -> "DataFrame":
        """Return what a query over the table {raw} gave when it was last asked `anew`, whatever the table has become since.

        It is kept beside the checkpoint, for as long as that lives.
        """
        session, place = self.spark.session, f"{self.checkpoint}/held"
        if anew:
            self.spark.sql(query, raw=self.spark.table(self.table)).write.mode("overwrite").parquet(place)
        return session.read.parquet(place)


@dataclass(frozen=True)
class Gap:
    """Offsets, `first` to `last`, that were gone from a partition of Kafka before they were read."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class SourceProgress:
    """Where a run left its source.

    Attributes:
        position: The next offset of each partition of Kafka.
        behind: Records of Kafka that have come and were not read.
        more: What else is worth telling, for the metadata of the materialization.
    """

    position: Offsets | None = None
    behind: int | None = None
    gaps: tuple[Gap, ...] = ()
    more: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceStatus:
    """Whether a source has something that was not read, and what there is to say about it."""

    any: bool
    text: str


class RecordSource(ABC):
    """Where the records of one run come from."""

    checkpoint = ""
    """The folder below the table's own that its checkpoint is in, as far as that is not the same for all."""

    @abstractmethod
    def status(self, told: Mapping[str, Any]) -> SourceStatus:
        """Return whether there is something new since the materialization whose metadata `told` is.

        Raises:
            NotConfigured, StreamError, LandingUnavailable: it cannot be looked at.
        """

    @abstractmethod
    def look(self) -> None:
        """See what is there, before anything is done to the table.

        Raises:
            NotConfigured, StreamError, LandingUnavailable: nothing can be read.
        """

    @abstractmethod
    def refusal(self, spark: Spark, table: TableDeclaration) -> str:
        """Say what a full refresh would lose of what the table holds."""

    @abstractmethod
    def reader(self, target: StreamTarget, options: StreamOptions) -> "Callable[[], DataFrame]":
        """Return what begins to read: a stream of the columns `RECORD`, from where the target is."""

    @abstractmethod
    def progressed(self, position: Any) -> None:
        """Take in where the stream stands, when batches have ended that had rows."""

    def explained(self, said: str) -> StreamError:
        """Return the error for what Spark said of the query when it failed."""
        return failure(said)

    @abstractmethod
    def failed(self, target: StreamTarget, error: StreamError) -> None:
        """Look again after an error of the stream.

        Raises:
            StreamError: more is known of it now.
        """

    @abstractmethod
    def progress(self, target: StreamTarget, run: StreamRun, options: StreamOptions) -> SourceProgress:
        """Return where a run that ended well left it.

        Raises:
            StreamFailed: it did not come as far as it should have.
        """


def refused(table: str, lost: str, source: str) -> str:
    """Say that a table is not read anew, for what would be `lost` that `source` does not have."""
    return (
        f"{table} is not read anew: {lost}. What is built from it (silver, gold) can be rebuilt from it at any time. If you "
        f"mean it, set force as well: rows that {source} no longer has are then lost."
    )
