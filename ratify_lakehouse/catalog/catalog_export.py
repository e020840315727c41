"""A catalog as SQL: statements that create the same tables, owners and grants on another Unity Catalog server.

They contain neither data nor the location of managed tables, which the other server chooses. An admin will run them, and
what they describe others have named: types are parsed and written again, all else is quoted, no name or comment begins a
line of its own, and what cannot be written so becomes a comment that says it.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import TYPE_CHECKING

from ratify_lakehouse.catalog.catalog_grants import grants_on
from ratify_lakehouse.catalog.column_ddl import NotWritable, column_type, quoted
from ratify_lakehouse.sql.spark_sql import literal

if TYPE_CHECKING:
    from databricks.sdk.service.catalog import CatalogInfo, ColumnInfo, SchemaInfo, TableInfo

    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog


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
            yield f"CREATE CATALOG IF NOT EXISTS {quoted(self.name)}{_comment(catalog.comment)}"
        if ExportPart.TABLES not in parts and ExportPart.ACCESS not in parts:
            return
        schemas = [schema for schema in self._schemas() if schema.name != "information_schema"]
        tables = [table for schema in schemas for table in self._tables(schema)]
        if ExportPart.TABLES in parts:
            for schema in schemas:
                create = f"CREATE SCHEMA IF NOT EXISTS {{}}{_comment(schema.comment)}"
                yield _or_remark(schema.full_name, lambda create=create, at=schema.name: create.format(self._at(at)))
            for table in tables:
                yield _or_remark(table.full_name or table.name, lambda table=table: self._create(table))
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
        return quoted(self.principals.get(principal or "", principal or ""))

    def _at(self, *names: str | None) -> str:
        return ".".join(quoted(name) for name in (self.name, *names))

    def _create(self, table: "TableInfo") -> str:
        kind = table.table_type.value if table.table_type else ""
        if kind not in {"MANAGED", "EXTERNAL"}:
            raise NotWritable(f"it is a {kind or 'table of no type'}")
        if table.data_source_format is None:
            raise NotWritable("its format is unknown")
        columns = sorted(table.columns or [], key=lambda column: column.position or 0)
        properties = table.properties or {}
        lines = [f"CREATE TABLE IF NOT EXISTS {self._at(table.schema_name, table.name)}"]
        if columns:
            lines[0] += " (\n  " + ",\n  ".join(_column(column) for column in columns) + "\n)"
        lines[0] += f" USING {table.data_source_format.value}"
        partitions = [column for column in columns if column.partition_index is not None]
        if partitions:
            partitions.sort(key=lambda column: column.partition_index or 0)
            lines.append(f"PARTITIONED BY ({', '.join(quoted(column.name) for column in partitions)})")
        if clustering := _clustering(properties):
            lines.append(f"CLUSTER BY ({', '.join(clustering)})")
        if kind == "EXTERNAL":
            lines.append(f"LOCATION {_text(table.storage_location or '')}")
        if table.comment:
            lines.append(_comment(table.comment).strip())
        if exported := {key: value for key, value in sorted(properties.items()) if not _DERIVED.fullmatch(key)}:
            pairs = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in exported.items())
            lines.append(f"TBLPROPERTIES ({pairs})")
        return "\n".join(lines)

    def _access(self, catalog: "CatalogInfo", schemas: "list[SchemaInfo]", tables: "list[TableInfo]") -> Iterator[str]:
        metastore = self.source.ask("read the metastore", self.source.client.metastores.summary)
        yield from self._granted("metastore", metastore.metastore_id or "", ())
        below = [("table", (table.schema_name, table.name), table.owner) for table in tables]
        below += [("schema", (schema.name,), schema.owner) for schema in schemas]
        owned = [*below, ("catalog", (), catalog.owner)]
        for kind, names, _ in sorted(owned, key=lambda item: len(item[1])):
            yield from self._granted(kind, ".".join([self._old, *(name or "" for name in names)]), names)
        # Last, tables before schemas: after it has given an object away, the principal that runs this may not change it.
        for kind, names, owner in owned:
            if owner:
                yield _or_remark(
                    f"the owner of {kind} {'.'.join(name or '' for name in names)}",
                    lambda kind=kind, names=names, owner=owner: (
                        f"ALTER {kind.upper()} {self._at(*names)} SET OWNER TO {self._grantee(owner)}"
                    ),
                )

    def _granted(self, kind: str, old: str, names: tuple[str | None, ...]) -> Iterator[str]:
        for grant in grants_on(self.source, kind, old):
            other = [name for name in grant.known if kind == "metastore" and name not in _METASTORE]
            if same := [name for name in grant.known if name not in other]:
                yield _or_remark(
                    f"a grant on {old} to {grant.principal}",
                    lambda same=same, grant=grant: (
                        f"GRANT {', '.join(same)} ON {self._on(kind, names)} TO {self._grantee(grant.principal)}"
                    ),
                )
            if other:
                yield _remark(f"{grant.principal} has {', '.join(other)} on the metastore: grant it on external locations")
            if grant.unknown:
                yield _remark(f"{grant.principal} has {', '.join(grant.unknown)} on {old}, which Ratify does not know")

    def _on(self, kind: str, names: tuple[str | None, ...]) -> str:
        return "METASTORE" if kind == "metastore" else f"{kind.upper()} {self._at(*names)}"


def _or_remark(what: str | None, write: Callable[[], str]) -> str:
    """Return what `write` returns, or else a comment that says why it is missing."""
    try:
        return write()
    except NotWritable as error:
        return _remark(f"{what} is not exported: {error}")


def _remark(text: str) -> str:
    return f"-- {text if text.isprintable() else json.dumps(text)}"


def _clustering(properties: Mapping[str, str]) -> list[str]:
    text = properties.get("delta.clusteringColumns", "[]")
    try:
        return [".".join(quoted(part) for part in path) for path in json.loads(text)]
    except (ValueError, TypeError):
        raise NotWritable(f"its clustering columns are {json.dumps(text)}") from None


def _column(column: "ColumnInfo") -> str:
    null = " NOT NULL" if column.nullable is False else ""
    return f"{quoted(column.name)} {column_type(column.type_json, column.type_text)}{null}{_comment(column.comment)}"


def _comment(text: str | None) -> str:
    return f" COMMENT {_text(text)}" if text else ""


def _text(text: str) -> str:
    """A literal on one line: a line of a comment that looks like a statement must not be taken for one."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in literal(text))
