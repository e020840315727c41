"""`ratify repair`: make a table readable again whose files are gone."""

from typing import Annotated

import typer

from ingest.ledger.ledger_writes import withdraw_loads
from orchestration.cli import cli_session
from resources.delta.table_repair import planned_repair
from resources.delta.table_repair import repair as repair_table


def repair(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: cli_session.Json = False,
) -> None:
    """Take out of a table what its storage has lost, in one version. docs/repair.md says what can be loaded again."""
    with cli_session.engines() as engines:
        full_name = engines.full_name(table)
        log = engines.duckdb.log(full_name)
        repaired = planned_repair(log) if dry_run else repair_table(log)
        if repaired and not dry_run:
            with engines.duckdb.session() as duckdb:
                withdraw_loads(duckdb, full_name.partition(".")[2], repaired.loads, repaired.version)
    missing = repaired.missing if repaired else ()
    rows = [
        {
            "file": file.path,
            "rows": "not said" if file.rows is None else file.rows,
            "version": "not known" if file.version is None else file.version,
            "written by": file.writer or "not known",
            "rows come back": repaired is not None and file not in repaired.lost,
        }
        for file in missing
    ]
    cli_session.show(f"Missing of {full_name}", rows, as_json=as_json)
    if repaired is None or as_json:
        return
    done = "would be taken out" if repaired.version is None else f"taken out in version {repaired.version}"
    cli_session.out.print(f"{len(repaired.removed)} files {done}.", highlight=False)
    if repaired.loads:
        cli_session.out.print("Load again:", *repaired.loads, sep="\n  ", highlight=False, soft_wrap=True, markup=False)
    if repaired.lost:
        known = sum(file.rows or 0 for file in repaired.lost)
        unsaid = sum(file.rows is None for file in repaired.lost)
        more = f", and those of {unsaid} files whose writer did not count them" if unsaid else ""
        cli_session.out.print(f"Rows that no load brings back: {known:,}{more}.", highlight=False)
