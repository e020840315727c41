"""Every error that a resource raises on purpose.

A foreign error (HTTP, DuckDB, gRPC, fsspec) is translated into one of these once, where it is understood. The message names
what is wrong, where, and what to do next.

Each error is either a `TransientError`, after which the same call may succeed, or a `TerminalError`, after which it fails
again until somebody changes something. Retries go by these two types. `CatalogError`, `TableError` and `StreamError` only
group errors by subject; they are never raised themselves.
"""

from collections.abc import Mapping
from typing import Any


class RatifyError(Exception):
    """The root of all errors raised on purpose."""


class TransientError(RatifyError):
    """The same call may succeed later, without any change by anybody."""


class TerminalError(RatifyError):
    """The same call fails again until somebody changes a setting, a grant, a declaration or the data."""


class NotConfigured(TerminalError):
    """A required setting is missing."""


class NoProject(NotConfigured):
    """A command that needs a project runs in a folder of none."""


class SourceNotConfigured(NotConfigured):
    """No source of records is named: a run of everything leaves its tables out."""


class CatalogError(RatifyError):
    """Group: Unity Catalog did not carry out a request."""


class CatalogUnavailable(CatalogError, TransientError):
    """The catalog cannot be reached, or gave no clear answer. A request that writes may have been carried out."""


class CatalogBusy(CatalogError, TransientError):
    """The catalog answered, but refuses more work at the moment (HTTP 429 or 503).

    Attributes:
        retry_after: Seconds that it asks for before the next request; 0 if it names none.
    """

    retry_after: float = 0


class CatalogDenied(CatalogError, TerminalError):
    """The catalog refuses the token or the principal behind it (HTTP 401 or 403)."""


class CatalogRejected(CatalogError, TerminalError):
    """The catalog rejects a request as it stands (any other HTTP 4xx, or 501)."""


class StatementFailed(CatalogError, TerminalError):
    """A SQL warehouse failed to run a statement, or the statement was cancelled."""


class QueryFailed(TerminalError):
    """An engine cannot run a query as it is written."""


class CommitConflict(CatalogError, TransientError):
    """Other writers won every attempt to commit. Nothing was committed; the same call may be made again."""


