"""Catalogs and schemas in the store. Every function runs in the given transaction."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, insert, select, update

from ratify_lakehouse.embedded.catalog.api_errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NoSuchCatalogError,
    NoSuchSchemaError,
)
from ratify_lakehouse.embedded.catalog.api_models import CreateCatalog, CreateSchema, UpdateNamespace
from ratify_lakehouse.embedded.catalog.object_names import folded, storage_location, storage_root
from ratify_lakehouse.embedded.catalog.store.catalog_database import new_id, now_ms
from ratify_lakehouse.embedded.catalog.store.database_schema import catalogs, grants, schemas, staging_tables, tables
from ratify_lakehouse.embedded.catalog.store.dropped_store import catalog_dropped, drop_all
from ratify_lakehouse.embedded.catalog.store.location_store import refuse_root_in_table


@dataclass(frozen=True, slots=True)
class Catalog:
    """A row of `catalogs`."""

    id: str
    name: str
    comment: str | None
    properties: dict[str, str]
    storage_root: str
    owner: str
    created_at: int
    updated_at: int

    @property
    def storage_location(self) -> str:
        """The location of managed tables whose schema has no root of its own."""
        return storage_location(self.storage_root, "catalogs", self.id)


@dataclass(frozen=True, slots=True)
class Schema:
    """A row of `schemas`, with its catalog."""

    id: str
    catalog: Catalog
    name: str
    comment: str | None
    properties: dict[str, str]
    storage_root: str | None
    owner: str
    created_at: int
    updated_at: int

    @property
    def storage_location(self) -> str | None:
        """The schema's own managed storage, if it was given a root."""
        return storage_location(self.storage_root, "schemas", self.id) if self.storage_root else None


def create_catalog(tx: Connection, request: CreateCatalog, default_root: str, owner: str) -> Catalog:
    """Raises AlreadyExistsError, or InvalidParameterError for a storage root that cannot be one."""
    _refuse_taken_catalog(tx, request.name)
    _insert(tx, catalogs, request, owner, storage_root=_root(tx, request.storage_root or default_root))
    return get_catalog(tx, request.name)


def list_catalogs(tx: Connection, after: str, limit: int, seen: ColumnElement[bool]) -> list[Catalog]:
    """At most `limit` catalogs that satisfy `seen` and whose names sort after `after`."""
    rows = tx.execute(select(catalogs).where(catalogs.c.name > after, seen).order_by(catalogs.c.name).limit(limit))
    return [Catalog(**_own(row)) for row in rows.mappings()]


def get_catalog(tx: Connection, name: str) -> Catalog:
    """Raises NoSuchCatalogError."""
    row = tx.execute(select(catalogs).where(catalogs.c.name_key == name)).mappings().first()
    if row is None:
        raise NoSuchCatalogError(f"Catalog not found: {name}")
    return Catalog(**_own(row))


def update_catalog(tx: Connection, name: str, request: UpdateNamespace) -> Catalog:
    """Change what the request names, and nothing else; empty properties change none, as on the reference server."""
    catalog = get_catalog(tx, name)
    if request.new_name and folded(request.new_name) != folded(catalog.name):
        _refuse_taken_catalog(tx, request.new_name)
    tx.execute(update(catalogs).where(catalogs.c.id == catalog.id).values(**_changes(request)))
    return get_catalog(tx, request.new_name or name)


def delete_catalog(tx: Connection, name: str, *, force: bool) -> None:
    """Raises FailedPreconditionError when it still has schemas, unless forced: then they are dropped first."""
    catalog = get_catalog(tx, name)
    names = list(tx.scalars(select(schemas.c.name).where(schemas.c.catalog_id == catalog.id)))
    if names and not force:
        raise FailedPreconditionError(f"Cannot delete catalog {name} with schemas; drop them, or pass force=true.")
    for schema in names:
        delete_schema(tx, name, schema, force=True)
    catalog_dropped(tx, catalog)
    tx.execute(delete(grants).where(grants.c.securable_id == catalog.id))
    tx.execute(delete(catalogs).where(catalogs.c.id == catalog.id))


def create_schema(tx: Connection, request: CreateSchema, owner: str) -> Schema:
    """Raises NoSuchCatalogError, AlreadyExistsError, or InvalidParameterError for a storage root that cannot be one."""
    catalog = get_catalog(tx, request.catalog_name)
    _refuse_taken_schema(tx, catalog, request.name)
    root = _root(tx, request.storage_root) if request.storage_root else None
    _insert(tx, schemas, request, owner, catalog_id=catalog.id, storage_root=root)
    return get_schema(tx, catalog.name, request.name)


