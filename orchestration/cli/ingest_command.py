"""`ratify ingest`: files into a bronze table, by several processes at once, each file exactly once.

The processes share their commits (see `resources.duckdb.group_commit`). A batch is either in the table or it is not, so
the command may be stopped or killed at any time and be run again: what is in is skipped.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from multiprocessing import connection
from typing import Annotated, Any

import psutil
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from assets.bronze.landed_tables import SOURCES
from ingest.file_source import Source
from ingest.ledger import ledger_queries
from ingest.ledger.file_ledger import LANDED_FILES, Status
from ingest.ledger.ledger_queries import EntryState
from ingest.load.batch_loading import BatchOutcome, load_batch
from ingest.load.file_batches import MAX_BYTES, MAX_FILES, batches
from orchestration.cli import cli_session
from resources.catalog.unity_catalog import UnityCatalog
from resources.duckdb.duckdb_engine import DuckDB
from resources.errors import RatifyError
from resources.landing.landing_zone import LandedFile
from resources.landing.named_files import NamedFiles

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as shells have it."""


class NoSuchSource(RatifyError):
    """No source is declared for a table of that name."""


@dataclass(frozen=True)
class Failed:
    """Why a batch was not loaded. The error itself need not survive the way between processes."""

    reason: str


@dataclass
class Tally:
    """What became of the files so far."""

    files: int
    loaded: int = 0
    rows: int = 0
    skipped: int = 0
    versions: set[int] = field(default_factory=set[int])
    refused: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    failed: str = ""

    @property
    def settled(self) -> int:
        """Files of which is known what became of them."""
        return self.loaded + self.skipped + len(self.refused)

    def add(self, path: str, entry: EntryState, *, before: bool = False) -> None:
        """Count a file; `before` is for one that this command found settled."""
        if entry.status is Status.QUARANTINED:
            self.refused.append({"file": path, "reason": entry.reason})
        elif before or entry.status is Status.REPEATED:
            self.skipped += 1
        else:
            self.loaded += 1
            self.rows += entry.rows

    def add_batch(self, outcome: BatchOutcome) -> None:
        """Count the files of a batch."""
        for file in outcome.files:
            self.add(file.path, EntryState(file.status, file.rows, file.reason))
        if outcome.version is not None:
            self.versions.add(outcome.version)


def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files, folders, globs or URLs.")],
    table: Annotated[str, typer.Option(help="The table of a declared source, such as bronze.flights_raw.")],
    writers: Annotated[int, typer.Option(min=1, help="Processes that read and stage files, at most.")] = 4,
    as_json: cli_session.Json = False,
) -> None:
    """Load files into a bronze table, each exactly once; what is in already is skipped. Exit code 1: a file was refused."""
    started = time.monotonic()
    source = _source(table)
    with cli_session.engines() as engines:
        for declaration in (LANDED_FILES, source.table):
            engines.spark.ensure_table(declaration)
        zone = NamedFiles()
        files = sorted({file for place in paths for file in zone.named(place)})
        with engines.duckdb.session() as duckdb:
            settled = ledger_queries.settled(duckdb, source, files)
    tally = Tally(len(files))
    for file, entry in settled.items():
        tally.add(file.path, entry, before=True)
    with _until_interrupted() as stop, _progress(tally) as show:
        for outcome in _loaded(source, [file for file in files if file not in settled], writers, stop):
            if isinstance(outcome, Failed):
                tally.failed = tally.failed or outcome.reason
                stop.set()
            else:
                tally.add_batch(outcome)
            show()
    interrupted = stop.is_set() and not tally.failed
    _report(table, tally, time.monotonic() - started, interrupted=interrupted, as_json=as_json)
    raise typer.Exit(INTERRUPTED if interrupted else 1 if tally.failed or tally.refused else 0)


def _source(table: str) -> Source:
    names = {source.table_name: source for source in SOURCES}
    if table not in names:
        raise NoSuchSource(f"No source is declared for {table}; there are {', '.join(names)} (ingest/file_source.py).")
    return names[table]


def _loaded(
    source: Source, files: Sequence[LandedFile], writers: int, stop: threading.Event
) -> Iterator[BatchOutcome | Failed]:
    """Yield what became of each batch as it ends. After `stop` none is begun, and those under way are waited for."""
    work = list(batches(files, min(MAX_FILES, ceil(len(files) / writers) or 1), MAX_BYTES))
    writers = min(writers, len(work))
    if writers <= 1:
        # One batch is no work for several processes, of which each takes seconds to start.
        yield from (_load(source, batch, writers) for batch in work)
        return
    pending = set[Future[BatchOutcome | Failed]]()
    # Spawned, for a fork of a process in which engines have run has their locks but not their threads.
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


def _load(source: Source, files: Sequence[LandedFile], writers: int) -> BatchOutcome | Failed:
    """Load a batch, in a process of its own."""
    try:
        return load_batch(_engine(writers), NamedFiles(), source, files)
    except RatifyError as error:
        return Failed(f"{type(error).__name__}: {error}")


@cache
def _engine(writers: int) -> DuckDB:
    """This process's engine, with its share of the machine."""
    threads = max(1, (os.cpu_count() or 1) // writers)
    # 80 % in all, which is DuckDB's own limit for one.
    memory = psutil.virtual_memory().total * 4 // 5 // writers >> 20
    return DuckDB(catalog=UnityCatalog(), threads=threads, memory_limit=f"{memory}MiB")


def _end_with_parent() -> None:
    """Let this process end when the command is killed: it would wait for work for ever."""

    def watch() -> None:
        if parent := multiprocessing.parent_process():
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Start processes that Ctrl-C does not reach: a process inherits what is held back, and keeps it back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _until_interrupted() -> Generator[threading.Event]:
    """An event that Ctrl-C sets; the second Ctrl-C ends the command at once."""
    stop = threading.Event()

    def interrupt(*_: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        cli_session.progress("stopping: batches that are under way are finished first (Ctrl-C again: not even that)")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(tally: Tally) -> Generator[Callable[[], None]]:
    """Show how far the files are: a bar on a terminal, else a line for each batch."""
    if not cli_session.err.is_terminal:
        yield lambda: cli_session.progress(f"{tally.settled:,} of {tally.files:,} files, {tally.rows:,} rows")
        return
    text = TextColumn("files, {task.fields[rows]:,} rows")
    columns = (BarColumn(), MofNCompleteColumn(), text, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=cli_session.err) as bar:
        task = bar.add_task("files", total=tally.files, completed=tally.settled, rows=tally.rows)
        yield lambda: bar.update(task, completed=tally.settled, rows=tally.rows)


def _report(table: str, tally: Tally, seconds: float, *, interrupted: bool, as_json: bool) -> None:
    numbers: dict[str, Any] = {
        "files": tally.files,
        "loaded": tally.loaded,
        "rows": tally.rows,
        "skipped": tally.skipped,
        "quarantined": len(tally.refused),
        "not begun": tally.files - tally.settled,
        "versions": len(tally.versions),
        "seconds": round(seconds, 2),
    }
    if as_json:
        more = {"versions": sorted(tally.versions), "refused": tally.refused, "interrupted": interrupted}
        cli_session.out.print_json(json.dumps({"table": table, **numbers, **more, "failed": tally.failed}))
        return
    cli_session.show(f"Ingested into {table}", [numbers])
    if tally.refused:
        cli_session.show("Refused", tally.refused)
    if tally.failed:
        cli_session.err.print(f"[red]stopped:[/red] {tally.failed} Run it again: what is in is skipped.", highlight=False)
