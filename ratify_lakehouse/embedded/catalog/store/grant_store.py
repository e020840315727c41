"""Grants in the store, and the effective privileges that follow from them. Every function runs in the given transaction."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    false,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.sqlite import insert as upsert

from ratify_lakehouse.embedded.catalog.access_rules import ADMIN, EffectivePrivileges, Privilege
from ratify_lakehouse.embedded.catalog.api_errors import NoSuchCatalogError, NoSuchSchemaError, NoSuchTableError
from ratify_lakehouse.embedded.catalog.store.database_schema import (
    catalogs,
    dropped_tables,
    grants,
    schemas,
    staging_tables,
    tables,
    with_parents,
)

METASTORE = "metastore"
"""The id of the metastore as a securable: there is only one."""


def effective(tx: Connection, principal: str, names: Sequence[str]) -> EffectivePrivileges:
    """A principal's effective privileges on the metastore (no name), a catalog, a schema or a table.

    Raises NoSuchCatalogError, NoSuchSchemaError or NoSuchTableError.
    """
    if not names:
        return _effective(tx, principal, names, [])
    row = tx.execute(_PATHS[len(names) - 1], dict(zip(_LEVELS, names, strict=False))).one_or_none()
    path = _pairs(row) if row else []
    found = sum(identity is not None for identity, _ in path)
    if found == len(names):
        return _effective(tx, principal, names, path)
    if found == 0:
        raise NoSuchCatalogError(f"Catalog not found: {names[0]}")
    if found == 1:
        raise NoSuchSchemaError(f"Schema not found: {names[0]}.{names[1]}")
    raise NoSuchTableError(f"Table not found: {'.'.join(names)}")


def effective_by_id(tx: Connection, principal: str, table_id: str) -> EffectivePrivileges:
    """A principal's effective privileges on a table or staging table. Raises NoSuchTableError."""
    for table in (tables, staging_tables):
        chosen = select(*_columns(catalogs, schemas, table), catalogs.c.name, schemas.c.name, table.c.name)
        row = tx.execute(chosen.select_from(with_parents(table)).where(table.c.id == table_id)).one_or_none()
        if row:
            return _effective(tx, principal, row[6:], _pairs(row[:6]))
    raise NoSuchTableError(f"No table or staging table has the id {table_id}.")


def effective_on_dropped(tx: Connection, principal: str, table_id: str) -> EffectivePrivileges:
    """A principal's effective privileges on a dropped table: those on the catalog and the schema that it was dropped from.

    Where one of these was dropped, too, nobody has any by it; another one that has its name now counts for nothing. Raises
    NoSuchTableError.
    """
    names = dropped_tables.c.catalog_key, dropped_tables.c.schema_key, dropped_tables.c.name
    parents = dropped_tables.outerjoin(catalogs, catalogs.c.id == dropped_tables.c.catalog_id).outerjoin(
        schemas, schemas.c.id == dropped_tables.c.schema_id
    )
    chosen = select(*_columns(catalogs, schemas, dropped_tables), *names).select_from(parents)
    row = tx.execute(chosen.where(dropped_tables.c.id == table_id)).one_or_none()
    if row is None:
        raise NoSuchTableError(f"No dropped table has the id {table_id}; its files may be deleted by now.")
    return _effective(tx, principal, row[6:], _pairs(row[:6]))


def visible(tx: Connection, principal: str, names: Sequence[str], table: Table, wanted: Privilege) -> ColumnElement[bool]:
    """The condition on rows of `table`, which are children of `names`, for those that a principal may see in lists."""
    above = effective(tx, principal, names)
    if above.lacks(above.reach):
        return false()
    if above.has(wanted):
        return true()
    granted = exists().where(
        grants.c.principal == principal,
        grants.c.securable_id == table.c.id,
        grants.c.privilege.in_([one.published for one in wanted]),
    )
    return or_(table.c.owner == principal, granted)


def assignments(tx: Connection, securable_id: str, principal: str | None) -> dict[str, list[str]]:
    """The privileges granted on a securable itself, by principal: by all, or by one."""
    chosen = select(grants.c.principal, grants.c.privilege).where(grants.c.securable_id == securable_id)
    if principal is not None:
        chosen = chosen.where(grants.c.principal == principal)
    found: dict[str, list[str]] = {}
    for row in tx.execute(chosen.order_by(grants.c.principal, grants.c.privilege)):
        found.setdefault(row.principal, []).append(row.privilege)
    return found


def grant(tx: Connection, securable_id: str, principal: str, privileges: Iterable[Privilege]) -> None:
    """Grant privileges; those that exist stay as they are."""
    for one in privileges:
        values = {"principal": principal, "securable_id": securable_id, "privilege": one.published}
        tx.execute(upsert(grants).values(**values).on_conflict_do_nothing())


def revoke(tx: Connection, securable_id: str, principal: str, privileges: Iterable[Privilege]) -> None:
    """Revoke grants on the securable itself; inherited ones stay."""
    tx.execute(
        delete(grants).where(
            grants.c.principal == principal,
            grants.c.securable_id == securable_id,
            grants.c.privilege.in_([one.published for one in privileges]),
        )
    )


def _effective(tx: Connection, principal: str, names: Sequence[str], path: list[tuple[str, str]]) -> EffectivePrivileges:
    ids = [METASTORE, *(identity for identity, _ in path)]
    granted = [Privilege(0)] * len(ids)
    if principal != ADMIN:
        for row in tx.execute(_HELD, {"by": principal, "on": ids}):
            granted[ids.index(row.securable_id)] |= Privilege[row.privilege.replace(" ", "_")]
    return EffectivePrivileges(principal, names, ids[-1], [ADMIN, *(owner for _, owner in path)], granted)


def _columns(*path: Table) -> list[ColumnElement[Any]]:
    return [column for table in path for column in (table.c.id, table.c.owner)]


def _pairs(row: Row[Any] | Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(row[::2], row[1::2], strict=True))


def _path(depth: int) -> Select[Any]:
    """One row for any depth, with NULL for securables that do not exist."""
    joined: Any = catalogs
    if depth > 1:
        named = schemas.c.name_key == bindparam("schema")
        joined = joined.outerjoin(schemas, and_(schemas.c.catalog_id == catalogs.c.id, named))
    if depth > 2:
        named = tables.c.name_key == bindparam("table")
        joined = joined.outerjoin(tables, and_(tables.c.schema_id == schemas.c.id, named))
    chosen = select(*_columns(*(catalogs, schemas, tables)[:depth]))
    return chosen.select_from(joined).where(catalogs.c.name_key == bindparam("catalog"))


# Built once, because every request runs these: constructing a statement costs more than running it.
_LEVELS = ("catalog", "schema", "table")
_PATHS = [_path(depth) for depth in (1, 2, 3)]
_HELD = select(grants.c.securable_id, grants.c.privilege).where(
    grants.c.principal == bindparam("by"), grants.c.securable_id.in_(bindparam("on", expanding=True))
)
