"""Declared tables on a catalog server, through its API alone: for tests whose subject is not Spark."""

from typing import Any

import httpx

from resources.column_types import delta_field, sql_type
from resources.declarations import TableDeclaration
from tests.embedded.catalog.harness import TableClient


def create_declared(admin: httpx.Client, *declarations: TableDeclaration, **more: Any) -> None:
    """Create tables in the catalog `ratify`, and their schemas, which may be there; `more` is of the request."""
    for declaration in declarations:
        made = admin.post("/schemas", json={"name": declaration.layer, "catalog_name": "ratify"})
        assert made.status_code in (200, 409), made.text
        fields = [delta_field(column.name, sql_type(column.type)) for column in declaration.columns]
        columns = {"type": "struct", "fields": fields}
        TableClient.create_readable(admin, declaration.layer, declaration.name, columns=columns, **more)
