"""`ratify layout`: how the files of tables are divided, and their rewrite as the declaration has it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, show
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.cli.engine_session import Engines
    from ratify_lakehouse.declarations import TableDeclaration


def layout(
    table: Annotated[str, typer.Argument(help="schema.table; without one, list all declared tables.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the present and the declared layout.")] = False,
    as_json: Json = False,
) -> None:
    """Give a table the layout that it declares (`partition_by`, `cluster_by`): one commit, which changes no row."""
    from ratify_lakehouse.cli.dagster_session import dagster_instance
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.cli.job_run import close_dead_runs
    from ratify_lakehouse.definitions.layout_rewrite import give_layout
    from ratify_lakehouse.definitions.table_drift import drifting

    with engines() as opened:
        found = drifting(opened.full_name(table) if table else "")
        if dry_run or not table:
            rows = [row for name, declared in found.items() if (row := _row(opened, name, declared, required=bool(table)))]
            show("Layouts", rows, as_json=as_json)
            return
        ((full_name, declared),) = found.items()
        before = _row(opened, full_name, declared, required=True) or {}
        with dagster_instance() as instance, opened.duckdb.session() as session:
            close_dead_runs(instance)
            done = give_layout(session, opened.catalog, opened.duckdb.log(full_name), instance, declared)
    version, files = (done.version, done.new_files) if done else (None, before["files"])
    show("Layout", [{**before, "committed in": version, "files now": files}], as_json=as_json)
    if done and not as_json:
        text = (
            f"{counted(done.rows, 'row')} in {counted(done.new_files, 'file')}; no row changed. To undo it, declare it as "
            f"{before['layout']} and run this again."
        )
        out.print(text, highlight=False, soft_wrap=True)


def _row(opened: "Engines", full_name: str, declared: "TableDeclaration", *, required: bool) -> dict[str, Any] | None:
    from ratify_lakehouse.delta.layout_change import layout_of

    log = opened.duckdb.log(full_name)
    try:
        snapshot = log.refresh()
    except TableMissing:
        # It is created as it is declared.
        if required:
            raise
        return None
    return {
        "table": full_name,
        "layout": str(layout_of(snapshot)),
        "declared": str(declared.layout),
        "files": len(log.files(snapshot)),
    }