class Overtaken(CommitConflict):
    """A commit was computed from inputs that are older than a commit which the table has got: compute it again.

    `committed` is the version with the older rows, where it was ratified before this was seen, after its table's full name.
    """

    def __init__(self, message: str, committed: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.committed = committed


class ReadBeforeErasure(Overtaken):
    """Rows were read before a data subject was erased, and would be written after it, or were: see `committed`."""


class WrittenAfterErasure(CatalogError, TerminalError):
    """Rows that were read before a data subject was erased were committed after it, where no commit could be refused."""


class CommitOutcomeUnknown(CatalogError, TransientError):
    """A commit was proposed, and it cannot be learned whether the catalog ratified it, or may yet.

    It is transient because the same append may be made again: its load id is compared and set in the commit, so the rows
    cannot be written twice, and a repeat raises AlreadyLoaded if the first attempt was ratified. It never means that nothing
    was committed, so no file that the commit names may be deleted (see `NOTHING_COMMITTED`).
    """


class AlreadyLoaded(CatalogError, TerminalError):
    """The table already holds a load; nothing was committed.

    Attributes:
        table: Full name of the table.
        loads: Ids of the loads that the table's log already holds.
    """

    def __init__(self, table: str, loads: list[str]) -> None:
        self.table = table
        self.loads = loads
        shown = ", ".join(loads[:3]) + (f" and {len(loads) - 3} more" if len(loads) > 3 else "")
        super().__init__(f"{table} already holds load {shown}: leave it out, it is never written twice.")


class LedgerIncomplete(TerminalError):
    """The ledger of landed files does not know what a table holds: its entries were deleted, or commits are gone."""


class LoadsWithdrawn(CommitConflict):
    """Another writer has removed the rows that were to be replaced; nothing was committed."""


class AppendFailed(TerminalError):
    """The rows do not fit the table. Nothing was committed, and the same rows will fail again."""


class StorageUnavailable(TransientError):
    """The storage of a table cannot be read or written."""


class StorageUnsupported(StorageUnavailable):
    """The storage of a table is one that this process cannot reach at all; Spark may."""


class LogUnreadable(TerminalError):
    """The log of a table lacks a version that the catalog has ratified."""


class TableError(RatifyError):
    """Group: a table differs from its declaration, or not every engine can read it."""


class UnsafeDeclaration(TableError, TerminalError):
    """A declaration of a table that contradicts itself, or that another engine cannot read, or reads wrong.

    Attributes:
        field: The field of the declaration that is wrong: names of attributes, and numbers in lists.
    """

    def __init__(self, message: str, *field: str | int) -> None:
        super().__init__(message)
        self.field = field


class InvalidDeclaration(UnsafeDeclaration):
    """A declaration, or the query of a table, cannot be used. The message names the file and the line."""


class QueryMismatch(TableError, TerminalError):
    """A query gives other columns than its table declares, or several rows with the keys of one; nothing was written."""


class RowsNotConverted(TableError, TerminalError):
    """Rows of a source do not fit the columns of a destination, or several are for one row of it. Nothing was written."""


class SyncRefused(TableError, TerminalError):
    """A sync would do what its declaration or its destination does not allow. Nothing was written."""


class HistoryNotContinued(TableError, TerminalError):
    """A table that goes on from its last commit cannot: what it was made of is not there any more; nothing was written."""


class VersionMissing(TableError, TerminalError):
    """A table's history does not have a version, or not one of that kind."""


class TableInUse(TableError, TransientError):
    """A run in progress is about to write to a table; nothing was done to it."""


class PartitionMissing(TableError, TerminalError):
    """A table has no partition of that name."""


class ChangesNotRecorded(TableError, TerminalError):
    """The change data feed of a table lacks a version that was asked for."""


class UnsafeTable(TableError, TerminalError):
    """An existing table that an engine would write wrong, such as one with column mapping."""


class TableMissing(TableError, TerminalError):
    """The catalog has no table of that name."""


class SparkUnavailable(TransientError):
    """The Spark server cannot be reached or refuses the session."""


class FlinkUnavailable(TerminalError):
    """Flink is not installed, or Delta's own connector for it is incomplete; nothing was started.

    Attributes:
        missing: Names of the missing artifacts, if that is the cause.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        super().__init__(message)


class FlinkFailed(TerminalError):
    """A Flink job failed; what it committed before the failure is in its tables."""


class FlinkStateLost(TerminalError):
    """The newest state of a streaming job of Flink is older than the rows of its table, or is gone; nothing was started."""


class QueryChanged(TerminalError):
    """The state of a streaming job was made with another query; nothing was started."""


class LandingUnavailable(TransientError):
    """The landing zone cannot be listed or read; this does not mean that it holds no files."""


class BadFile(TerminalError):
    """A landed file that cannot be loaded.

    Attributes:
        reason: What is wrong with the file, in one line, as the quarantine table stores it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        # It passes between processes.
        return type(self), (self.path, self.reason)


class StreamError(RatifyError):
    """Group: a stream, or the Kafka that it reads, failed; what it committed before is in its table."""


class BrokerUnavailable(StreamError, TransientError):
    """No Kafka broker answers, or none leads the partitions or the group yet."""


class BrokerDenied(StreamError, TerminalError):
    """Kafka refuses the user, or does not permit the user this request."""


class BrokerRejected(StreamError, TerminalError):
    """Kafka rejects a request or a record, such as a record that is too large."""


class TopicMissing(StreamError, TerminalError):
    """Kafka has no topic of that name, and reading does not create one."""


class PositionUnsafe(StreamError, TerminalError):
    """The topic with the position of a feed would lose it, because it is not compacted; nothing was published."""


class CheckpointUnreachable(StreamError, TerminalError):
    """The store that RATIFY_CHECKPOINTS names cannot be opened from this machine."""


class OffsetsExpired(StreamError, TerminalError):
    """Kafka has deleted records that a stream has not read yet."""


class FileUnreadable(StreamError, TerminalError):
    """A file in a stream's source is too large or broken; nothing of its batch was committed."""


class ResetRefused(StreamError, TerminalError):
    """A rebuild was refused, because the input no longer has all the data that the table was computed from."""


class StreamFailed(StreamError, TransientError):
    """A stream ended with an error, or before it was done. Started again, it continues from its checkpoint."""


class StreamBusy(StreamError, TransientError):
    """Another process runs the same stream."""


class ExpectationFailed(StreamError, TerminalError):
    """Rows of a batch fail an expectation whose action is to fail; nothing of that batch was committed.

    Attributes:
        counted: The row of the query that counted the batch (see `ratify_lakehouse.components.expectations.validation`).
    """

    def __init__(self, message: str, counted: Mapping[str, Any]) -> None:
        self.counted = counted
        super().__init__(message)


class BadCorrection(TerminalError):
    """A correction names no record in quarantine, or cannot be read; no correction was stored."""


NOTHING_COMMITTED = (
    AlreadyLoaded,
    AppendFailed,
    CatalogBusy,
    CatalogDenied,
    CatalogRejected,
    CommitConflict,
    TableMissing,
    UnsafeTable,
)
"""If `DeltaLog.commit` raises one of these, nothing was committed or will be: the data files of the plan may be deleted."""
