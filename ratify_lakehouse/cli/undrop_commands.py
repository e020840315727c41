"""`ratify undrop` and `ratify purge`: dropped tables, brought back or deleted for good."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, show

if TYPE_CHECKING:
    from ratify_lakehouse.catalog.dropped_tables import DroppedTable
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

_Id = Annotated[str, typer.Option("--id", help="Which of several tables of that name; by default the one dropped last.")]


def undrop(
    table: Annotated[
        str, typer.Argument(help="schema.table, or catalog.schema.table; without one, list the dropped tables.")
    ] = "",
    table_id: _Id = "",
    as_json: Json = False,
) -> None:
    """Bring back a table that was dropped, with its versions and grants; without a table, list those that can be."""
    from ratify_lakehouse.catalog.dropped_tables import undrop as undrop_table

    catalog = _catalog()
    if not table:
        show("Dropped tables", [_row(each) for each in _all(catalog)], as_json=as_json)
        return
    found = _chosen(catalog, table, table_id)
    undrop_table(catalog, found)
    text = f"{found.full_name} is back as it was when it was dropped, {_at(found.dropped_at)} UTC."
    out.print(text, highlight=False, soft_wrap=True)


def purge(
    table: Annotated[str, typer.Argument(help="schema.table, or catalog.schema.table, which was dropped.")],
    table_id: _Id = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete the files of a dropped table now: it cannot be undropped any more."""
    from ratify_lakehouse.catalog.dropped_tables import delete_dropped

    catalog = _catalog()
    found = _chosen(catalog, table, table_id)
    named = f"{found.full_name}, dropped {_at(found.dropped_at)} UTC"
    if not yes:
        typer.confirm(f"Delete {named} for good?", abort=True)
    delete_dropped(catalog, found)
    out.print(f"{named}: its files are deleted.", highlight=False, soft_wrap=True)


def _catalog() -> "UnityCatalog":
    """As the admin of the embedded catalog: the engines own their own tables only."""
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

    return UnityCatalog(admin=True)


def _all(catalog: "UnityCatalog") -> "list[DroppedTable]":
    from ratify_lakehouse.catalog.dropped_tables import dropped_tables

    name = catalog.connection.name
    schemas = catalog.ask(f"list the schemas of {name}", lambda: list(catalog.client.schemas.list(name)))
    return [table for schema in schemas for table in dropped_tables(catalog, f"{name}.{schema.name}")]


def _chosen(catalog: "UnityCatalog", table: str, table_id: str) -> "DroppedTable":
    from ratify_lakehouse.catalog.dropped_tables import dropped_table
    from ratify_lakehouse.cli.engine_session import full_name

    return dropped_table(catalog, full_name(catalog, table), table_id)


def _row(table: "DroppedTable") -> dict[str, Any]:
    return {
        "table": table.full_name,
        "dropped at (UTC)": _at(table.dropped_at),
        "files until (UTC)": _at(table.retained_until) if table.retained_until else "the server does not say",
        "owner": table.owner,
        "id": table.id,
    }


def _at(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
