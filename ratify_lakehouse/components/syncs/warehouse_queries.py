"""Queries of a sync on a SQL warehouse, and what its statements say of a table.

The catalog is not asked, because it does not know the tables of the legacy metastore.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.components.syncs.row_queries import Rows, placed
from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.commit_history import Commit, commit_from_row
from ratify_lakehouse.errors import CommitConflict, StatementFailed, TableMissing
from ratify_lakehouse.sql.spark_sql import table_name

_MISSING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


@dataclass(frozen=True)
class DescribedTable:
    """A table as the warehouse describes it.

    Attributes:
        table_id: Another one after it was dropped and created again.
        columns: Its columns. It is not known which of them allow NULL.
        properties: Its properties.
        version: Its newest version.
        partitions: Columns by which it is partitioned.
    """

    table_id: str
    columns: Sequence[Column]
    properties: Mapping[str, str]
    version: int
    partitions: Sequence[str] = ()


@dataclass(frozen=True)
class WarehouseQueries:
    """See `RowQueries`: rows are the text of a query, which is computed each time that it is used."""

    warehouse: SqlWarehouse

    @property
    def catalog_name(self) -> str:
        """The catalog of tables that are named without one."""
        return self.warehouse.catalog.connection.name

    def full_name(self, declaration: TableDeclaration) -> str:
        """See `RowQueries`."""
        return declaration.full_name(self.catalog_name)

    def query(self, text: str, **relations: Rows) -> Rows:
        """See `RowQueries`."""
        return placed(text, relations)

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """See `RowQueries`."""
        return self.warehouse.rows(frame)

    def computed(self, frame: Rows) -> Rows:
        """See `RowQueries`."""
        return frame

    def types(self, text: str) -> dict[str, str]:
        """Return the types of a query's columns, by name."""
        return {row["col_name"]: row["data_type"] for row in self.warehouse.rows(f"DESCRIBE QUERY {text}")}

    def described(self, full_name: str) -> DescribedTable:
        """Return what a table is.

        Raises:
            TableMissing: it does not exist.
        """
        name = table_name(full_name)
        try:
            listed = self.warehouse.rows(f"DESCRIBE TABLE {name}")
        except StatementFailed as error:
            if any(code in str(error) for code in _MISSING):
                raise TableMissing(f"{full_name} does not exist: {error}") from error
            raise
        columns = list[Column]()
        for row in listed:
            # What follows an empty line, or a heading, is about partitions.
            if not row["col_name"] or row["col_name"].startswith("#"):
                break
            columns.append(Column(row["col_name"], row["data_type"]))
        detail = self.warehouse.rows(f"DESCRIBE DETAIL {name}")[0]
        version = self.history(full_name, 1)[0].version
        partitions = detail.get("partitionColumns") or []
        return DescribedTable(detail["id"], columns, detail.get("properties") or {}, version, partitions)

    def history(self, full_name: str, limit: int | None = None) -> list[Commit]:
        """Return a table's commits, newest first."""
        bound = f" LIMIT {limit}" if limit else ""
        return [commit_from_row(row) for row in self.warehouse.rows(f"DESCRIBE HISTORY {table_name(full_name)}{bound}")]

    def count(self, relation: str) -> int:
        """Return the number of rows of a relation."""
        return int(self.warehouse.rows(f"SELECT count(*) AS n FROM {relation}")[0]["n"])

    def write(self, statement: str) -> None:
        """Run the statement that changes a destination.

        Raises:
            CommitConflict: another commit conflicts with it, and it has changed nothing.
        """
        try:
            self.warehouse.rows(statement)
        except StatementFailed as error:
            if "CONCURRENT" in str(error).upper():
                raise CommitConflict(str(error)) from error
            raise
