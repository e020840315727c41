"""A table that a streaming job of Flink appends to, from topics of Kafka: how its job begins, and how far it is."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.append_only import refuse_append_only
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.engines.flink.flink_rest import FlinkRest
from ratify_lakehouse.engines.flink.flink_sql import StreamInsert, TopicSource, stream_text
from ratify_lakehouse.engines.flink.flink_state import Beginning, beginning, digest, generations
from ratify_lakehouse.engines.flink.flink_stream import RunningJob, StreamSettings, running_job, stop_left
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import CheckpointUnreachable, FlinkStateLost, StreamBusy
from ratify_lakehouse.kafka.kafka_client import Isolation, Kafka, OffsetRange, Offsets
from ratify_lakehouse.kafka.kafka_transactions import up_to_last_record
from ratify_lakehouse.settings import Settings


@dataclass(frozen=True)
class JobOptions:
    """How the job of a table runs.

    Attributes:
        checkpoint_seconds: Time between two checkpoints, each a commit if it has rows.
        parallelism: Tasks that run side by side.
        state_seconds: How long what the query keeps lives without being used; 0: for ever.
    """

    checkpoint_seconds: float = 10
    parallelism: int = 1
    state_seconds: float = 0


@dataclass(frozen=True)
class FlinkTable:
    """The table, and what its job reads.

    Attributes:
        query: One SELECT over the topics' names, in Flink's SQL.
        isolation: Which records of transactions are read.
    """

    declaration: TableDeclaration
    topics: Sequence[TopicSource]
    query: str
    options: JobOptions
    isolation: Isolation = "read_committed"

    @property
    def name(self) -> str:
        """Its name, as schema.table."""
        return self.declaration.table_name

    @property
    def topic_names(self) -> list[str]:
        """The topics."""
        return sorted({topic.topic for topic in self.topics})

    def offsets(self, kafka: Kafka) -> OffsetRange:
        """Return which offsets the topics hold, up to the last record that the job is given.

        Raises:
            TopicMissing, BrokerUnavailable, BrokerDenied, NotConfigured.
        """
        return up_to_last_record(kafka, self.topic_names, self.isolation)

    def waiting(self, kafka: Kafka, spark: Spark) -> int:
        """Return how many records the job has not read, as far as Kafka knows; all, where it would begin again.

        Raises:
            As `offsets`; CheckpointUnreachable, LogUnreadable, StorageUnavailable, UnsafeTable.
        """
        begins = self._beginning(spark, refresh=False)
        offsets = self.offsets(kafka)
        if begins.state is None or not begins.state.is_savepoint:
            # Rows of a job that was killed may wait for their commit.
            return max(1, offsets.behind({}))
        return offsets.behind(kafka.progress(begins.generation.uid(self.name), self.topic_names))

    @contextmanager
    def started(self, spark: Spark, kafka: Kafka, flink: Flink, *, refresh: bool) -> "Generator[StartedJob]":
        """Run the job, from its newest state; at the end of the block it has to be stopped.

        Args:
            spark: Reads the table, which exists.
            kafka: The brokers.
            flink: Flink.
            refresh: Whether to empty the table, and begin at the start of the topics.

        Raises:
            StreamBusy: another process of this home runs it.
            FlinkStateLost, QueryChanged, FlinkUnavailable, FlinkFailed; LogUnreadable, StorageUnavailable, UnsafeTable; as
                `offsets`.
        """
        settings = Settings()
        full_name = spark.full_name(self.declaration)
        with stream_checkpoints.exclusive(self.declaration):
            folder = self._folder(spark)
            if settings.flink_rest and (known := generations(folder)):
                newest = max(known, key=lambda each: each.number)
                stop_left(settings.flink_rest, full_name, folder / newest.name)
            begins = self._beginning(spark, refresh=refresh)
            self._prepare(spark, begins, refresh=refresh)
            uid = begins.generation.uid(self.name)
            insert = StreamInsert(self.declaration, uid, self.topics, kafka.java_options(), self.query, self.isolation)
            target = flink.stream_target(self.declaration.layer)
            how = StreamSettings(
                name=full_name,
                folder=folder / begins.generation.name,
                state=begins.state,
                restarts=flink.restarts,
                restart_seconds=flink.restart_seconds,
                session=settings.flink_rest.rstrip("/"),
                arguments=flink.store_arguments([self.declaration]),
                **asdict(self.options),
            )
            given = {**flink.credentials(), "KAFKA_LOGIN": kafka.login()}
            with running_job(how, partial(stream_text, target, insert), given, list(kafka.secrets())) as job:
                yield StartedJob(self, kafka, job, uid, begins)

    @contextmanager
    def stopped(self, full_name: str) -> Generator[None]:
        """Keep its job from running for the length of the block.

        Args:
            full_name: The table's, with the catalog's.

        Raises:
            StreamBusy: it runs, in another process of this home or on the session cluster.
            FlinkUnavailable: the session cluster does not answer.
        """
        with stream_checkpoints.exclusive(self.declaration):
            session = Settings().flink_rest.rstrip("/")
            if session and FlinkRest(session).runs(full_name):
                raise StreamBusy(f"The job into {self.name} runs on {session}, though no process of this home follows it.")
            yield

    def _beginning(self, spark: Spark, *, refresh: bool) -> Beginning:
        # A log that cannot be read says nothing of what the table has: then no job begins.
        log = TableLog.read(spark.catalog, spark.full_name(self.declaration))
        committed = log.txn_versions(f"ratify-{self.name}-")
        columns = ", ".join(f"{column.name} {column.type}" for column in self.declaration.columns)
        query = digest(self.query, columns, *map(str, self.topics))
        return beginning(self.name, self._folder(spark), committed, query, refresh=refresh)

    def _prepare(self, spark: Spark, begins: Beginning, *, refresh: bool) -> None:
        """Empty the table for a job that begins at the start of the topics.

        The folder of the new generation comes first: after a kill in between, no job begins at a state of the rows that are
        gone.
        """
        if begins.state is not None:
            return
        folder, full_name = self._folder(spark), spark.full_name(self.declaration)
        if refresh:
            # Without its rows going, a new generation would be a state that is lost.
            refuse_append_only(full_name, spark.catalog.table(full_name).properties or {})
        rows = spark.count(self.declaration, spark.catalog.version(full_name))
        if rows and not refresh:
            raise FlinkStateLost(
                f"{self.name} has {rows:,} rows, but {folder} has no state of the job that wrote them. Run the table with "
                "`full_refresh: true`, which empties it and reads the topics from their start, or restore the folder."
            )
        (folder / begins.generation.name).mkdir(parents=True, exist_ok=True)
        if rows:
            spark.truncate(full_name)

    def _folder(self, spark: Spark) -> Path:
        url = stream_checkpoints.folder(spark, self.declaration)
        if "://" in url:
            raise CheckpointUnreachable(
                f"Flink's jobs keep their checkpoints in a folder, and RATIFY_CHECKPOINTS is {Settings().checkpoints}. Set "
                "it to a path that this machine and Flink's cluster both reach."
            )
        return Path(url).absolute()


@dataclass(frozen=True)
class StartedJob:
    """The running job of a table.

    Attributes:
        uid: The sink's, and Kafka's consumer group.
        begun: Where it began.
    """

    table: FlinkTable
    kafka: Kafka
    job: RunningJob
    uid: str
    begun: Beginning

    def position(self) -> Offsets:
        """Return the offsets up to which its records are in a checkpoint."""
        return self.kafka.progress(self.uid, self.table.topic_names)

    def behind(self, offsets: OffsetRange) -> int:
        """Return how many of these records are in no checkpoint yet."""
        return offsets.behind(self.position())
