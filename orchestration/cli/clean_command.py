"""`ratify clean`: remove what writers that were killed left in a table's storage."""

from typing import Annotated

import typer

from orchestration.cli.terminal_output import Json, out, show
from resources.wording import counted


def clean(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the files that no version of a table needs, if they are older than a week. See docs/repair.md."""
    from orchestration.cli.engine_session import engines
    from resources.delta.table_clean import clean as clean_table
    from resources.delta.table_clean import unneeded_files

    with engines() as opened:
        full_name = opened.full_name(table)
        find = unneeded_files if dry_run else clean_table
        files = find(opened.catalog, opened.duckdb.log(full_name))
    rows = [{"file": file.path, "kind": file.kind, "bytes": file.size} for file in files]
    show(f"Files that {full_name} does not need", rows, as_json=as_json)
    if files and not as_json:
        done = "would be removed" if dry_run else "removed"
        out.print(f"{counted(len(files), 'file')} {done}.", highlight=False)
