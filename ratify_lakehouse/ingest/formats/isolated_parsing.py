"""Parses landed files as `parse_file` and `inferred_columns` do, where a damaged one can harm no other.

DuckDB trusts what a Parquet file says. A damaged one may end the process that reads it (a segmentation fault) or invalidate
the database, and every other file of the batch with it. So each is parsed in a process that holds nothing else: where a
file ends that process, the file is refused. The process is started with the first Parquet file, and again after a crash;
each thread that parses at the same time has one.

Text is parsed in this process, by a database that does nothing else: an internal error of DuckDB invalidates that one, and
not the one of the session. The next file gets a new one.
"""

import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ratify_lakehouse.declarations import Column
from ratify_lakehouse.errors import BadFile, RatifyError, TransientError
from ratify_lakehouse.ingest.file_source import Format, Source
from ratify_lakehouse.ingest.formats import csv_group, inferred_columns, parse_file, record_removal
from ratify_lakehouse.ingest.formats.csv_group import CsvFile, ParsedGroup
from ratify_lakehouse.ingest.formats.parse_file import Load, Parsed
from ratify_lakehouse.ingest.formats.record_removal import ChosenRecords, Removal
from ratify_lakehouse.scratch_folders import scratch_folder
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.duckdb_sql import literal

if TYPE_CHECKING:
    import duckdb

_ROOT = Path(__file__).parents[3]
# A process dies of these by its own doing. SIGKILL and SIGTERM come from others, such as a machine without memory.
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
_CONFIG = ("memory_limit", "threads", "temp_directory")


class ParserEnded(TransientError):
    """The process that parses Parquet files was ended by somebody else."""


def parse(
    con: "duckdb.DuckDBPyConnection",
    source: Source,
    columns: Sequence[Column],
    file: str,
    local: Path,
    into: Path,
    load: Load,
) -> Parsed:
    """Write a landed file's records to a Parquet file, as `parse_file.parse` does.

    Raises:
        ParserEnded: the process that parses was killed.
        As `parse_file.parse`.
    """
    if source.format_of(file) is not Format.PARQUET:
        return _texts.call(con, file, parse_file.parse, (source, columns, file, local, into, load))
    # The folder takes with it what a crash leaves.
    with tempfile.TemporaryDirectory(prefix="ratify-parsing-", dir=into.parent) as folder:
        written = Path(folder).absolute() / into.name
        arguments = (source, columns, file, local.absolute(), written, load)
        parsed: Parsed = _parsers.call(con, file, folder, parse_file.parse, arguments)
        written.rename(into)
    return parsed


def parse_group(
    con: "duckdb.DuckDBPyConnection",
    source: Source,
    columns: Sequence[Column],
    files: Sequence[CsvFile],
    into: Path,
    load: Load,
) -> ParsedGroup:
    """Write the records of several CSV files to one Parquet file, as `csv_group.parse_group` does.

    Raises:
        As `csv_group.parse_group`; BadFile, too: DuckDB fails to read one of them.
    """
    return _texts.call(con, files[0].file, csv_group.parse_group, (source, columns, files, into, load), tries=1)


def remove_records(
    con: "duckdb.DuckDBPyConnection", source: Source, file: str, local: Path, into: Path, chosen: ChosenRecords
) -> Removal:
    """Write a landed file again without the records of a subject, as `record_removal.remove_records` does.

    Raises:
        ParserEnded: the process that parses was killed.
        As `record_removal.remove_records`.
    """
    if source.format_of(file) is not Format.PARQUET:
        return _texts.call(con, file, record_removal.remove_records, (source, file, local, into, chosen))
    with tempfile.TemporaryDirectory(prefix="ratify-parsing-", dir=into.parent) as folder:
        written = Path(folder).absolute() / into.name
        arguments = (source, file, local.absolute(), written, chosen)
        removal: Removal = _parsers.call(con, file, folder, record_removal.remove_records, arguments)
        if written.exists():
            written.rename(into)
    return removal


def infer(con: "duckdb.DuckDBPyConnection", source: Source, file: str, local: Path) -> tuple[Column, ...]:
    """Return columns for a file's fields, as `inferred_columns.infer` does.

    Raises:
        ParserEnded: the process that parses was killed.
        As `inferred_columns.infer`.
    """
    if source.format_of(file) is not Format.PARQUET:
        return _texts.call(con, file, inferred_columns.infer, (source, file, local))
    with scratch_folder(Settings().home) as folder:
        return _parsers.call(con, file, str(folder), inferred_columns.infer, (source, file, local.absolute()))


