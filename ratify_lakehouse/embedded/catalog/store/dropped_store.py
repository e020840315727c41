"""Drops: a managed table's row, commits and grants stay as long as its files, so that it can be undropped.

`grant_store` decides by the ids of its parents who may. A schema that was created again finds the tables of the dropped one
of its name, for those who may undrop them. Every function runs in the given transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from ratify_lakehouse.embedded.catalog.api_errors import NoSuchTableError
from ratify_lakehouse.embedded.catalog.store.catalog_database import now_ms
from ratify_lakehouse.embedded.catalog.store.database_schema import (
    catalogs,
    commits,
    dropped_grants,
    dropped_tables,
    grants,
    purges,
    schemas,
    staging_tables,
    tables,
)
from ratify_lakehouse.embedded.catalog.store.table_store import Table, get_table, refuse_taken
from ratify_lakehouse.embedded.catalog.store.table_updates import LoadedTable, waiting_commits

if TYPE_CHECKING:
    from ratify_lakehouse.embedded.catalog.store.namespace_store import Catalog, Schema


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A managed table that can be undropped; `dropped_at` is in epoch milliseconds."""

    id: str
    name: str
    owner: str
    dropped_at: int
    schema: str = ""


def drop_table(tx: Connection, table: Table) -> None:
    """Take a table away from its schema; a managed one with its files can be undropped."""
    _drop(tx, tables.c.id == table.id)
    tx.execute(delete(staging_tables).where(staging_tables.c.id == table.id))


def drop_all(tx: Connection, schema: "Schema") -> None:
    """Drop every table of a schema that is being dropped; note abandoned staging files for deletion."""
    _drop(tx, tables.c.schema_id == schema.id)
    # It may have been renamed since it lost the first of its tables.
    tx.execute(update(dropped_tables).where(dropped_tables.c.schema_id == schema.id).values(schema_key=schema.name))
    abandoned = select(staging_tables.c.location).where(
        staging_tables.c.schema_id == schema.id, staging_tables.c.finalized.is_(False)
    )
    tx.execute(upsert(purges).from_select(["location"], abandoned).on_conflict_do_nothing())


def catalog_dropped(tx: Connection, catalog: "Catalog") -> None:
    """Keep the last name of a catalog that is being dropped: its tables are listed in one of that name."""
    tx.execute(update(dropped_tables).where(dropped_tables.c.catalog_id == catalog.id).values(catalog_key=catalog.name))


def list_dropped(tx: Connection, schema: "Schema") -> list[DroppedRow]:
    """The dropped tables of a schema, and those of a dropped schema of its name: by name, the latest drop first."""
    chosen = dropped_tables.c
    found = select(chosen.id, chosen.name, chosen.owner, chosen.dropped_at).where(_of(schema))
    return [DroppedRow(*row) for row in tx.execute(found.order_by(chosen.name, chosen.dropped_at.desc()))]


def list_of_catalog(tx: Connection, catalog: "Catalog") -> list[DroppedRow]:
    """The dropped tables of a catalog with their schemas, also of those that are dropped, too: the latest drop first."""
    chosen = dropped_tables.c
    name = func.coalesce(schemas.c.name, chosen.schema_key)
    found = select(chosen.id, chosen.name, chosen.owner, chosen.dropped_at, name)
    found = found.outerjoin_from(dropped_tables, schemas, schemas.c.id == chosen.schema_id)
    return [DroppedRow(*row) for row in tx.execute(found.where(_in(catalog)).order_by(chosen.dropped_at.desc()))]


def dropped_table(tx: Connection, catalog: "Catalog", table_id: str) -> LoadedTable:
    """A dropped table of a catalog as it was when it was dropped. Raises NoSuchTableError."""
    chosen = select(dropped_tables).where(dropped_tables.c.id == table_id, _in(catalog))
    dropped = tx.execute(chosen).mappings().first()
    if dropped is None:
        raise NoSuchTableError(f"{catalog.name} has no dropped table {table_id}; its files may be deleted by now.")
    row: dict[str, Any] = {name: value for name, value in dropped["table_row"].items() if name != "name_key"}
    table = Table(**row, owner=dropped["owner"], schema_name=dropped["schema_key"], catalog_name=catalog.name)
    return LoadedTable(table, waiting_commits(table, dropped["commit_rows"]))


