"""`ratify clean`: remove what killed writers, and old versions, left in a table's storage."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, show
from ratify_lakehouse.wording import counted


def clean(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    old_versions: Annotated[
        bool,
        typer.Option(
            "--old-versions",
            help="Also files of versions older than the table's retention, which then can no longer be read.",
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option(
            "--log", help="Also log files older than the log's retention; earlier versions can then no longer be read."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove the files that no version of a table needs, if they are older than a week. See docs/repair.md."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.delta.expired_log import LOG_RETENTION
    from ratify_lakehouse.delta.table_clean import RETENTION, unneeded_files
    from ratify_lakehouse.delta.table_clean import clean as clean_table

    with engines() as opened:
        full_name = opened.full_name(table)
        find = unneeded_files if dry_run else clean_table
        files = find(opened.catalog, opened.duckdb.log(full_name), old_versions=old_versions, old_log=log)
    rows = [{"file": file.path, "kind": file.kind, "bytes": file.size} for file in files]
    show(f"Files that {full_name} does not need", rows, as_json=as_json)
    if files and not as_json:
        done, ended = ("would be removed", "could not be") if dry_run else ("removed", "cannot be")
        out.print(f"{counted(len(files), 'file')} {done}.", highlight=False)
        if any(file.kind == "old version" for file in files):
            out.print(
                f"Versions before those of the table's retention ({RETENTION}) {ended} read any more.", highlight=False
            )
        if any(file.kind == "log file" for file in files):
            out.print(
                f"Versions before those of the log's retention ({LOG_RETENTION}) {ended} listed or read any more.",
                highlight=False,
            )
