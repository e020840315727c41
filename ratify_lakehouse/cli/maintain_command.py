"""`ratify maintain`: what maintenance a table needs and allows, and its compaction."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, out, runnable, show, show_json, styled
from ratify_lakehouse.wording import counted

if TYPE_CHECKING:
    from ratify_lakehouse.cli.engine_session import Engines
    from ratify_lakehouse.delta.maintenance_rules import MaintenanceRules

_FIGURES = frozenset(
    {"files", "bytes", "rows", "small files", "mergeable files", "deletion vectors", "deleted rows", "droppable rows"}
    | {"new files", "new bytes", "files before", "files after", "versions since checkpoint"}
)


def maintain(
    table: Annotated[
        str, typer.Argument(help="schema.table, or catalog.schema.table; default: all declared tables, the worst first.")
    ] = "",
    due: Annotated[
        bool, typer.Option("--due", help="Do what the job `maintenance` would do now, to the table or to all.")
    ] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Write small files into larger ones; no row changes.")] = False,
    target_mb: Annotated[int, typer.Option("--target-mb", min=1, help="Size of the larger files, in MB.")] = 128,
    sort: Annotated[str, typer.Option("--sort", help="Columns to order each larger file by: a,b.")] = "",
    z_order: Annotated[bool, typer.Option("--z-order", help="Weigh all these columns alike, by Z-order.")] = False,
    as_json: Json = False,
) -> None:
    """Show what tables need, or a table's files and what it allows; or maintain them. See docs/table-maintenance.md."""
    from ratify_lakehouse.cli.engine_session import engines

    if due:
        _maintenance_when_due(table, as_json)
        return
    with engines() as opened:
        if not table:
            if compact:
                raise typer.BadParameter("name the table to compact; `ratify maintain --due` maintains all that need it.")
            _show_needs(opened, as_json)
            return
        full_name = opened.full_name(table)
        if compact:
            columns = tuple(column.strip() for column in sort.split(",") if column.strip())
            if z_order and len(columns) < 2:
                raise typer.BadParameter("name at least two columns with --sort: a Z-order of one column is a plain sort.")
            _compact(opened, full_name, target_mb << 20, (columns, z_order), as_json)
        else:
            _show(opened, full_name, target_mb << 20, as_json)


def _show_needs(opened: "Engines", as_json: bool) -> None:
    from ratify_lakehouse.cli.maintenance_run import maintenance_needs

    rows = maintenance_needs(opened)
    show("Tables and the maintenance they need", rows, as_json=as_json, counts=_FIGURES)
    if any(row["due"] for row in rows) and not as_json:
        out.print(
            runnable("The job `maintenance` does what is due, and `ratify maintain --due` does it now."), highlight=False
        )


def _maintenance_when_due(table: str, as_json: bool) -> None:
    from ratify_lakehouse.cli.maintenance_run import maintain_when_due

    rows, failure = maintain_when_due([".".join(table.split(".")[-2:])] if table else [])
    show("Maintenance", rows, as_json=as_json, counts=_FIGURES)
    if failure:
        err.print(styled(failure, "red"))
        raise typer.Exit(1)


def _show(opened: "Engines", full_name: str, target_bytes: int, as_json: bool) -> None:
    from ratify_lakehouse.delta.maintenance_rules import Manager, maintenance_rules
    from ratify_lakehouse.delta.table_figures import table_figures

    rules = maintenance_rules(opened.catalog, full_name)
    figures: dict[str, Any] = {}
    if rules.manager is not Manager.EXTERNAL:
        # Only a managed table has a log that the catalog gives to clients.
        found = asdict(table_figures(opened.catalog, opened.duckdb.log(full_name), full_name, target_bytes))
        figures = {name.replace("_", " "): value for name, value in found.items()}
    operations = _operations(rules)
    if as_json:
        shown = {"table": full_name, "managed by": str(rules.manager), "figures": figures, "operations": operations}
        show_json(shown)
        return
    show(f"{full_name}, managed by {rules.manager}", [figures] if figures else [], counts=_FIGURES)
    show("Maintenance", operations)


def _operations(rules: "MaintenanceRules") -> list[dict[str, Any]]:
    return [
        {"operation": str(rule.operation), "allowed": rule.allowed, "by, or instead": rule.by, "reason": rule.reason}
        for rule in rules.rules.values()
    ]


def _compact(
    opened: "Engines", full_name: str, target_bytes: int, order: tuple[tuple[str, ...], bool], as_json: bool
) -> None:
    from ratify_lakehouse.engines.duckdb.row_order import RowOrder
    from ratify_lakehouse.engines.duckdb.table_compaction import compact

    with opened.duckdb.session() as session:
        log = opened.duckdb.log(full_name)
        done = compact(session, opened.catalog, log, full_name, target_bytes=target_bytes, order=RowOrder(*order))
    rows = [{name.replace("_", " "): value for name, value in asdict(bin_).items()} for bin_ in done]
    show(f"Compaction of {full_name}", rows, as_json=as_json, counts=_FIGURES)
    if done and not as_json:
        before, after = sum(bin_.files for bin_ in done), sum(bin_.new_files for bin_ in done)
        out.print(f"{counted(before, 'file')} are {after:,} now; no row changed.", highlight=False)
