"""Two names that differ only in case are one name, as in DuckDB and Databricks: for catalogs, schemas, tables, columns."""

import sqlite3
import uuid
from pathlib import Path

import httpx
import pytest

from tests.embedded.catalog.catalog_lake import LocalCatalog
from tests.embedded.catalog.harness import (
    COLUMNS,
    TableClient,
    add_commit,
    create_body,
    delta,
    error_of,
    stage,
)

pytestmark = pytest.mark.server


@pytest.fixture
def name() -> str:
    return f"straße_{uuid.uuid4().hex[:8]}"


def test_the_second_of_two_names_is_refused(client: httpx.Client, name: str) -> None:
    other = name.upper()
    assert other != name
    for kind, more in (("catalogs", {}), ("schemas", {"catalog_name": "ratify"})):
        assert client.post(f"/{kind}", json={"name": name, **more}).json()["name"] == name
        again = client.post(f"/{kind}", json={"name": other, **more})
        assert (again.status_code, again.json()["error_code"]) == (409, f"{kind[:-1].upper()}_ALREADY_EXISTS")
    TableClient.create(client, name, name)
    assert error_of(client.post(f"{delta(name)}/staging-tables", json={"name": other})) == (409, "AlreadyExistsException")
    external = {"name": other, "catalog_name": "ratify", "schema_name": name, "table_type": "EXTERNAL", "columns": []}
    external |= {"data_source_format": "DELTA", "storage_location": f"file:///lake/{name}"}
    assert client.post("/tables", json=external).json()["error_code"] == "TABLE_ALREADY_EXISTS"
    body = {key: external[key] for key in ("name",)} | {"location": f"file:///lake/{name}", "table-type": "EXTERNAL"}
    body |= {"columns": COLUMNS, "protocol": {"min-reader-version": 1, "min-writer-version": 2}, "properties": {}}
    created = client.post(f"{delta(name)}/tables", json=body | {"last-commit-timestamp-ms": 1})
    assert error_of(created) == (409, "AlreadyExistsException")


def test_a_rename_may_change_the_case_and_take_no_other_name(client: httpx.Client, schema: str, name: str) -> None:
    taken, table = TableClient.create(client, schema, "Taken"), TableClient.create(client, schema, name)
    assert error_of(client.post(f"{table.path}/rename", json={"new-name": "TAKEN"})) == (409, "AlreadyExistsException")
    assert client.post(f"{taken.path}/rename", json={"new-name": "tAKEN"}).status_code == 204
    assert client.get(f"/tables/ratify.{schema}.Taken").json()["name"] == "tAKEN"
    full = f"/schemas/ratify.{schema}"
    client.post("/schemas", json={"name": name, "catalog_name": "ratify"}).raise_for_status()
    assert client.patch(full, json={"new_name": name.upper()}).status_code == 409
    assert client.patch(full, json={"new_name": schema.upper()}).json()["name"] == schema.upper()
    for one in (name, f"{name}2"):
        client.post("/catalogs", json={"name": one}).raise_for_status()
    assert client.patch(f"/catalogs/{name}", json={"new_name": f"{name}2".upper()}).status_code == 409
    assert client.patch(f"/catalogs/{name}", json={"new_name": name.upper()}).json()["name"] == name.upper()


def test_every_look_up_ignores_the_case(client: httpx.Client, schema: str, name: str) -> None:
    table = TableClient.create(client, schema, name)
    catalog, other, spelled = "RATIFY", schema.upper(), name.upper()
    full = f"{catalog}.{other}.{spelled}"
    assert client.get(f"/catalogs/{catalog}").json()["name"] == "ratify"
    assert client.get(f"/schemas/{catalog}.{other}").json()["name"] == schema
    assert client.get(f"/tables/{full}").json()["name"] == name
    assert schema in {one["name"] for one in client.get("/schemas", params={"catalog_name": catalog}).json()["schemas"]}
    listed = client.get("/tables", params={"catalog_name": catalog, "schema_name": other}).json()["tables"]
    assert [one["name"] for one in listed] == [name]
    change = {"principal": "admin", "add": ["SELECT"]}
    for kind, securable in (("catalog", catalog), ("schema", f"{catalog}.{other}"), ("table", full)):
        client.patch(f"/permissions/{kind}/{securable}", json={"changes": [change]}).raise_for_status()
        assert client.get(f"/permissions/{kind}/{securable}").json()["privilege_assignments"]
    path = f"/delta/v1/catalogs/{catalog}/schemas/{other}/tables/{spelled}"
    assert client.head(path).status_code == 204
    mine = TableClient(client, path, table.table_id, table.location)
    mine.update(add_commit(1)).raise_for_status()
    assert mine.load()["latest-table-version"] == 1
    assert client.get(f"{path}/credentials?operation=READ").status_code == 200
    assert client.get("/delta/v1/config", params={"catalog": catalog, "protocol-versions": "1.0"}).status_code == 200
    assert client.delete(f"/tables/{full}").status_code == 200
    assert client.delete(f"/schemas/{catalog}.{other}").status_code == 200


def test_columns_that_differ_only_in_case(client: httpx.Client, schema: str) -> None:
    external = {"name": "e", "catalog_name": "ratify", "schema_name": schema, "table_type": "EXTERNAL"}
    external |= {"data_source_format": "CSV", "storage_location": f"file:///lake/{schema}"}
    for first, second in (("id", "ID"), ("größe", "GRÖSSE")):
        columns = [{"name": one, "type_text": "int", "position": place} for place, one in enumerate((first, second))]
        assert client.post("/tables", json=external | {"columns": columns}).status_code == 400
        fields = [{"name": one, "type": "long", "nullable": True, "metadata": {}} for one in (first, second)]
        body = create_body("t", stage(client, schema, "t")) | {"columns": {"type": "struct", "fields": fields}}
        assert error_of(client.post(f"{delta(schema)}/tables", json=body)) == (400, "InvalidParameterValueException")


def test_the_database_holds_it(tmp_path: Path) -> None:
    local = LocalCatalog.at(tmp_path)
    lake = local.lake("admin", "admin")
    local.store.close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as database:
        database.row_factory = sqlite3.Row
        for layout in ("catalogs", "schemas", "tables"):
            row = dict(database.execute(f"SELECT * FROM {layout}").fetchone())
            assert row["name_key"] == row["name"].casefold()
            row |= {"id": "another", "name": row["name"].upper()}
            with pytest.raises(sqlite3.IntegrityError, match="name_key"):
                database.execute(f"INSERT INTO {layout} VALUES ({', '.join('?' * len(row))})", list(row.values()))
    assert lake.catalog
