"""Tables and staging tables in the store. Every function runs in the given transaction."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, TableClause, bindparam, exists, insert, select, update

from ratify_lakehouse.embedded.catalog.api_errors import AlreadyExistsError, InvalidParameterError, NoSuchTableError
from ratify_lakehouse.embedded.catalog.object_names import check_managed, folded
from ratify_lakehouse.embedded.catalog.store.catalog_database import new_id, now_ms
from ratify_lakehouse.embedded.catalog.store.database_schema import (
    catalogs,
    schemas,
    staging_tables,
    tables,
    with_parents,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A row of `tables`, with the names of its parents."""

    id: str
    catalog_name: str
    schema_name: str
    schema_id: str
    name: str
    table_type: str
    data_source_format: str = "DELTA"
    location: str = ""
    comment: str | None = None
    columns: Json = field(default_factory=Json)
    partition_columns: list[str] = field(default_factory=list[str])
    properties: dict[str, str] = field(default_factory=dict[str, str])
    protocol: Json | None = None
    domains: Json = field(default_factory=Json)
    etag: str
    latest_version: int | None = None
    backfilled_version: int | None = None
    last_update_version: int | None = None
    last_commit_timestamp: int | None = None
    owner: str
    created_at: int
    updated_at: int

    @property
    def full_name(self) -> str:
        """`catalog.schema.table`."""
        return f"{self.catalog_name}.{self.schema_name}.{self.name}"

    @property
    def managed(self) -> bool:
        """Whether the catalog ratifies its commits and owns its files."""
        return self.table_type == "MANAGED"


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A row of `staging_tables`: storage reserved for a table that is not created yet."""

    id: str
    schema_id: str
    name: str
    location: str
    finalized: bool
    owner: str
    created_at: int


def _joined() -> Select[Any]:
    own = [column for column in tables.c if column is not tables.c.name_key]
    chosen = select(*own, schemas.c.name.label("schema_name"), catalogs.c.name.label("catalog_name"))
    return chosen.select_from(with_parents(tables))


# Built once: constructing these statements costs more than running it.
_ALL = _joined()
_NAMED = _ALL.where(
    catalogs.c.name_key == bindparam("catalog"),
    schemas.c.name_key == bindparam("schema"),
    tables.c.name_key == bindparam("table"),
)


def get_table(tx: Connection, catalog: str, schema: str, name: str) -> Table:
    """Raises NoSuchTableError."""
    row = tx.execute(_NAMED, {"catalog": catalog, "schema": schema, "table": name}).mappings().first()
    if row is None:
        raise NoSuchTableError(f"Table not found: {catalog}.{schema}.{name}")
    return Table(**row)


def list_tables(tx: Connection, schema_id: str, after: str, limit: int, seen: ColumnElement[bool]) -> list[Table]:
    """At most `limit` tables of a schema that satisfy `seen` and whose names sort after `after`."""
    chosen = _ALL.where(tables.c.schema_id == schema_id, tables.c.name > after, seen)
    return [Table(**row) for row in tx.execute(chosen.order_by(tables.c.name).limit(limit)).mappings()]


def location_of(tx: Connection, table_id: str) -> str:
    """The location of a table or staging table. Raises NoSuchTableError."""
    found = tx.scalar(select(tables.c.location).where(tables.c.id == table_id))
    return str(found) if found is not None else get_staging(tx, table_id).location


def create_staging(tx: Connection, schema_id: str, root: str, name: str, owner: str) -> StagingTable:
    """Allocate an id and a location under `root`.

    Raises AlreadyExistsError when a table of that name exists, InvalidParameterError when a link leads out of `root`.
    """
    refuse_taken(tx, schema_id, name)
    table_id = new_id()
    location = f"{root}/tables/{table_id}"
    check_managed(location)
    staging = StagingTable(table_id, schema_id, name, location, finalized=False, owner=owner, created_at=now_ms())
    tx.execute(insert(staging_tables).values(**_row(staging, staging_tables)))
    return staging


def get_staging(tx: Connection, table_id: str) -> StagingTable:
    """Raises NoSuchTableError."""
    row = tx.execute(select(staging_tables).where(staging_tables.c.id == table_id)).mappings().first()
    if row is None:
        raise NoSuchTableError(f"No table or staging table has the id {table_id}.")
    return StagingTable(**row)


def finalize_staging(tx: Connection, schema_id: str, location: str, owner: str) -> StagingTable:
    """Mark the staging table of `location` as used.

    Raises NoSuchTableError when `owner` has no staging table of this schema at that location, InvalidParameterError
    when it was finalized before.
    """
    chosen = select(staging_tables).where(
        staging_tables.c.location == location, staging_tables.c.schema_id == schema_id, staging_tables.c.owner == owner
    )
    row = tx.execute(chosen).mappings().first()
    if row is None:
        raise NoSuchTableError(f"No staging table of this schema is at {location}; create one, and use its location.")
    staging = StagingTable(**row)
    if staging.finalized:
        raise InvalidParameterError(f"The staging table at {location} was already finalized; load the table instead.")
    tx.execute(update(staging_tables).where(staging_tables.c.id == staging.id).values(finalized=True))
    return staging


def insert_table(tx: Connection, table: Table) -> None:
    """Raises AlreadyExistsError when the name is taken."""
    refuse_taken(tx, table.schema_id, table.name)
    tx.execute(insert(tables).values(**_row(table, tables)))


def replace_table(tx: Connection, table: Table) -> None:
    """Write back every column of a changed table."""
    tx.execute(update(tables).where(tables.c.id == table.id).values(**_row(table, tables)))


def rename_table(tx: Connection, table: Table, new_name: str) -> None:
    """Raises AlreadyExistsError when the new name is taken."""
    if folded(new_name) != folded(table.name):
        refuse_taken(tx, table.schema_id, new_name)
    if new_name != table.name:
        named = {"name": new_name, "name_key": new_name, "updated_at": now_ms()}
        tx.execute(update(tables).where(tables.c.id == table.id).values(**named))


def refuse_taken(tx: Connection, schema_id: str, name: str) -> None:
    """Raises AlreadyExistsError when the schema has a table of that name."""
    if tx.scalar(select(exists().where(tables.c.schema_id == schema_id, tables.c.name_key == name))):
        raise AlreadyExistsError(f"Table already exists: {name}", error_code="TABLE_ALREADY_EXISTS")


def _row(item: Table | StagingTable, layout: TableClause) -> Json:
    return {column.name: getattr(item, "name" if column.name == "name_key" else column.name) for column in layout.c}
