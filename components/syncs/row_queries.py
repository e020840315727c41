"""What a sync needs of the engine that runs its queries: Spark here, or a SQL warehouse of a workspace."""

from typing import Any, Protocol

from resources.declarations import TableDeclaration

Rows = Any
"""Rows of a query: a DataFrame of Spark, or the text of a query for a warehouse."""


class RowQueries(Protocol):
    """Runs queries in the SQL of Spark and Databricks."""

    def full_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name, with the catalog's."""
        ...

    def sql_name(self, declaration: TableDeclaration) -> str:
        """Return a table's name for a statement."""
        ...

    def query(self, text: str, **relations: Rows) -> Rows:
        """Return the rows of a query in which `{name}` stands for the rows given by that name; nothing is run."""
        ...

    def rows(self, frame: Rows) -> list[dict[str, Any]]:
        """Run a query and return its rows."""
        ...

    def computed(self, frame: Rows) -> Rows:
        """Return rows for several uses, which need not compute them again."""
        ...
