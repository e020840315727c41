"""Errors of PySpark, gRPC and Delta, and the error of ours that each becomes."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module

from ratify_lakehouse.errors import (
    CatalogDenied,
    CatalogUnavailable,
    CommitConflict,
    NotConfigured,
    QueryFailed,
    RatifyError,
    SparkUnavailable,
)

# The server does not answer, or it was restarted and no longer knows the session.
_UNREACHED = (
    "UNAVAILABLE",
    "SESSION_CLOSED",
    "SESSION_NOT_FOUND",
    "SESSION_CHANGED",
    "OPERATION_NOT_FOUND",
    "NO_ACTIVE_SESSION",
    # Another thread that shares the session has closed it for that reason.
    "Channel closed",
    "Cannot invoke RPC",
)
NO_WORKER = "Python worker failed to connect back"
"""Part of Spark's error when a Python process of the server did not answer it in time."""
# What the catalog's client for Java says: 0 where there was no answer.
_NO_ANSWER = re.compile(r"\(HTTP (?:0|429|5\d\d)\)")
_NO_TOKEN = re.compile(r"Failed to fetch OAuth token\. HTTP status: 4\d\d.*")
_DATA_EXCEPTION = "22"
"""Class of the SQL states that say so of a value, as the SQL standard has it."""
CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "CommitVersionConflict")
"""Parts of the error texts of a write that met a concurrent commit; a failed stream has only the text."""


@contextmanager
def translating(translate: Callable[[Exception], Exception]) -> Generator[None]:
    """Raise what `translate` returns for an error of PySpark or gRPC; the error itself if it returns that."""
    try:
        from grpc import RpcError
        from pyspark.errors import PySparkException
    except ModuleNotFoundError as error:
        raise NotConfigured("Spark's client is not installed: pip install 'ratify-lakehouse[spark]'") from error

    try:
        yield
    except RatifyError:
        raise
    except UnicodeDecodeError as error:
        raise QueryFailed(
            "A text in the result is not UTF-8, which Spark's client cannot read. Let the query return make_valid_utf8(…) "
            "of it, or hex(…)."
        ) from error
    except (PySparkException, RpcError, ValueError) as error:
        # gRPC raises a ValueError if its channel is closed.
        if (ours := translate(error)) is error:
            raise
        raise ours from error


@contextmanager
def query_errors() -> Generator[None]:
    """Raise QueryFailed for what Spark says of a query: the server's stack trace says nothing about it."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise QueryFailed(str(error).partition("JVM stacktrace")[0].strip()) from error


def register_delta_exceptions(*, connect: bool) -> None:
    """Let PySpark raise delta-spark's typed exceptions for commit conflicts, in both kinds of session."""
    import_module("delta.connect.exceptions" if connect else "delta.exceptions")


def _delta_conflicts() -> tuple[type[Exception], ...]:
    from delta.exceptions import base

    return (
        base.ConcurrentAppendException,
        base.ConcurrentDeleteDeleteException,
        base.ConcurrentDeleteReadException,
        base.ConcurrentTransactionException,
        base.ConcurrentWriteException,
        base.DeltaConcurrentModificationException,
        base.MetadataChangedException,
        base.ProtocolChangedException,
    )


def translated(error: Exception, remote: str) -> Exception:
    """Return our error for one of PySpark's or gRPC's, or that error itself if nothing better is known."""
    text = "" if _is_of_a_value(error) else str(error)
    if isinstance(error, _delta_conflicts()) or any(name in text for name in CONFLICTS):
        return CommitConflict(f"Another writer committed first: {first_line(text)}")
    unreached = "failed to connect" in text.lower() and NO_WORKER not in text
    if unreached or any(sign in text for sign in _UNREACHED):
        return SparkUnavailable(
            f"Spark at {remote} did not answer: {first_line(text)}. Check that it runs (`ratify status`) and that "
            "SPARK_REMOTE is right."
        )
    if any(sign in text for sign in ("HTTP 401", "HTTP 403", "NotAuthorized", "PermissionDenied", "PERMISSION_DENIED")):
        return CatalogDenied(
            f"Unity Catalog refused Spark: {first_line(text)}. Check the token that the Spark server was started with."
        )
    if no_token := _NO_TOKEN.search(text):
        return CatalogDenied(
            f"Unity Catalog gave Spark no token: {no_token.group()[:300]}. Check the OAuth client id and secret that the "
            "Spark server was started with."
        )
    if "java.net.ConnectException" in text or "Connection refused" in text or _NO_ANSWER.search(text):
        return CatalogUnavailable(
            f"Spark could not reach Unity Catalog: {first_line(text)}. Check that the catalog runs (`ratify status`)."
        )
    return error


def _is_of_a_value(error: Exception) -> bool:
    """Whether a query met a value that it cannot compute with: the text quotes the value, which may say anything."""
    from pyspark.errors import PySparkException

    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return bool(state) and str(state).startswith(_DATA_EXCEPTION)


def first_line(text: str) -> str:
    """Return what of an error's text, which may have a whole stack trace, a message of ours repeats."""
    return text.strip().splitlines()[0][:300]
