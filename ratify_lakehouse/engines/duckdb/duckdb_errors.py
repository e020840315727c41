"""DuckDB's errors, as errors of ours: those that are about the catalog, or all of them."""

import re
from collections.abc import Generator
from contextlib import contextmanager

from ratify_lakehouse.errors import (
    CatalogBusy,
    CatalogDenied,
    CatalogError,
    CatalogUnavailable,
    CommitConflict,
    RatifyError,
    UnsafeTable,
)

_VALUE = re.compile(r"'.*'|'.*", re.DOTALL)


@contextmanager
def translating(what: str) -> Generator[None]:
    """Translate DuckDB's errors that are about the catalog into ours; others pass through unchanged."""
    import duckdb

    try:
        yield
    except RatifyError:
        raise
    except duckdb.Error as error:
        raise _translated(error, what) from error


@contextmanager
def all_translated(what: str, instead: str) -> Generator[None]:
    """Translate every error of DuckDB, for who reads the files of a table and no tables of the catalog.

    Raises:
        UnsafeTable: DuckDB cannot do that; the message has no value of a row.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        # The place in the statement, which follows, says nothing to who did not write it.
        text = _VALUE.sub("'…'", str(error).partition("\n")[0]).rstrip(" .!?")
        raise UnsafeTable(f"DuckDB cannot {what}: {text}. {instead}") from error


def _translated(error: Exception, what: str) -> Exception:
    text = str(error)
    line = " ".join(text.split())[:1000]
    for marks, kind, advice in _KINDS:
        if marks.search(text):
            return kind(f"DuckDB could not {what}: {line} {advice}")
    return error


def _matching(*words: str, status: str | None = None) -> re.Pattern[str]:
    """Match an error with one of the words, or one of the HTTP statuses as a separate number: the texts also contain ports,
    ids and file names with any digits."""
    number = [rf"(?<![\w:./-])({status})(?!\w|[./-]\w)"] if status else []
    return re.compile("|".join([*map(re.escape, words), *number]))


_KINDS: tuple[tuple[re.Pattern[str], type[CatalogError], str], ...] = (
    (_matching("already accepted", "CommitVersionConflict", "UpdateRequirementConflict", status="409"), CommitConflict, ""),
    (
        _matching("Unauthorized", "Forbidden", "NotAuthorized", "PermissionDenied", status="401|403"),
        CatalogDenied,
        "Check UNITY_TOKEN and the grants of the principal behind it.",
    ),
    (_matching("ResourceExhausted", "TooManyRequests", status="429|503"), CatalogBusy, "Try again later."),
    (
        _matching(
            "Could not establish connection", "Connection refused", "connection error", "Could not connect", "timed out"
        ),
        CatalogUnavailable,
        "Check that the catalog runs (`ratify status`) and that UNITY_HOST is right.",
    ),
)
