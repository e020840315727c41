"""Reading a managed table as a stream: where to begin, how much at a time, and which commits to skip."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from ratify_lakehouse.delta.feed_parts import changes_rows, last_division
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import LogUnreadable, UnsafeDeclaration
from ratify_lakehouse.sql.spark_sql import table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Division(Enum):
    """Whether a table was divided into other partitions since a stream has read it.

    Of the rows before, Delta reads NULL in the columns that are partitions now, or were some then.
    """

    NONE = "it was not"
    READ = "it was, after the stream had read all rows before"
    UNREAD = "it was, and the stream has not read all rows before"


_OVER_DIVISIONS = "spark.databricks.delta.streaming.unsafeReadOnPartitionColumnChanges.enabled"


@dataclass(frozen=True)
class TableStream:
    """How a stream reads a table. The start applies only to the first run of a checkpoint, which stores the position.

    Attributes:
        starting_version: First version whose rows are read, or `latest` for those that are committed from now on; None: all
            rows that the table holds, and then what is committed.
        starting_timestamp: Likewise, the first version that was committed at this time or later.
        max_files_per_trigger: New files in a micro-batch, at most.
        max_bytes_per_trigger: Bytes in a micro-batch, as a guide: one file is always taken.
        ignore_deletes: Skip commits that delete whole files and do nothing else.
        skip_change_commits: Skip commits that delete or change rows. Without either of these two, such a commit ends
            the stream: its reader would not know of what was changed.
        change_feed: Read rows with the change that was made to them (`_change_type`, `_commit_version`,
            `_commit_timestamp`); the table's property delta.enableChangeDataFeed is to be true.
        schema_tracking_location: A folder within the stream's checkpoint, which stores the schemas that were read. A
            stream of a table with renamed or dropped columns needs it. It ends once where the schema has changed, and
            goes on by the new one when it is begun again.
        accept_renames: Go on by itself after a column was renamed or dropped; otherwise it does so only when it is begun
            again with this.

    Raises:
        UnsafeDeclaration: two of these do not go together.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: dt.datetime | None = None
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    ignore_deletes: bool = False
    skip_change_commits: bool = False
    change_feed: bool = False
    schema_tracking_location: str | None = None
    accept_renames: bool = False

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise UnsafeDeclaration("A stream begins at starting_version or at starting_timestamp, not at both.")
        if self.starting_timestamp is not None and self.starting_timestamp.tzinfo is None:
            raise UnsafeDeclaration("starting_timestamp has no time zone: give it one, or Spark takes it as UTC.")
        if self.change_feed and (self.ignore_deletes or self.skip_change_commits):
            raise UnsafeDeclaration("The change feed contains deleted and changed rows, so they cannot be skipped as well.")
        for name in ("max_files_per_trigger", "max_bytes_per_trigger"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise UnsafeDeclaration(f"{name} is {given}: it must be at least 1.")

    def options(self) -> dict[str, str]:
        """Return the options of Delta's source."""
        given = {
            "startingVersion": self.starting_version,
            "startingTimestamp": self.starting_timestamp and self.starting_timestamp.isoformat(),
            "maxFilesPerTrigger": self.max_files_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger and f"{self.max_bytes_per_trigger}b",
            "ignoreDeletes": self.ignore_deletes or None,
            "skipChangeCommits": self.skip_change_commits or None,
            "readChangeFeed": self.change_feed or None,
            "schemaTrackingLocation": self.schema_tracking_location,
            "allowSourceColumnRename": "always" if self.accept_renames else None,
            "allowSourceColumnDrop": "always" if self.accept_renames else None,
        }
        return {
            name: str(value).lower() if value is True else str(value) for name, value in given.items() if value is not None
        }

    def read(self, session: "SparkSession", full_name: str, *, over_division: bool = False) -> "DataFrame":
        """Return the table's rows as a stream, of the catalog's ratified commits only.

        Delta reports errors only after the stream has begun. It ends where the table was divided into other partitions,
        unless all streams of `session` are to go on `over_division`: see `division_since`.
        """
        if over_division:
            session.conf.set(_OVER_DIVISIONS, "true")
        return session.readStream.format("delta").options(**self.options()).table(table_name(full_name))


def division_since(log: TableLog | None, position: Mapping[str, Any] | None) -> Division:
    """Return whether a table was divided into other partitions since a stream was at a position (DeltaSourceOffset).

    Args:
        log: The table's; None if it cannot be read here.
        position: None if the stream has read nothing.

    Raises:
        StorageUnavailable.
    """
    if log is None or position is None:
        return Division.NONE
    at = int(position["reservoirVersion"])
    try:
        divided = last_division(log, at, log.version)
        if divided is None:
            return Division.NONE
        unread = position["isStartingVersion"] or changes_rows(log, at, divided)
    except LogUnreadable:
        return Division.UNREAD
    return Division.UNREAD if unread else Division.READ


def bytes_outstanding(spark: Spark, full_name: str, position: Mapping[str, Any]) -> int:
    """Estimate how many bytes of an append-only table a stream at `position` has not read.

    Delta's source reports that (numBytesOutstanding) on Databricks only. A commit that was read in part counts as a whole.

    Args:
        spark: Where the table is read.
        full_name: The table.
        position: As Delta's source writes it (DeltaSourceOffset).
    """
    at = int(position["reservoirVersion"])
    if position["isStartingVersion"]:
        # It reads the initial snapshot file by file, and only the number of files is known.
        (detail,) = spark.rows(spark.sql(f"DESCRIBE DETAIL {table_name(full_name)}"))
        left = detail["numFiles"] - int(position["index"]) - 1
        return round(detail["sizeInBytes"] * max(0, left) / max(1, detail["numFiles"]))
    version = spark.catalog.version(full_name)
    commits = spark.recent_commits(full_name, version - at + 1) if version >= at else ()
    return sum(commit.metrics.get("numOutputBytes", 0) for commit in commits)
