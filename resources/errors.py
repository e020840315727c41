"""Every error that a resource raises on purpose.

A foreign error (HTTP, DuckDB, gRPC, fsspec) is turned into one of these once, where it is understood; the message names
what is wrong, where, and what to do next.
"""

from collections.abc import Mapping
from typing import Any


class RatifyError(Exception):
    """The root of all errors raised on purpose."""


class NotConfigured(RatifyError):
    """A setting that this work needs is missing."""


class CatalogError(RatifyError):
    """Unity Catalog could not do what was asked."""


class CatalogUnavailable(CatalogError):
    """The catalog cannot be reached, or stopped answering; nothing was committed."""


class CatalogBusy(CatalogError):
    """The catalog answered, but refuses more work at the moment (HTTP 429 or 503)."""


class CatalogDenied(CatalogError):
    """The catalog refuses the token or the principal behind it (HTTP 401 or 403)."""


class StatementFailed(CatalogError):
    """A SQL warehouse could not run a statement, or was not allowed to end it."""


class QueryFailed(RatifyError):
    """An engine could not run a query as it is written."""


class CommitConflict(CatalogError):
    """Other writers won every attempt to commit; nothing was committed, and the same call may be made again."""


class CommitOutcomeUnknown(CatalogError):
    """The reply to a commit was lost: whether it was ratified must be looked up before anything is repeated."""


class AlreadyLoaded(CatalogError):
    """A load is already in the table; nothing was committed.

    Attributes:
        table: Its full name.
        loads: The ids of the loads that the table's log already holds.
    """

    def __init__(self, table: str, loads: list[str]) -> None:
        self.table = table
        self.loads = loads
        shown = ", ".join(loads[:3]) + (f" and {len(loads) - 3} more" if len(loads) > 3 else "")
        super().__init__(f"{table} already holds load {shown}: leave it out, it is never written twice.")


class AppendFailed(RatifyError):
    """The rows do not go into the table; nothing was committed, and the same rows will fail again."""


class StorageUnavailable(RatifyError):
    """The storage of a table cannot be read or written."""


class LogUnreadable(RatifyError):
    """The log of a table lacks a version that the catalog has ratified."""


class TableError(RatifyError):
    """A table is not what its declaration says, or a declaration is not what every engine can read."""


class UnsafeDeclaration(TableError):
    """A table declaration that another engine could not read, or would read wrong."""


class UnsafeTable(TableError):
    """An existing table that an engine would write wrong, such as one with column mapping."""


class TableMissing(TableError):
    """The catalog has no table of that name."""


class SparkUnavailable(RatifyError):
    """The Spark server cannot be reached or refuses the session."""


class FlinkUnavailable(RatifyError):
    """Flink or Delta's connector for it is not there, or not whole; nothing was started.

    Attributes:
        missing: Names of the artifacts that are missing, where it is they.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        super().__init__(message)


class FlinkFailed(RatifyError):
    """A Flink job failed; what it committed before that is in its tables."""


class LandingUnavailable(RatifyError):
    """The landing zone cannot be listed or read; this says nothing about which files it holds."""


class BadFile(RatifyError):
    """A landed file that cannot be loaded.

    Attributes:
        reason: What is wrong with the file, in one line, as kept in the quarantine table.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class StreamError(RatifyError):
    """A stream, or the Kafka that it reads, could not do what was asked; what it committed before is in its table."""


class BrokerUnavailable(StreamError):
    """No Kafka broker answers; nothing was read or written."""


class BrokerDenied(StreamError):
    """Kafka refuses who asks, or what is asked for."""


class TopicMissing(StreamError):
    """Kafka has no topic of that name, and none is made by reading."""


class OffsetsExpired(StreamError):
    """Records that a stream has not read yet are no longer in the topic."""


class FileUnreadable(StreamError):
    """A file that a stream came to is too large, or broken; nothing of its batch was committed."""


class ResetRefused(StreamError):
    """A table was to be made anew from a source, or a table, that may no longer have all that it was made of."""


class StreamFailed(StreamError):
    """A stream ended with an error, or before it was done; started again, it goes on where it was."""


class StreamBusy(StreamError):
    """Another process runs the same stream."""


class ExpectationFailed(StreamError):
    """Rows of a batch fail an expectation whose action is to fail; nothing of that batch was committed.

    Attributes:
        counted: The row of the query that counted the batch (see `components.expectations.validation`).
    """

    def __init__(self, message: str, counted: Mapping[str, Any]) -> None:
        self.counted = counted
        super().__init__(message)


class BadCorrection(RatifyError):
    """A correction names no record in quarantine, or cannot be read; no correction was made."""
