"""A catalog as SQL: statements that create the same tables, owners and grants on another Unity Catalog server.

They contain neither data nor the location of managed tables, which the other server chooses.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import TYPE_CHECKING

from resources.sql.spark_sql import identifier, literal

if TYPE_CHECKING:
    from databricks.sdk.service.catalog import CatalogInfo, ColumnInfo, SchemaInfo, TableInfo

    from resources.catalog.unity_catalog import UnityCatalog


class ExportPart(StrEnum):
    """What to export, in the order in which it is run: the catalog itself, what is in it, who may do what."""

    CATALOG = auto()
    TABLES = auto()
    ACCESS = auto()


# Properties that catalogs and engines set themselves, and that they refuse or misread in a statement.
_DERIVED = re.compile(
    r"delta\.(feature\..*|minReaderVersion|minWriterVersion|last.*|clusteringColumns|columnMapping\.maxColumnId"
    r"|rowTracking\..*|inCommitTimestampEnablement.*)|io\.unitycatalog\..*"
)
# The only privilege that Databricks has on the metastore, too; the others are those of external locations there.
_METASTORE = frozenset({"CREATE CATALOG"})


@dataclass(frozen=True)
class Export:
    """The statements of one catalog, under the name `name` that it is to have.

    Attributes:
        source: The catalog to read; only what its principal may see is exported.
        name: Name of the catalog in the statements.
        principals: The names that principals have on the other server, by their names on this one, where they differ.
    """

    source: "UnityCatalog"
    name: str
    principals: Mapping[str, str] = field(default_factory=dict[str, str])

    def statements(self, parts: Collection[ExportPart] = tuple(ExportPart)) -> Iterator[str]:
        """Yield statements without their semicolons, in an order in which they can be run, and comments.

        Raises:
            CatalogUnavailable, CatalogDenied, TableMissing: the catalog cannot be read.
        """
        catalog = self.source.ask("read the catalog", lambda: self.source.client.catalogs.get(self._old))
        if ExportPart.CATALOG in parts:
            yield f"CREATE CATALOG IF NOT EXISTS {identifier(self.name)}{_comment(catalog.comment)}"
        if ExportPart.TABLES not in parts and ExportPart.ACCESS not in parts:
            return
        schemas = [schema for schema in self._schemas() if schema.name != "information_schema"]
        tables = [table for schema in schemas for table in self._tables(schema)]
        if ExportPart.TABLES in parts:
            for schema in schemas:
                yield f"CREATE SCHEMA IF NOT EXISTS {self._at(schema.name)}{_comment(schema.comment)}"
            for table in tables:
                yield self._create(table)
        if ExportPart.ACCESS in parts:
            yield from self._access(catalog, schemas, tables)

    @property
    def _old(self) -> str:
        return self.source.connection.name

    def _schemas(self) -> "list[SchemaInfo]":
        return self.source.ask("list the schemas", lambda: list(self.source.client.schemas.list(self._old)))

    def _tables(self, schema: "SchemaInfo") -> "list[TableInfo]":
        name = schema.name or ""
        return self.source.ask(f"list the tables of {name}", lambda: list(self.source.client.tables.list(self._old, name)))

    def _grantee(self, principal: str | None) -> str:
        return identifier(self.principals.get(principal or "", principal or ""))

    def _at(self, *names: str | None) -> str:
        return ".".join(identifier(name or "") for name in (self.name, *names))

    def _create(self, table: "TableInfo") -> str:
        kind = table.table_type.value if table.table_type else ""
        if kind not in {"MANAGED", "EXTERNAL"}:
            return f"-- {table.full_name or table.name} is a {kind or 'table of no type'} and not exported"
        columns = sorted(table.columns or [], key=lambda column: column.position or 0)
        properties = table.properties or {}
        form = table.data_source_format.value if table.data_source_format else "DELTA"
        lines = [f"CREATE TABLE IF NOT EXISTS {self._at(table.schema_name, table.name)}"]
        if columns:
            lines[0] += " (\n  " + ",\n  ".join(_column(column) for column in columns) + "\n)"
        lines[0] += f" USING {form}"
        partitions = [column for column in columns if column.partition_index is not None]
        if partitions:
            partitions.sort(key=lambda column: column.partition_index or 0)
            lines.append(f"PARTITIONED BY ({', '.join(identifier(column.name or '') for column in partitions)})")
        if clustering := json.loads(properties.get("delta.clusteringColumns", "[]")):
            paths = (".".join(identifier(part) for part in path) for path in clustering)
            lines.append(f"CLUSTER BY ({', '.join(paths)})")
        if kind == "EXTERNAL":
            lines.append(f"LOCATION {literal(table.storage_location or '')}")
        if table.comment:
            lines.append(_comment(table.comment).strip())
        if exported := {key: value for key, value in sorted(properties.items()) if not _DERIVED.fullmatch(key)}:
            pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in exported.items())
            lines.append(f"TBLPROPERTIES ({pairs})")
        return "\n".join(lines)

    def _access(self, catalog: "CatalogInfo", schemas: "list[SchemaInfo]", tables: "list[TableInfo]") -> Iterator[str]:
        metastore = self.source.ask("read the metastore", self.source.client.metastores.summary)
        yield from self._granted("metastore", metastore.metastore_id or "", "")
        yield from self._granted("catalog", self._old, self._at())
        for schema in schemas:
            yield from self._granted("schema", f"{self._old}.{schema.name}", self._at(schema.name))
        for table in tables:
            full_name = f"{self._old}.{table.schema_name}.{table.name}"
            yield from self._granted("table", full_name, self._at(table.schema_name, table.name))
        # Last, tables before schemas: after it has given an object away, the principal that runs this may not change it.
        owned = [("TABLE", self._at(table.schema_name, table.name), table.owner) for table in tables]
        owned += [("SCHEMA", self._at(schema.name), schema.owner) for schema in schemas]
        for kind, name, owner in [*owned, ("CATALOG", self._at(), catalog.owner)]:
            if owner:
                yield f"ALTER {kind} {name} SET OWNER TO {self._grantee(owner)}"

    def _granted(self, kind: str, old: str, new: str) -> Iterator[str]:
        found = self.source.ask(f"read the grants on {old}", lambda: self.source.client.grants.get(kind, old))
        for assignment in sorted(found.privilege_assignments or [], key=lambda item: item.principal or ""):
            names = sorted(privilege.value.replace("_", " ") for privilege in assignment.privileges or [])
            other = [name for name in names if kind == "metastore" and name not in _METASTORE]
            if same := [name for name in names if name not in other]:
                on = f"{kind.upper()} {new}".strip()
                yield f"GRANT {', '.join(same)} ON {on} TO {self._grantee(assignment.principal)}"
            if other:
                yield f"-- {assignment.principal} has {', '.join(other)} on the metastore: grant it on external locations"


def _column(column: "ColumnInfo") -> str:
    null = " NOT NULL" if column.nullable is False else ""
    return f"{identifier(column.name or '')} {column.type_text}{null}{_comment(column.comment)}"


def _comment(text: str | None) -> str:
    return f" COMMENT {literal(text)}" if text else ""