def list_schemas(tx: Connection, catalog_name: str, after: str, limit: int, seen: ColumnElement[bool]) -> list[Schema]:
    """At most `limit` schemas of a catalog that satisfy `seen` and sort after `after`. Raises NoSuchCatalogError."""
    catalog = get_catalog(tx, catalog_name)
    chosen = select(schemas).where(schemas.c.catalog_id == catalog.id, schemas.c.name > after, seen)
    return [_schema(row, catalog) for row in tx.execute(chosen.order_by(schemas.c.name).limit(limit)).mappings()]


def get_schema(tx: Connection, catalog_name: str, name: str) -> Schema:
    """Raises NoSuchCatalogError or NoSuchSchemaError."""
    catalog = get_catalog(tx, catalog_name)
    row = tx.execute(select(schemas).where(schemas.c.catalog_id == catalog.id, schemas.c.name_key == name))
    found = row.mappings().first()
    if found is None:
        raise NoSuchSchemaError(f"Schema not found: {catalog_name}.{name}")
    return _schema(found, catalog)


def update_schema(tx: Connection, catalog_name: str, name: str, request: UpdateNamespace) -> Schema:
    """Change what the request names, and nothing else; empty properties change none, as on the reference server."""
    schema = get_schema(tx, catalog_name, name)
    if request.new_name and folded(request.new_name) != folded(schema.name):
        _refuse_taken_schema(tx, schema.catalog, request.new_name)
    tx.execute(update(schemas).where(schemas.c.id == schema.id).values(**_changes(request)))
    return get_schema(tx, catalog_name, request.new_name or name)


def delete_schema(tx: Connection, catalog_name: str, name: str, *, force: bool) -> None:
    """Raises FailedPreconditionError when it still has tables, unless forced: then they are dropped first."""
    schema = get_schema(tx, catalog_name, name)
    has_tables = tx.scalar(select(exists().where(tables.c.schema_id == schema.id)))
    if has_tables and not force:
        raise FailedPreconditionError(
            f"Cannot delete schema {catalog_name}.{name} with tables; drop them, or pass force=true."
        )
    drop_all(tx, schema)
    tx.execute(delete(staging_tables).where(staging_tables.c.schema_id == schema.id))
    tx.execute(delete(grants).where(grants.c.securable_id == schema.id))
    tx.execute(delete(schemas).where(schemas.c.id == schema.id))


def _insert(tx: Connection, table: Table, request: CreateCatalog, owner: str, **own: str | None) -> None:
    now = now_ms()
    named = {"name": request.name, "name_key": request.name, "comment": request.comment}
    shared = {"properties": request.properties or {}, "owner": owner, "created_at": now, "updated_at": now}
    tx.execute(insert(table).values(id=new_id(), **named, **shared, **own))


def _root(tx: Connection, root: str) -> str:
    normal = storage_root(root)
    refuse_root_in_table(tx, normal)
    return normal


def _schema(row: Any, catalog: Catalog) -> Schema:
    return Schema(catalog=catalog, **_own(row))


def _own(row: Any) -> dict[str, Any]:
    """A row without the columns that only the store needs."""
    return {key: value for key, value in row.items() if key not in ("catalog_id", "name_key")}


def _changes(request: UpdateNamespace) -> dict[str, Any]:
    changes: dict[str, Any] = {"updated_at": now_ms()}
    if request.comment is not None:
        changes["comment"] = request.comment
    if request.properties:
        changes["properties"] = request.properties
    if request.new_name:
        changes |= {"name": request.new_name, "name_key": request.new_name}
    return changes


def _refuse_taken_catalog(tx: Connection, name: str) -> None:
    if tx.scalar(select(exists().where(catalogs.c.name_key == name))):
        raise AlreadyExistsError(f"Catalog already exists: {name}", error_code="CATALOG_ALREADY_EXISTS")


def _refuse_taken_schema(tx: Connection, catalog: Catalog, name: str) -> None:
    if tx.scalar(select(exists().where(schemas.c.catalog_id == catalog.id, schemas.c.name_key == name))):
        raise AlreadyExistsError(f"Schema already exists: {catalog.name}.{name}", error_code="SCHEMA_ALREADY_EXISTS")
