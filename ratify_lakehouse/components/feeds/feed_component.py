"""What the components share that follow the change data feed of one table."""

from collections.abc import Collection, Mapping
from functools import cached_property

from pydantic import BaseModel, Field

from ratify_lakehouse.components.declaration_places import located, named_table, not_made
from ratify_lakehouse.components.declared_component import DeclaredComponent
from ratify_lakehouse.components.table_component import TableComponent
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.table_query import TableName


class FeedParameters(BaseModel):
    """Options of `dg scaffold defs` of a component that follows a table's change data feed."""

    table: str = Field(description="Table whose changes it follows, such as silver.orders")
    key: str = Field(description="Column that identifies a row of it; more of them are added to defs.yaml")
    description: str = Field(default="Made of the changes of the table", description="What a row is")


class FeedComponent(DeclaredComponent):
    """What is made of the changes of a table, which has `change_data_feed: true`."""

    table: str = Field(description="Table whose changes it follows, as schema.table; it needs a change data feed")
    keys: list[str] = Field(min_length=1, description="Columns that identify a row of that table")
    external: bool = Field(default=False, description="That table is made outside the project")

    @cached_property
    def followed(self) -> TableName:
        """The table whose changes it follows.

        Raises:
            UnsafeDeclaration: it is given in another form than schema.table.
        """
        return named_table(self.table, "table")

    def check_followed(self, known: Collection[str], components: Mapping[str, TableComponent]) -> None:
        """Check that the table is one of the project, or external, and that it is declared with a feed if in YAML.

        Args:
            known: The tables that assets make, as schema.table.
            components: The tables that are declared in YAML, likewise.

        Raises:
            InvalidDeclaration: it is not; the error names the file, the line and the field.
        """
        declared = {name.casefold(): component for name, component in components.items()}.get(self.table.casefold())
        with located(self.folder / "defs.yaml"):
            if self.table.casefold() not in {name.casefold() for name in known} and not self.external:
                raise UnsafeDeclaration(not_made(self.table, known), "table")
            if declared and not declared.change_data_feed:
                raise UnsafeDeclaration(
                    f"{self.table} records no changes: set `change_data_feed: true` in its defs.yaml, and, if it exists, "
                    "delta.enableChangeDataFeed = true in its properties.",
                    "table",
                )