class _TextDatabase:
    """The database that parses text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[object, ...], duckdb.DuckDBPyConnection] = {}

    def call(
        self, con: "duckdb.DuckDBPyConnection", file: str, function: Callable[..., Any], arguments: Any, tries: int = 3
    ) -> Any:
        """Call a function with a connection to it that has the settings of this one."""
        import duckdb

        config, zone = _settings(con)
        key = tuple(config.values())
        with self._lock:
            database = self._open.get(key) or duckdb.connect(config=config | {"enable_external_file_cache": False})
            self._open[key] = database
        try:
            with database.cursor() as cursor:
                cursor.execute(f"SET TimeZone = {literal(zone)}")
                return function(cursor, *arguments)
        except Exception as error:
            self._forget_if_invalid(key, database)
            if not isinstance(error, duckdb.FatalException):
                raise
            if tries == 1:
                raise BadFile(file, f"DuckDB fails to read it ({str(error).splitlines()[0][:200]}); fix the file") from error
        # Another thread's file may have invalidated it: then a new database can read this one.
        return self.call(con, file, function, arguments, tries - 1)

    def _forget_if_invalid(self, key: tuple[object, ...], database: "duckdb.DuckDBPyConnection") -> None:
        import duckdb

        try:
            database.execute("SELECT 1")
        except duckdb.FatalException:
            with self._lock:
                if self._open.get(key) is database:
                    del self._open[key]


class _Parsers:
    """The processes: as many as there are threads that parse at the same time. Each ends with its standard input."""

    def __init__(self) -> None:
        # A deque, whose operations are atomic.
        self._idle = deque[subprocess.Popen[bytes]]()

    def call(
        self, con: "duckdb.DuckDBPyConnection", file: str, scratch: str, function: Callable[..., Any], arguments: Any
    ) -> Any:
        """Call a function in the process, with a connection that has the settings of this one."""
        request = (*_settings(con), file, str(Path(scratch).absolute()), function, arguments)
        try:
            process = self._idle.pop()
        except IndexError:
            process = _started()
        try:
            answer, error = _answer(process, request)
        except (EOFError, BrokenPipeError):
            code = process.wait()
            if -code not in _CRASHES:
                raise ParserEnded(
                    f"The process that parses Parquet files ended with exit code {code} at {file}; load the file again."
                ) from None
            raise _damaged(file, f"DuckDB crashed while reading it: {signal.Signals(-code).name}") from None
        except BaseException:
            process.kill()
            raise
        # It serves others again only with its answer: an interrupt may come between.
        self._idle.append(process)
        if error:
            raise error
        return answer


_texts, _parsers = _TextDatabase(), _Parsers()


def _settings(con: "duckdb.DuckDBPyConnection") -> tuple[dict[str, Any], str]:
    """The settings of a connection that matter to parsing, and its time zone."""
    names = (*_CONFIG, "TimeZone")
    row = con.execute(f"SELECT {', '.join(f'current_setting({literal(name)})' for name in names)}").fetchone()
    values = dict(zip(names, row or (), strict=True))
    return values, str(values.pop("TimeZone"))


def _started() -> "subprocess.Popen[bytes]":
    # In a session of its own, so that Ctrl-C reaches only the command.
    command = [sys.executable, "-m", "ratify_lakehouse.ingest.formats.isolated_parsing"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, start_new_session=True)


def _answer(process: "subprocess.Popen[bytes]", request: Any) -> tuple[Any, Exception | None]:
    into, out = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    pickle.dump(request, into)
    into.flush()
    return pickle.load(out)  # noqa: S301 written by this module


def _damaged(file: str, text: str) -> BadFile:
    return BadFile(file, f"the Parquet file is damaged ({text}); write and land it again")


def _serve(requests: io.BufferedReader, answers: IO[bytes]) -> None:
    """Carry out the requests."""
    while requests.peek(1):
        pickle.dump(_outcome(*pickle.load(requests)), answers)  # noqa: S301 written by this module
        answers.flush()


def _outcome(
    config: dict[str, Any], zone: str, file: str, scratch: str, function: Callable[..., Any], arguments: Any
) -> tuple[Any, Exception | None]:
    import duckdb

    tempfile.tempdir = scratch
    try:
        # A database for one file, because a file may invalidate it.
        with duckdb.connect(config=config) as con:
            con.execute(f"SET TimeZone = {literal(zone)}")
            return function(con, *arguments), None
    except duckdb.FatalException as error:
        return None, _damaged(file, str(error).splitlines()[0][:200])
    except (RatifyError, duckdb.Error) as error:
        return None, error


if __name__ == "__main__":
    # What a library prints goes to standard error.
    stdout = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(stdout, "wb") as answers_out:
        _serve(cast("io.BufferedReader", sys.stdin.buffer), answers_out)
