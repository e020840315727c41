"""`dg scaffold defs ratify_lakehouse.SqlTable`: writes the files of a table that a query makes."""

import dagster as dg
from pydantic import BaseModel, Field

from ratify_lakehouse.settings import Settings


class SqlTableParameters(BaseModel):
    """Options of `dg scaffold defs ratify_lakehouse.SqlTable`."""

    source: str = Field(description="Table that the query reads, such as bronze.orders")
    key: str = Field(description="Column that identifies a row; more of them are added to defs.yaml")
    description: str = Field(default="Rows of the query beside it", description="What a row is")


class SqlTableScaffolder(dg.Scaffolder[SqlTableParameters]):
    """Writes the `defs.yaml` of a table and its query."""

    @classmethod
    def get_scaffold_params(cls) -> type[SqlTableParameters]:
        """Return the command's options."""
        return SqlTableParameters

    def scaffold(self, request: dg.ScaffoldRequest[SqlTableParameters]) -> None:
        """Write them."""
        given = request.params
        engine = {"engine": "duckdb"} if Settings().without_spark else {}
        dg.scaffold_component(request, {"description": given.description, **engine, "keys": [given.key]})
        query = request.target_path / f"{request.target_path.name}.sql"
        query.write_text(f"SELECT *\nFROM {given.source}\n")
