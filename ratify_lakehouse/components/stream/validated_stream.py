"""A stream from one table into another, whose expectations are validated batch by batch: how it runs and is rebuilt."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectations
from ratify_lakehouse.components.stream.micro_batch import BatchStatements, batch_function, counted_in
from ratify_lakehouse.components.stream.stream_ledger import Account, account, last_batch
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.streaming_query import StreamOptions, follow
from ratify_lakehouse.engines.spark.table_stream import Division, TableStream, bytes_outstanding, division_since
from ratify_lakehouse.errors import ExpectationFailed, StreamFailed
from ratify_lakehouse.sql.spark_sql import literal

logger = logging.getLogger(__name__)

# Delta resolves twice where a new stream of a whole table begins. If the source has a commit in between, the first batch
# ends before it begins, and the checkpoint is of no use: nothing was read by it.
_OVERTAKEN = "Cannot provide a start version greater than the end version"
_ATTEMPTS = 3
# With these operations alone, a table is what its commits have added. VACUUM may have removed files of others.
_APPENDING = frozenset({"CREATE TABLE", "STREAMING UPDATE"})
# Delta's errors where rows that the stream has read were removed from the source, or the source is another table by now.
_SOURCE_REFRESHED = (
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
)
# Where the stream begins again by itself it goes on, unless the partitions are others.
_SCHEMA_CHANGED = "DELTA_SCHEMA_CHANGED"

MAX_FILES = 1000
"""Files of the source in one batch at most, as Delta's own default."""


@dataclass(frozen=True)
class ValidatedStream:
    """A stream with expectations.

    Attributes:
        source: Table that is read.
        target: Table that is written; it gives the checkpoint and the query their names.
        name: Name of the stream in the ledger.
        statements: Gives what is run on each batch, by the name of the checkpoint.
        explained: Gives the error for the text of Spark's.
        refuse_loss: Raises ResetRefused where a rebuild would lose records that the source no longer has.
        empty: Deletes what is computed from the source.
    """

    spark: Spark
    source: TableDeclaration
    target: TableDeclaration
    name: str
    statements: Callable[[str], BatchStatements]
    explained: Callable[[str], StreamFailed | ExpectationFailed]
    refuse_loss: Callable[[], None]
    empty: Callable[[], None]

    def run(self, max_files: int, *, full_refresh: bool, options: StreamOptions) -> Account:
        """Bring the target up to date with the source, and return what became of the records that were new.

        It ends then, or as `options` says. The target is rebuilt from the whole source with `full_refresh`, and where the
        checkpoint is lost, the source was refreshed, or it was divided into other partitions before the stream had read all
        of it; if the source has all that the target was computed from.

        Raises:
            ResetRefused: a rebuild is due, and the source no longer has all that the target was computed from.
            ExpectationFailed: records fail an expectation that stops the batch; it was not committed, those before it were.
            StreamBusy: another process of this home runs it.
            StreamFailed: the stream ended with another error.
        """
        with stream_checkpoints.exclusive(self.target):
            over_division = False
            for _ in range(_ATTEMPTS):
                try:
                    return self._run(max_files, options, full_refresh=full_refresh, over_division=over_division)
                except StreamFailed as error:
                    division = self._division(error)
                    over_division = division is Division.READ and not over_division
                    if over_division:
                        continue
                    if not (_source_refreshed(error) or self._overtaken(error) or division is Division.UNREAD):
                        raise
                    logger.warning("%s It starts from the beginning.", error)
                    stream_checkpoints.forget(self.spark, self.target)
            return self._run(max_files, options, full_refresh=full_refresh)

    def _run(self, max_files: int, options: StreamOptions, *, full_refresh: bool, over_division: bool = False) -> Account:
        spark = self.spark
        if full_refresh:
            stream_checkpoints.forget(spark, self.target)
        # No checkpoint means that a rebuild starts, or starts over: it deletes the checkpoint first and creates it last.
        checkpoint = stream_checkpoints.current(spark, self.target)
        if checkpoint is None:
            if not full_refresh:
                self.refuse_loss()
            self.empty()
            checkpoint, before = stream_checkpoints.begin(spark, self.target), -1
        else:
            before = last_batch(spark, self.name, checkpoint.name)
        stream_checkpoints.sweep(checkpoint.url)
        function = batch_function(self.statements(checkpoint.name))
        source = spark.full_name(self.source)
        table = TableStream(max_files_per_trigger=max_files, starting_version=self._first_version() if before < 0 else None)
        with spark.isolated_session() as session:
            rows = table.read(session, source, over_division=over_division)
            writer = rows.writeStream.queryName(self.target.name).foreachBatch(function)
            writer = writer.option("checkpointLocation", checkpoint.url).trigger(**options.trigger)
            run = follow(spark, writer.start, options, explain=self.explained)
        waiting = {"numBytesOutstanding": bytes_outstanding(spark, source, run.position)} if run.position else {}
        new = f"stream = {literal(self.name)} AND checkpoint = {literal(checkpoint.name)} AND batch_id > {before}"
        return replace(account(spark, new), run={**run.numbers, **waiting})

    def _division(self, error: StreamFailed) -> Division:
        """Whether the stream ended because its source was divided into other partitions, and what it had read before."""
        begun = stream_checkpoints.current(self.spark, self.target) if _SCHEMA_CHANGED in str(error) else None
        position = stream_checkpoints.position(begun.url) if begun else None
        return division_since(TableLog.opened(self.spark.catalog, self.spark.full_name(self.source)), position)

    def _overtaken(self, error: StreamFailed) -> bool:
        begun = stream_checkpoints.current(self.spark, self.target)
        return _OVERTAKEN in str(error) and begun is not None and last_batch(self.spark, self.name, begun.name) < 0

    def _first_version(self) -> int | None:
        """The version from which the source's commits certainly give all of its rows; None if there is none."""
        history = self.spark.history(self.spark.full_name(self.source))
        return 0 if history[-1].version == 0 and _APPENDING.issuperset(commit.operation for commit in history) else None


def batch_error(error_text: str, stream: str, expectations: Expectations) -> StreamFailed | ExpectationFailed:
    """Return the error for the text of a batch's error."""
    if counted := counted_in(error_text):
        failed = {name: counted["failed"][name] for name in expectations.named(Action.FAIL)}
        shown = ", ".join(f"{name} ({count:,})" for name, count in failed.items() if count)
        return ExpectationFailed(
            f"A batch of {counted['rows']:,} records was not committed into {stream}: records fail {shown}. Correct the "
            "source, or change the action of the expectation, and start the stream again.",
            counted,
        )
    return StreamFailed(
        f"The stream into {stream} failed; started again it resumes from its checkpoint. Spark reports: "
        f"{_cause(error_text)[:500]}"
    )


def _source_refreshed(error: StreamFailed) -> bool:
    return any(sign in str(error) for sign in _SOURCE_REFRESHED)


def _cause(error_text: str) -> str:
    """The end of the traceback of a batch's function, or else the first line."""
    causes = re.findall(r"^[\w.]+(?:Exception|Error): ?\n?.+$", error_text.partition("JVM stacktrace")[0], re.MULTILINE)
    return " ".join((causes[-1] if causes else error_text.strip().splitlines()[0]).split())
