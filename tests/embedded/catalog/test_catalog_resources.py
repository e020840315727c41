"""Life cycles of catalogs, schemas and tables over the 2.1 API."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.embedded.catalog.harness import TableClient, create_body, delta, stage

pytestmark = pytest.mark.server

EXTERNAL = {
    "name": "ext",
    "catalog_name": "ratify",
    "table_type": "EXTERNAL",
    "data_source_format": "DELTA",
    "columns": [],
    "storage_location": "file:/lake/ext/",
}


def test_catalog_life_cycle(client: httpx.Client, server_home: Path) -> None:
    created = client.post("/catalogs", json={"name": "other", "comment": "c", "properties": {"a": "b"}}).json()
    assert created["storage_root"] == (server_home / "lake").resolve().as_uri()
    assert created["storage_location"] == f"{created['storage_root']}/__unitystorage/catalogs/{created['id']}"
    assert client.get("/catalogs/other").json() == created
    again = client.post("/catalogs", json={"name": "other"})
    assert (again.status_code, again.json()["error_code"]) == (409, "CATALOG_ALREADY_EXISTS")
    patched = client.patch("/catalogs/other", json={"new_name": "another", "properties": {}}).json()
    assert (patched["id"], patched["comment"], patched["properties"]) == (created["id"], "c", {"a": "b"})
    assert client.patch("/catalogs/another", json={"properties": {"c": "d"}}).json()["properties"] == {"c": "d"}
    client.post("/schemas", json={"name": "s", "catalog_name": "another"}).raise_for_status()
    refused = client.delete("/catalogs/another")
    assert (refused.status_code, refused.json()["error_code"]) == (400, "FAILED_PRECONDITION")
    assert client.delete("/catalogs/another?force=true").json() == {}
    assert client.get("/catalogs/another").json()["error_code"] == "CATALOG_NOT_FOUND"


def test_schema_life_cycle(client: httpx.Client, schema: str) -> None:
    full = f"ratify.{schema}"
    assert client.get(f"/schemas/{full}").json()["full_name"] == full
    assert client.patch(f"/schemas/{full}", json={"comment": "c"}).json()["comment"] == "c"
    assert client.post("/schemas", json={"name": schema, "catalog_name": "ratify"}).status_code == 409
    assert client.post("/schemas", json={"name": "x", "catalog_name": "nope"}).status_code == 404
    TableClient.create(client, schema, "t")
    assert client.delete(f"/schemas/{full}").json()["error_code"] == "FAILED_PRECONDITION"
    assert client.delete(f"/schemas/{full}?force=true").status_code == 200
    assert client.get(f"/schemas/{full}").json()["error_code"] == "SCHEMA_NOT_FOUND"


def test_lists_page_by_name(client: httpx.Client, schema: str) -> None:
    for name in ("c", "a", "b"):
        client.post(
            "/tables",
            json=EXTERNAL | {"name": name, "schema_name": schema, "storage_location": f"file:/lake/{schema}/{name}"},
        ).raise_for_status()
    query = {"catalog_name": "ratify", "schema_name": schema, "max_results": "2"}
    first = client.get("/tables", params=query).json()
    second = client.get("/tables", params=query | {"page_token": first["next_page_token"]}).json()
    assert [table["name"] for table in first["tables"] + second["tables"]] == ["a", "b", "c"]
    assert "next_page_token" not in second
    assert client.get("/tables", params=query | {"max_results": "-1"}).status_code == 400
    assert client.get("/tables", params={"catalog_name": "ratify"}).status_code == 400


def test_external_table_of_the_2_1_api(client: httpx.Client, schema: str) -> None:
    column = {"name": "id", "type_text": "bigint", "type_json": '"long"', "type_name": "LONG", "position": 0}
    body = EXTERNAL | {"schema_name": schema, "columns": [column], "storage_location": f"file:/lake/{schema}/ext/"}
    created = client.post("/tables", json=body).json()
    assert created["storage_location"] == f"file:///lake/{schema}/ext"
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    assert created["columns"][0].items() >= (column | {"type_json": json.dumps(field, separators=(",", ":"))}).items()
    loaded = client.get(f"{delta(schema)}/tables/ext").json()
    assert loaded["metadata"]["columns"]["fields"][0]["type"] == "long"
    assert "latest-table-version" not in loaded
    csv = EXTERNAL | {
        "schema_name": schema,
        "name": "csv",
        "data_source_format": "CSV",
        "storage_location": f"file:/lake/{schema}/csv",
    }
    client.post("/tables", json=csv).raise_for_status()
    assert client.head(f"{delta(schema)}/tables/csv").status_code == 204
    refused = client.get(f"{delta(schema)}/tables/csv")
    assert refused.json()["error"]["type"] == "UnsupportedTableFormatException"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"table_type": "VIEW"}, 501),
        ({"storage_location": None}, 400),
        ({"storage_location": "lake/ext"}, 400),
        ({"storage_location": "file:///lake/__unitystorage/catalogs/x"}, 400),
        ({"storage_location": "file:///lake/a/../__unitystorage/x"}, 400),
        ({"table_type": "MANAGED"}, 404),
        ({"owner": "me"}, 400),
        ({"schema_name": "nope"}, 404),
    ],
)
def test_tables_that_are_refused(client: httpx.Client, schema: str, change: dict[str, str], status: int) -> None:
    answer = client.post("/tables", json=EXTERNAL | {"schema_name": schema} | change)
    assert answer.status_code == status, answer.text
    assert {"error_code", "message", "details"} == set(answer.json())


def test_managed_table_finalized_through_the_2_1_api(client: httpx.Client, schema: str) -> None:
    request = {"name": "m", "catalog_name": "ratify", "schema_name": schema}
    staged = client.post("/staging-tables", json=request).json()
    features = {
        f"delta.feature.{name}": "supported" for name in stage(client, schema, "x")["required-protocol"]["writer-features"]
    }
    properties = create_body("m", stage(client, schema, "m"))["properties"] | features
    properties |= {
        "io.unitycatalog.tableId": staged["id"],
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
    }
    column = {"name": "id", "type_json": '{"name":"id","type":"long","nullable":true,"metadata":{}}'}
    body = EXTERNAL | request | {"table_type": "MANAGED", "storage_location": staged["staging_location"]}
    incomplete = client.post("/tables", json=body | {"columns": [column], "properties": features})
    assert incomplete.status_code == 400
    created = client.post("/tables", json=body | {"columns": [column], "properties": properties}).json()
    assert (created["table_id"], created["columns"][0]["type_text"]) == (staged["id"], "bigint")
    loaded = client.get(f"{delta(schema)}/tables/m").json()
    assert (loaded["latest-table-version"], loaded["metadata"]["properties"]) == (0, created["properties"])


def test_dropping_a_managed_table_deletes_its_files_only(client: httpx.Client, schema: str) -> None:
    remaining, dropped = (TableClient.create(client, schema, name) for name in ("remaining", "dropped"))
    paths = [Path(urlsplit(table.location).path) for table in (remaining, dropped)]
    for path in paths:
        (path / "_delta_log").mkdir(parents=True)
    assert client.delete(dropped.path).status_code == 204
    assert [path.exists() for path in paths] == [True, False]
    assert client.delete(f"/tables/ratify.{schema}.remaining").json() == {}
    assert not paths[0].exists()
    assert client.get(f"/tables/ratify.{schema}.remaining").json()["error_code"] == "TABLE_NOT_FOUND"


def test_temporary_credentials_of_file_storage_are_none(client: httpx.Client, table: TableClient) -> None:
    answer = client.post("/temporary-table-credentials", json={"table_id": table.table_id, "operation": "READ"}).json()
    assert answer == {"url": table.location}
    unknown = client.post("/temporary-table-credentials", json={"table_id": "x", "operation": "READ"})
    assert unknown.status_code == 404


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a b", "a\n", "a\x00", "é" * 256])
def test_names_that_are_refused(client: httpx.Client, name: str) -> None:
    assert client.post("/schemas", json={"name": name, "catalog_name": "ratify"}).status_code == 400


def test_metastore_summary(client: httpx.Client) -> None:
    assert len(client.get("/metastore_summary").json()["metastore_id"]) == 36