def undrop_table(tx: Connection, schema: "Schema", table_id: str) -> Table:
    """Put a dropped table back, with the version, the commits and the grants that it had.

    Raises NoSuchTableError, and AlreadyExistsError when its name is taken.
    """
    dropped = _found(tx, schema, table_id)
    refuse_taken(tx, schema.id, dropped["name"])
    now = {"schema_id": schema.id, "owner": dropped["owner"], "updated_at": now_ms()}
    tx.execute(insert(tables).values(**{**dropped["table_row"], **now}))
    if dropped["commit_rows"]:
        tx.execute(insert(commits), dropped["commit_rows"])
    _move_grants(tx, dropped_grants.c.table_id, table_id, grants.c.securable_id)
    tx.execute(delete(dropped_tables).where(dropped_tables.c.id == table_id))
    return get_table(tx, schema.catalog.name, schema.name, dropped["name"])


def delete_dropped(tx: Connection, schema: "Schema", table_id: str) -> None:
    """Note the files of a dropped table for deletion: it cannot be undropped any more. Raises NoSuchTableError."""
    _note_purges(tx, dropped_tables.c.id == _found(tx, schema, table_id)["id"])


def expire(tx: Connection, before: int) -> None:
    """Note the files of the tables for deletion that were dropped by that time, in epoch milliseconds."""
    _note_purges(tx, dropped_tables.c.dropped_at <= before)


def pending_purges(tx: Connection) -> list[str]:
    """Locations of dropped managed tables whose files are to be deleted."""
    return list(tx.scalars(select(purges.c.location)))


def purged(tx: Connection, locations: list[str]) -> None:
    """Forget locations whose files are deleted."""
    tx.execute(delete(purges).where(purges.c.location.in_(locations)))


def refuse_unlisted(tx: Connection, schema: "Schema", table_id: str) -> None:
    """Raises NoSuchTableError unless the table is listed in the schema."""
    _found(tx, schema, table_id)


def _found(tx: Connection, schema: "Schema", table_id: str) -> Mapping[Any, Any]:
    dropped = tx.execute(select(dropped_tables).where(dropped_tables.c.id == table_id, _of(schema))).mappings().first()
    if dropped is None:
        where = f"{schema.catalog.name}.{schema.name}"
        raise NoSuchTableError(f"{where} has no dropped table {table_id}; its files may be deleted by now.")
    return dropped


def _of(schema: "Schema") -> ColumnElement[bool]:
    """The tables that a schema lost, and those of a dropped schema that had its name."""
    chosen = dropped_tables.c
    schema_gone = chosen.schema_id.not_in(select(schemas.c.id))
    return or_(chosen.schema_id == schema.id, and_(schema_gone, _in(schema.catalog), chosen.schema_key == schema.name))


def _in(catalog: "Catalog") -> ColumnElement[bool]:
    """The tables that a catalog lost, and those of a dropped catalog that had its name."""
    chosen = dropped_tables.c
    catalog_gone = chosen.catalog_id.not_in(select(catalogs.c.id))
    return or_(chosen.catalog_id == catalog.id, and_(catalog_gone, chosen.catalog_key == catalog.name))


def _drop(tx: Connection, condition: ColumnElement[bool]) -> None:
    for row in tx.execute(select(tables).where(condition)).mappings().all():
        if row["table_type"] == "MANAGED":
            _retain(tx, dict(row))
        tx.execute(delete(grants).where(grants.c.securable_id == row["id"]))
    # With their commits, by the foreign key.
    tx.execute(delete(tables).where(condition))


def _retain(tx: Connection, table_row: dict[str, Any]) -> None:
    # Here alone, where the deletion of a principal finds it.
    own = {"owner": table_row.pop("owner")} | {name: table_row[name] for name in ("id", "schema_id", "name", "location")}
    parents = select(schemas.c.name, catalogs.c.name, catalogs.c.id).join_from(schemas, catalogs)
    schema_name, catalog_name, catalog_id = tx.execute(parents.where(schemas.c.id == own["schema_id"])).one()
    waiting = tx.execute(select(commits).where(commits.c.table_id == own["id"])).mappings()
    dropped = {
        "catalog_id": catalog_id,
        "catalog_key": catalog_name,
        "schema_key": schema_name,
        "table_row": table_row,
        "commit_rows": [dict(row) for row in waiting],
    }
    tx.execute(insert(dropped_tables).values(**own, **dropped, dropped_at=now_ms()))
    _move_grants(tx, grants.c.securable_id, own["id"], dropped_grants.c.table_id)


def _note_purges(tx: Connection, condition: ColumnElement[bool]) -> None:
    locations = select(dropped_tables.c.location).where(condition)
    tx.execute(upsert(purges).from_select(["location"], locations).on_conflict_do_nothing())
    tx.execute(delete(dropped_tables).where(condition))


def _move_grants(tx: Connection, source: Any, table_id: str, target: Any) -> None:
    """Copy the grants on a table to the other place of grants: its source is deleted with the row of the table."""
    held = source.table.c
    found = select(held.principal, source, held.privilege).where(source == table_id)
    tx.execute(insert(target.table).from_select(["principal", target.name, "privilege"], found))
