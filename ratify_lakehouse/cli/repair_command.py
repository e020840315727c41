"""`ratify repair`: make a table readable again after its storage lost files."""

from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, show
from ratify_lakehouse.wording import counted


def repair(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the lost files from a table, in one version. docs/repair.md explains what can be loaded again."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.delta.table_repair import planned_repair
    from ratify_lakehouse.delta.table_repair import repair as repair_table
    from ratify_lakehouse.ingest.ledger.file_load_ids import contents
    from ratify_lakehouse.ingest.ledger.ledger_access import copy_commits

    with engines() as opened:
        full_name = opened.full_name(table)
        log = opened.duckdb.log(full_name)
        repaired = planned_repair(log) if dry_run else repair_table(log)
        if repaired and not dry_run and contents(repaired.loads):
            # The commit says which files it withdrew: whoever loads next would write the ledger's entries as well.
            copy_commits(opened.duckdb, full_name)
    missing = repaired.missing if repaired else ()
    rows = [
        {
            "file": file.path,
            "rows": "unknown" if file.rows is None else file.rows,
            "version": "unknown" if file.version is None else file.version,
            "written by": file.writer or "unknown",
            "rows come back": repaired is not None and file not in repaired.lost,
        }
        for file in missing
    ]
    show(f"Missing of {full_name}", rows, as_json=as_json)
    if repaired is None or as_json:
        return
    done = "would be taken out" if repaired.version is None else f"taken out in version {repaired.version}"
    out.print(f"{counted(len(repaired.removed), 'file')} {done}.", highlight=False)
    if repaired.loads:
        out.print("Load again:", *repaired.loads, sep="\n  ", highlight=False, soft_wrap=True)
    if repaired.lost:
        known = sum(file.rows or 0 for file in repaired.lost)
        uncounted = sum(file.rows is None for file in repaired.lost)
        more = f", and those of {uncounted} files whose writer did not count them" if uncounted else ""
        out.print(f"Rows that no load brings back: {known:,}{more}.", highlight=False)
