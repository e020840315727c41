"""Loading files into one bronze table by several processes.

The processes share their commits (see `resources.duckdb.group_commit`). A batch is in the table as a whole or not at all, so
the work may be stopped or killed at any time and repeated: loaded files are skipped.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from multiprocessing import connection

import psutil

from ingest.file_source import SchemaMode, Source
from ingest.ledger.file_ledger import LANDED_FILES, FileOutcome, LedgerEntry, Status
from ingest.ledger.ledger_access import copy_commits
from ingest.ledger.ledger_queries import table_entries
from ingest.load.batch_loading import BatchOutcome, ensure_inferred, load_batch
from ingest.load.file_batches import MAX_BYTES, MAX_FILES, batches
from orchestration.cli.engine_session import engines
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import RatifyError
from resources.landing.landing_zone import LandedFile
from resources.landing.named_files import NamedFiles


@dataclass(frozen=True)
class FailedBatch:
    """Why a batch was not loaded. It is passed between processes in place of the error, which may not be picklable."""

    reason: str


@dataclass
class Tally:
    """The results of the files so far."""

    files: int
    loaded: int = 0
    rows: int = 0
    skipped: int = 0
    versions: set[int] = field(default_factory=set[int])
    refused: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    failed: str = ""

    @property
    def settled(self) -> int:
        """Files whose result is known."""
        return self.loaded + self.skipped + len(self.refused)

    def add(self, entry: FileOutcome | LedgerEntry, *, before: bool = False) -> None:
        """Count a file; `before` is for one whose result the ledger had already."""
        if entry.status is Status.REFUSED:
            self.refused.append({"file": entry.path, "reason": entry.reason})
        elif before or entry.status is Status.REPEATED:
            self.skipped += 1
        else:
            self.loaded += 1
            self.rows += entry.rows

    def add_batch(self, outcome: BatchOutcome | FailedBatch) -> bool:
        """Count the files of a batch; return whether the batch failed. Only the first failure is recorded."""
        if isinstance(outcome, FailedBatch):
            self.failed = self.failed or outcome.reason
            return True
        for file in outcome.files:
            self.add(file)
        if outcome.version is not None:
            self.versions.add(outcome.version)
        return False


def find_source(table: str) -> Source | None:
    """Return the source that is declared for a table; None if there is none. Case means nothing in names."""
    # Reading declarations imports most of Dagster, and the processes that load do without.
    from orchestration.project_tables import sources

    return next((source for source in sources() if source.table_name.casefold() == table.casefold()), None)


def named_files(paths: Sequence[str]) -> list[LandedFile]:
    """Return the files of paths, folders, globs and URLs, each once.

    Raises:
        LandingUnavailable: there is nothing of a name.
    """
    zone = NamedFiles()
    return sorted({file for path in paths for file in zone.named(path)})


def unsettled_files(source: Source, paths: Sequence[str]) -> tuple[list[LandedFile], Tally]:
    """Return the files of `paths` that have no result in the ledger yet, and a tally that counts the others."""
    with engines() as opened:
        opened.spark.ensure_table(LANDED_FILES)
        files = named_files(paths)
        if source.schema is SchemaMode.DECLARED:
            opened.spark.ensure_table(source.table)
        else:
            ensure_inferred(opened.spark, opened.duckdb, NamedFiles(), source, files)
        with opened.duckdb.session() as duckdb:
            settled = table_entries(duckdb, source, [file.path for file in files]).settled(files)
    tally = Tally(len(files))
    for entry in settled.values():
        tally.add(entry, before=True)
    return [file for file in files if file not in settled], tally


def load_files(
    source: Source, files: Sequence[LandedFile], writers: int, stop: threading.Event
) -> Iterator[BatchOutcome | FailedBatch]:
    """Yield the outcome of each batch as it ends. After `stop` no batch is started; those in progress are finished."""
    work = list(batches(files, min(MAX_FILES, ceil(len(files) / writers) or 1), MAX_BYTES))
    writers = min(writers, len(work))
    if writers <= 1:
        # A process takes seconds to start, which a single batch does not repay.
        yield from (_load(source, batch, writers) for batch in work)
    else:
        yield from _loaded_by_processes(source, work, writers, stop)
    if work and not stop.is_set():
        engine = _engine(writers)
        copy_commits(engine, source.table.full_name(engine.catalog.connection.name))


def _loaded_by_processes(
    source: Source, work: Sequence[Sequence[LandedFile]], writers: int, stop: threading.Event
) -> Iterator[BatchOutcome | FailedBatch]:
    pending = set[Future[BatchOutcome | FailedBatch]]()
    # Spawned, because a fork would have the engines' locks but not their threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(writers, context, initializer=_end_with_parent) as pool:
        for batch in work:
            if stop.is_set():
                break
            with _interrupts_held():
                pending.add(pool.submit(_load, source, batch, writers))
            if len(pending) == writers:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _load(source: Source, files: Sequence[LandedFile], writers: int) -> BatchOutcome | FailedBatch:
    """Load a batch, in a process of its own."""
    try:
        return load_batch(_engine(writers), NamedFiles(), source, files, more_follow=True)
    except RatifyError as error:
        return FailedBatch(f"{type(error).__name__}: {error}")


@cache
def _engine(writers: int) -> DuckDB:
    """Return this process's engine, with its share of the machine."""
    threads = max(1, (os.cpu_count() or 1) // writers)
    # All engines together get 80 %, which is DuckDB's own limit for one.
    memory = psutil.virtual_memory().total * 4 // 5 // writers >> 20
    return DuckDB(catalog=UnityCatalog(), threads=threads, memory_limit=f"{memory}MiB")


def _end_with_parent() -> None:
    """End this process when the command is killed; it would wait for work forever."""

    def watch() -> None:
        if parent := multiprocessing.parent_process():
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Block SIGINT while processes start: they inherit the mask, so that Ctrl-C does not reach them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
