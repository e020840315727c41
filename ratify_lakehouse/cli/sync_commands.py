"""`ratify sync`: the syncs of the project, what they need, what they would do, and their runs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratify_lakehouse.cli.terminal_output import Json, err, out, show, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ratify_lakehouse.components.syncs.sync_declaration import SyncDeclaration

sync_app = typer.Typer(no_args_is_help=True, help="Syncs: from a table, a query or a file into any table of the catalog.")

Names = Annotated[list[str] | None, typer.Argument(help="Names of syncs; default: all.", show_default=False)]


@sync_app.command("list")
def list_syncs(as_json: Json = False) -> None:
    """List the syncs of the project."""
    rows = [
        {
            "sync": sync.name,
            "strategy": sync.strategy.value,
            "source": ", ".join(map(str, sync.source.query.inputs)) if sync.source.query else sync.source.files,
            "destination": str(sync.destination),
            "keys": ", ".join(sync.keys),
            "rows that do not fit": sync.row_errors.value,
        }
        for sync in _chosen(None)
    ]
    show("Syncs", rows, as_json=as_json)


@sync_app.command("check")
def check_syncs(names: Names = None, as_json: Json = False) -> None:
    """Try what each sync needs, and name what it lacks; nothing is written."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.components.syncs.sync_connection import connection_steps

    rows = list[dict[str, str]]()
    with engines() as opened:
        for sync in _chosen(names):
            steps = connection_steps(opened.spark, opened.duckdb, sync)
            rows += [{"sync": sync.name, "step": each.name, "found": each.found, "lacks": each.lacks} for each in steps]
    show("What each sync needs", rows, as_json=as_json)
    if any(row["lacks"] for row in rows):
        raise typer.Exit(1)


@sync_app.command("plan")
def plan_syncs(names: Names = None, as_json: Json = False) -> None:
    """Show what a run of each sync would insert, update and delete, and some of these rows; nothing is written."""
    from ratify_lakehouse.cli.engine_session import engines
    from ratify_lakehouse.components.syncs.sync_engines import pass_of
    from ratify_lakehouse.errors import TerminalError

    counted, samples = list[dict[str, object]](), list[tuple[str, list[dict[str, object]]]]()
    failed = list[str]()
    with engines() as opened:
        for sync in _chosen(names):
            try:
                counts, sample = pass_of(opened.spark, opened.duckdb, sync).plan()
            except TerminalError as error:
                failed.append(f"{sync.name}: {error}")
                continue
            row: dict[str, object] = {"sync": sync.name, "destination": str(sync.destination), **asdict(counts)}
            counted.append({**row, "sample": [dict(each) for each in sample]} if as_json else row)
            samples.append((sync.name, [dict(each) for each in sample]))
    show("What a run would do", counted, as_json=as_json)
    for name, sample in samples:
        if sample and not as_json:
            show(f"{name}: some of the changes", sample, counts=())
    _report_failed(failed)


@sync_app.command("run")
def run_syncs(names: Names = None, as_json: Json = False) -> None:
    """Run syncs, as Dagster does, and show what each has done."""
    from ratify_lakehouse.cli.sync_run import run_chosen

    rows, failed = run_chosen([sync.name for sync in _chosen(names)])
    show("What the syncs did", rows, as_json=as_json)
    _report_failed(failed)


@sync_app.command("import")
def import_sync(
    file: Annotated[Path, typer.Argument(help="YAML of a sync with a destination of the type databricks.", exists=True)],
    name: Annotated[str, typer.Option(help="Of the sync; default: as the file says.", show_default=False)] = "",
) -> None:
    """Turn a sync of another tool into one of the project, and say what is different."""
    from ratify_lakehouse.components.syncs.sync_import import imported
    from ratify_lakehouse.definitions.project_tables import folder

    made = imported(file, name)
    place = folder() / "syncs" / made.name
    if place.exists():
        raise typer.BadParameter(f"{place} exists already; give another name with --name.")
    for path, text in made.files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        out.print(f"wrote {target}", highlight=False)
    for note in made.notes:
        out.print(f"- {note}", highlight=False)


def _report_failed(messages: "Sequence[str]") -> None:
    for message in messages:
        err.print(styled("failed:", "red", f" {message}"))
    if messages:
        raise typer.Exit(1)


def _chosen(names: "Sequence[str] | None") -> "list[SyncDeclaration]":
    from ratify_lakehouse.definitions.project_tables import declared_tables
    from ratify_lakehouse.errors import NotConfigured

    known = declared_tables().syncs
    if unknown := [name for name in names or () if name not in known]:
        listed = f"choose from {', '.join(known)}" if known else "the project has none"
        raise NotConfigured(f"{unknown[0]} is not a sync: {listed}.")
    return [known[name].sync for name in names or known]
