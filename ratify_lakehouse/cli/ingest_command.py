"""`ratify ingest`: files into a bronze table, by several writers at once, each file exactly once."""

import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, progress, show, show_json, styled
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.cli.parallel_ingest import Tally
    from ratify_lakehouse.ingest.file_source import Source

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the signal's number, as in shells."""


def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files, folders, globs or URLs.")],
    table: Annotated[str, typer.Option(help="The table, such as bronze.orders.")],
    writers: Annotated[int, typer.Option(min=1, help="Threads that read and stage files, at most.")] = 4,
    as_json: Json = False,
) -> None:
    """Load files into a bronze table, each exactly once; loaded files are skipped. Exit code 1: a file was refused.

    A table that is not declared gets a declaration, with the columns of the first file.
    """
    from ratify_lakehouse.cli.parallel_ingest import find_source, load_files, unsettled_files
    from ratify_lakehouse.definitions.project_folders import project_root
    from ratify_lakehouse.settings import Settings

    started = time.monotonic()
    project_root()
    # Without a catalog it ends here: reading declarations imports most of Dagster, and one may be written.
    Settings().catalog_connection()
    source = find_source(table) or _declared(table, paths)
    files, tally = unsettled_files(source, paths)
    with _until_interrupted() as stop, _progress(tally) as show_progress:
        for outcome in load_files(source, files, writers, stop):
            if tally.add_batch(outcome):
                stop.set()
            show_progress()
    interrupted = stop.is_set() and not tally.failed
    _report(source.table_name, tally, time.monotonic() - started, interrupted=interrupted, as_json=as_json)
    raise typer.Exit(INTERRUPTED if interrupted else 1 if tally.failed or tally.refused else 0)


def _declared(table: str, paths: Sequence[str]) -> "Source":
    """Declare a table by its files, and show the declaration."""
    from ratify_lakehouse.cli.new_declaration import declared_from
    from ratify_lakehouse.cli.parallel_ingest import named_files

    source, declaration = declared_from(table, named_files(paths))
    progress(f"{source.table_name} was not declared; it is now, in {declaration}:")
    err.print(declaration.read_text(), highlight=False)
    return source


@contextmanager
def _until_interrupted() -> Generator[threading.Event]:
    """An event that Ctrl-C sets; a second Ctrl-C ends the command at once."""
    stop = threading.Event()

    def interrupt(*_: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        progress("stopping after the batches in progress (press Ctrl-C again to stop at once)")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(tally: "Tally") -> Generator[Callable[[], None]]:
    """Show how many files are done: a bar on a terminal, otherwise a line for each batch."""
    if not err.is_terminal:
        yield lambda: progress(f"{tally.settled:,} of {counted(tally.files, 'file')}, {counted(tally.rows, 'row')}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text = TextColumn("files, {task.fields[rows]:,} rows")
    columns = (BarColumn(), MofNCompleteColumn(), text, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("files", total=tally.files, completed=tally.settled, rows=tally.rows)
        yield lambda: bar.update(task, completed=tally.settled, rows=tally.rows)


def _report(table: str, tally: "Tally", seconds: float, *, interrupted: bool, as_json: bool) -> None:
    numbers: dict[str, Any] = {
        "files": tally.files,
        "loaded": tally.loaded,
        "rows": tally.rows,
        "skipped": tally.skipped,
        "files refused": len(tally.refused),
        "not begun": tally.files - tally.settled,
        "versions": len(tally.versions),
        "seconds": round(seconds, 2),
    }
    if as_json:
        more = {"versions": sorted(tally.versions), "refused": tally.refused, "interrupted": interrupted}
        show_json({"table": table, **numbers, **more, "failed": tally.failed})
        return
    show(f"Ingested into {table}", [numbers])
    if tally.refused:
        show("Refused", tally.refused)
    if tally.failed:
        err.print(styled("stopped:", "red", f" {tally.failed} Run it again: loaded files are skipped."))
