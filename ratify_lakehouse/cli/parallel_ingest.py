"""Loading files into one bronze table by several writers.

The writers are threads: a process would import for seconds what this one has imported, and DuckDB, which reads the files and
writes the rows, lets other threads run meanwhile. Each has an engine of its own, because an attached catalog is the
engine's. They share their commits (see `ratify_lakehouse.engines.duckdb.group_commit`). A batch is in the table as a whole
or not at all, so the work may be stopped or killed at any time and repeated: loaded files are skipped.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from math import ceil
from queue import SimpleQueue

import psutil

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.engine_session import engines
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import RatifyError
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, FileOutcome, LedgerEntry, Status
from ratify_lakehouse.ingest.ledger.ledger_access import copy_commits
from ratify_lakehouse.ingest.ledger.ledger_queries import table_entries
from ratify_lakehouse.ingest.load.batch_loading import BatchOutcome, load_batch
from ratify_lakehouse.ingest.load.file_batches import MAX_BYTES, MAX_FILES, batches
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table
from ratify_lakehouse.landing.landing_zone import LandedFile
from ratify_lakehouse.landing.named_files import NamedFiles


@dataclass(frozen=True)
class FailedBatch:
    """Why a batch was not loaded."""

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
    # Reading declarations imports most of Dagster.
    from ratify_lakehouse.definitions.project_tables import sources

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
        ensure_landed_table(opened.spark, opened.duckdb, NamedFiles(), source, files)
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
    if not work:
        return
    engines = _engines(min(writers, len(work)))
    try:
        failed = False
        for outcome in _loaded(source, work, engines, stop):
            failed = failed or isinstance(outcome, FailedBatch)
            yield outcome
        # After an interrupt, too: the ledger has what is reported. A catalog that has failed would fail again.
        if not failed:
            with closing(engines.get()) as engine:
                copy_commits(engine, source.table.full_name(engine.catalog.connection.name))
    finally:
        while not engines.empty():
            engines.get().close()


def _loaded(
    source: Source, work: Sequence[Sequence[LandedFile]], engines: SimpleQueue[DuckDB], stop: threading.Event
) -> Iterator[BatchOutcome | FailedBatch]:
    """Load batches by as many writers as there are engines; all engines are in the queue again at the end."""
    pending, writers = set[Future[BatchOutcome | FailedBatch]](), engines.qsize()
    with ThreadPoolExecutor(writers, thread_name_prefix="writer") as pool:
        for batch in work:
            if stop.is_set():
                break
            pending.add(pool.submit(_load, engines, source, batch))
            if len(pending) == writers:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _load(engines: SimpleQueue[DuckDB], source: Source, files: Sequence[LandedFile]) -> BatchOutcome | FailedBatch:
    engine = engines.get()
    try:
        return load_batch(engine, NamedFiles(), source, files, more_follow=True)
    except RatifyError as error:
        return FailedBatch(f"{type(error).__name__}: {error}")
    finally:
        engines.put(engine)


def _engines(writers: int) -> SimpleQueue[DuckDB]:
    """Return an engine for each writer, with its share of the machine."""
    threads = max(1, (os.cpu_count() or 1) // writers)
    # All engines together get 80 %, which is DuckDB's own limit for one.
    memory = psutil.virtual_memory().total * 4 // 5 // writers >> 20
    engines = SimpleQueue[DuckDB]()
    for _ in range(writers):
        engines.put(DuckDB(catalog=UnityCatalog(), threads=threads, memory_limit=f"{memory}MiB"))
    return engines
