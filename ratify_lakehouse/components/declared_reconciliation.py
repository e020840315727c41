"""The attribute `reconcile` of a table: the input of which no row may be lost."""

import dagster as dg
from pydantic import Field

from ratify_lakehouse.components.checks.row_reconciliation import InputRows
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.settings import catalog_name
from ratify_lakehouse.sql.table_query import TableQuery


class ReconciledInput(dg.Model, dg.Resolvable):
    """An input whose every row has to be in the table, in its quarantine, or a duplicate of one in the table."""

    input: str = Field(description="A table that the query reads, as schema.table")
    row_id: list[str] = Field(
        description="Columns that identify a row of the input; the query must return them under the same names"
    )
    key: list[str] = Field(description="Columns of the input; the table has one row for each of their values")

    def rows(self, query: TableQuery) -> InputRows:
        """Return the rows of the input.

        Raises:
            UnsafeDeclaration: the query does not read it, or nothing identifies a row.
        """
        of_project = [name for name in query.inputs if name.catalog in ("", catalog_name())]
        found = [name for name in of_project if f"{name.schema}.{name.table}".casefold() == self.input.casefold()]
        if not found:
            raise UnsafeDeclaration(
                f"{self.input} is not an input of the query, which reads {', '.join(map(str, of_project))}.", "input"
            )
        for field, columns in (("row_id", self.row_id), ("key", self.key)):
            if not columns:
                raise UnsafeDeclaration("Nothing identifies a row: name at least one column.", field)
        return InputRows(found[0], tuple(self.row_id), tuple(self.key))
