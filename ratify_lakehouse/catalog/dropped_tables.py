"""Tables that were dropped and can be undropped: of the embedded catalog by paths of its own, on Databricks by SQL."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import PrivateAttr

from ratify_lakehouse.catalog.catalog_grants import is_databricks
from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import API, UnityCatalog
from ratify_lakehouse.errors import CatalogRejected, TableMissing
from ratify_lakehouse.sql.spark_sql import identifier, literal

_ALL = "GET /v1/catalogs/{catalog}/dropped-tables"
_LOADED = "GET /v1/catalogs/{catalog}/dropped-tables/{table_id}"
_LISTED = "GET /v1/catalogs/{catalog}/schemas/{schema}/dropped-tables"


@dataclass(frozen=True)
class DroppedTable:
    """A table that was dropped.

    Attributes:
        full_name: The name that it had, and has again.
        id: Of several that had the name, each has another.
        owner: Who may undrop it, beside the owners of its schema.
        dropped_at: When.
        retained_until: When its files are deleted; None if the server does not say.
    """

    full_name: str
    id: str
    owner: str
    dropped_at: dt.datetime
    retained_until: dt.datetime | None = None


class DroppedTableCatalog(UnityCatalog):
    """A catalog for the log of one dropped table, which nobody can find by its name; it can be read only."""

    _table_id: str = PrivateAttr(default="")

    @classmethod
    def of(cls, catalog: UnityCatalog, table: DroppedTable) -> "DroppedTableCatalog":
        """Return that of a table.

        Raises:
            CatalogRejected: the server shows no dropped table.
        """
        if is_databricks(catalog) or not catalog.offers(catalog.connection.name, _LOADED):
            raise CatalogRejected(f"The catalog at {catalog.connection.host} does not let anybody read dropped tables.")
        made = cls(host=catalog.host, name=catalog.name, token=catalog.token, admin=catalog.admin)
        made._table_id = table.id
        return made

    def load_table(self, full_name: str) -> dict[str, Any]:
        """See `UnityCatalog.load_table`."""
        path = f"{API}/delta/v1/catalogs/{self.connection.name}/dropped-tables/{self._table_id}"
        return self.request("GET", f"load the dropped table {full_name}", path)

    def table_credentials(self, full_name: str, operation: str = "READ") -> list[dict[str, Any]]:
        """See `UnityCatalog.table_credentials`: those to read."""
        return self.load_table(full_name)["storage-credentials"]


def dropped_tables(catalog: UnityCatalog, schema: str) -> list[DroppedTable]:
    """Return the tables of a schema that can be undropped, by name, and of one name the latest drop first.

    Args:
        catalog: Where it is.
        schema: catalog.schema.

    Raises:
        CatalogRejected: the server has no undrop.
        TableMissing: there is no such schema.
        CatalogDenied, CatalogUnavailable, CatalogBusy: as for every call.
        StatementFailed, NotConfigured: on Databricks.
    """
    if is_databricks(catalog):
        return _on_databricks(catalog, schema)
    if not catalog.offers(schema.split(".", 1)[0], _LISTED):
        raise CatalogRejected(
            f"The catalog at {catalog.connection.host} has no undrop: by the published API, it deletes the files of a "
            "managed table when the table is dropped. Ask whoever runs it for a backup."
        )
    found = catalog.request("GET", f"list the dropped tables of {schema}", _path(schema))["tables"]
    return [_dropped(schema, table) for table in found]


def all_dropped_tables(catalog: UnityCatalog, schemas: Iterable[str]) -> list[DroppedTable]:
    """Return all tables of the catalog that can be undropped; where the server lists them so, also of dropped schemas.

    Args:
        catalog: Where they are.
        schemas: Names of the schemas that there are.

    Raises:
        As `dropped_tables`.
    """
    name = catalog.connection.name
    if is_databricks(catalog) or not catalog.offers(name, _ALL):
        return [table for schema in sorted(schemas) for table in dropped_tables(catalog, f"{name}.{schema}")]
    path = f"{API}/delta/v1/catalogs/{name}/dropped-tables"
    found = catalog.request("GET", f"list the dropped tables of {name}", path)["tables"]
    return [_dropped(f"{name}.{table['schema']}", table) for table in found]


def dropped_table(catalog: UnityCatalog, full_name: str, table_id: str = "") -> DroppedTable:
    """Return the table of that name that was dropped last, or the one with that id.

    Raises:
        TableMissing: there is none; and as `dropped_tables`.
    """
    schema = full_name.rpartition(".")[0]
    named = (table for table in dropped_tables(catalog, schema) if table.full_name.casefold() == full_name.casefold())
    found = next((table for table in named if table_id in ("", table.id)), None)
    if found is None:
        which = f" with the id {table_id}" if table_id else ""
        raise TableMissing(f"{schema} has no dropped table {full_name}{which}. `ratify undrop` lists the dropped tables.")
    return found


def drop_table(catalog: UnityCatalog, full_name: str) -> None:
    """Drop a table, as Spark does.

    Raises:
        TableMissing: there is no such table.
    """
    catalog.request("DELETE", f"drop {full_name}", f"{API}/tables/{full_name}")


def undrop(catalog: UnityCatalog, table: DroppedTable) -> None:
    """Bring a dropped table back, with its versions and grants.

    Raises:
        CatalogRejected: its name is taken.
        TableMissing: its files are deleted by now; and as `dropped_tables`.
    """
    if is_databricks(catalog):
        # By the id, so that a statement which is sent again cannot bring back another table of the name.
        SqlWarehouse(catalog=catalog).run([f"UNDROP TABLE WITH ID {literal(table.id)}"])
        return
    path = f"{_path(table.full_name.rpartition('.')[0])}/{table.id}/undrop"
    catalog.request("POST", f"undrop {table.full_name}", path)


def delete_dropped(catalog: UnityCatalog, table: DroppedTable) -> None:
    """Delete the files of a dropped table now: it cannot be undropped any more.

    Raises:
        CatalogRejected: the server deletes them by itself, and not before.
        TableMissing: they are deleted by now; and as `dropped_tables`.
    """
    if is_databricks(catalog):
        raise CatalogRejected(
            "Databricks deletes the files of dropped tables itself, within some weeks, and not on request."
        )
    path = f"{_path(table.full_name.rpartition('.')[0])}/{table.id}"
    catalog.request("DELETE", f"delete the files of {table.full_name}", path)


def _on_databricks(catalog: UnityCatalog, schema: str) -> list[DroppedTable]:
    shown = ".".join(identifier(part) for part in schema.split("."))
    rows: Iterable[Mapping[str, Any]] = SqlWarehouse(catalog=catalog).rows(f"SHOW TABLES DROPPED IN {shown}")
    found = [
        DroppedTable(f"{schema}.{row['tableName']}", row["tableId"], row["owner"], cast("dt.datetime", row["deletedAt"]))
        for row in rows
    ]
    return sorted(found, key=lambda table: (table.full_name, -table.dropped_at.timestamp()))


def _dropped(schema: str, table: Mapping[str, Any]) -> DroppedTable:
    times = _time(table["dropped-at-ms"]), _time(table["retained-until-ms"])
    return DroppedTable(f"{schema}.{table['name']}", table["table-id"], table["owner"], *times)


def _path(schema: str) -> str:
    catalog, name = schema.split(".")
    return f"{API}/delta/v1/catalogs/{catalog}/schemas/{name}/dropped-tables"


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
