"""createStagingTable, createTable, rename, credentials, metrics and config of delta/v1."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.embedded.catalog.harness import API, TableClient, create_body, delta, error_of, stage

pytestmark = pytest.mark.server

INVALID = (400, "InvalidParameterValueException")
BAD = (400, "BadRequestException")
UNSUPPORTED = (501, "NotImplementedException")


def test_staging_suggests_nothing_that_duckdb_would_corrupt(client: httpx.Client, schema: str) -> None:
    staged = stage(client, schema, "t")
    assert "columnMapping" not in str(staged)
    assert staged["location"].endswith(f"/tables/{staged['table-id']}")
    assert staged["storage-credentials"][0]["prefix"] == staged["location"]


def test_a_created_table_is_loaded_as_it_was_sent(client: httpx.Client, schema: str) -> None:
    nested = {"type": "array", "element-type": "long", "contains-null": True}
    columns = {"type": "struct", "fields": [{"name": "a", "type": nested, "nullable": True, "metadata": {"k": [1]}}]}
    table = TableClient.create(client, schema, "t", columns=columns, comment="c")
    loaded = table.load()
    assert loaded["metadata"]["columns"] == columns
    assert (loaded["commits"], loaded["latest-table-version"]) == ([], 0)
    properties = loaded["metadata"]["properties"]
    assert properties["delta.feature.catalogManaged"] == "supported"
    assert (properties["delta.lastUpdateVersion"], properties["delta.minReaderVersion"]) == ("0", "3")
    assert client.get(f"/tables/ratify.{schema}.t").json()["comment"] == "c"


def _without(key: str, inner: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: body[key].pop(inner)


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body.update({key: value})


def _protocol(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["protocol"].update({key.replace("_", "-"): value for key, value in changes.items()})


def _property(key: str, value: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["properties"].update({key: value})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without("properties", "io.unitycatalog.tableId"), INVALID),
        (_property("io.unitycatalog.tableId", "another"), INVALID),
        (_property("delta.enableDeletionVectors", "false"), INVALID),
        (_property("delta.feature.catalogManaged", "supported"), INVALID),
        (_property("delta.universalFormat.enabledFormats", "iceberg"), UNSUPPORTED),
        (_protocol(min_writer_version=6), INVALID),
        (_protocol(reader_features=["catalogManaged"]), INVALID),
        (_protocol(writer_features=["catalogManaged"]), INVALID),
        (_set("partition-columns", ["nope"]), INVALID),
        (_set("uniform", {"iceberg": {}}), UNSUPPORTED),
        (_set("columns", {"type": "struct"}), INVALID),
        (_set("domain-metadata", {"delta.clustering": {"clusteringColumns": [["id"]]}}), INVALID),
        (_set("name", "a.b"), INVALID),
        (_set("last-commit-timestamp-ms", -1), INVALID),
        (_set("last-commit-timestamp-ms", 2**63), INVALID),
        (_set("last-commit-timestamp-ms", "1"), BAD),
        (_set("table-type", "VIEW"), BAD),
        (lambda body: body.pop("location"), BAD),
        (_set("location", "file:///elsewhere"), (404, "NoSuchTableException")),
    ],
)
def test_what_breaks_the_contract_is_refused(
    client: httpx.Client, schema: str, change: Callable[[dict[str, Any]], None], expected: tuple[int, str]
) -> None:
    staged = stage(client, schema, "t")
    body = create_body("t", staged)
    change(body)
    answer = client.post(f"{delta(schema)}/tables", json=body)
    assert error_of(answer) == expected, answer.text
    # Nothing was half done: the staging table can still be finalized.
    assert client.post(f"{delta(schema)}/tables", json=create_body("t", staged)).status_code == 200


def test_a_staging_table_is_finalized_once(client: httpx.Client, schema: str) -> None:
    staged = stage(client, schema, "t")
    client.post(f"{delta(schema)}/tables", json=create_body("t", staged)).raise_for_status()
    path = f"{delta(schema)}/tables"
    assert error_of(client.post(path, json=create_body("u", staged))) == INVALID
    assert error_of(client.post(path, json=create_body("t", staged))) == (409, "AlreadyExistsException")
    assert error_of(client.post(f"{delta(schema)}/staging-tables", json={"name": "t"}))[0] == 409


def test_external_table(client: httpx.Client, schema: str) -> None:
    body = create_body("e", stage(client, schema, "e")) | {"table-type": "EXTERNAL", "location": f"file:/lake/{schema}"}
    assert error_of(client.post(f"{delta(schema)}/tables", json=body)) == INVALID
    body["protocol"] = {"min-reader-version": 1, "min-writer-version": 2}
    created = client.post(f"{delta(schema)}/tables", json=body).json()
    assert created["metadata"]["location"] == f"file:///lake/{schema}"
    assert set(created) == {"metadata"}
    table = TableClient(client, f"{delta(schema)}/tables/e", created["metadata"]["table-uuid"], "")
    snapshot = {"action": "update-metadata-snapshot-version", "last-commit-version": 4, "last-commit-timestamp-ms": 9}
    assert table.update(snapshot).json()["metadata"]["last-commit-version"] == 4


def test_rename(client: httpx.Client, schema: str, table: TableClient) -> None:
    TableClient.create(client, schema, "u")
    assert error_of(client.post(f"{table.path}/rename", json={"new-name": "u"})) == (409, "AlreadyExistsException")
    assert client.post(f"{table.path}/rename", json={"new-name": "w"}).status_code == 204
    assert client.head(table.path).status_code == 404
    assert client.head(f"{delta(schema)}/tables/w").status_code == 204


def test_credentials(client: httpx.Client, schema: str, table: TableClient) -> None:
    expected = {"prefix": table.location, "operation": "READ", "config": {}, "expiration-time-ms": None}
    answer = client.get(f"{table.path}/credentials?operation=READ").json()
    assert answer == {"storage-credentials": [expected]}
    assert error_of(client.get(f"{table.path}/credentials")) == BAD
    staged = stage(client, schema, "x")
    path = f"/delta/v1/staging-tables/{staged['table-id']}/credentials"
    assert client.get(path).json()["storage-credentials"] == staged["storage-credentials"]
    temporary = "/delta/v1/temporary-path-credentials"
    query = {"location": "file:/lake/new", "operation": "READ_WRITE"}
    assert client.get(temporary, params=query).json()["storage-credentials"][0]["prefix"] == "file:///lake/new"
    assert error_of(client.get(temporary, params=query | {"location": "s3://bucket/new"}))[0] == 501
    assert error_of(client.get(temporary, params=query | {"location": table.location})) == INVALID


def test_metrics(client: httpx.Client, table: TableClient) -> None:
    histogram = {"sorted-bin-boundaries": [0, 8], "file-counts": [1, 0], "total-bytes": [5, 0], "commit-version": 1}
    body = {"table-id": table.table_id, "report": {"commit-report": {"file-size-histogram": histogram}}}
    assert client.post(f"{table.path}/metrics", json=body).status_code == 204
    histogram["file-counts"] = [1]
    assert error_of(client.post(f"{table.path}/metrics", json=body)) == INVALID
    other = {"table-id": "00000000-0000-0000-0000-000000000000"}
    assert error_of(client.post(f"{table.path}/metrics", json=other)) == INVALID


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("catalog=ratify&protocol-versions=1.0", 200),
        ("catalog=ratify&protocol-versions=2.3,1.7", 200),
        ("catalog=ratify&protocol-versions=2.0", 400),
        ("catalog=ratify&protocol-versions=one", 400),
        ("catalog=ratify", 400),
        ("catalog=nope&protocol-versions=1.0", 404),
    ],
)
def test_config(client: httpx.Client, query: str, status: int) -> None:
    answer = client.get(f"/delta/v1/config?{query}")
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["protocol-version"] == "1.0"


def test_every_advertised_endpoint_exists(client: httpx.Client) -> None:
    for endpoint in client.get("/delta/v1/config?catalog=ratify&protocol-versions=1.0").json()["endpoints"]:
        method, path = endpoint.split(" ")
        answer = client.request(method, f"{API}/delta{path}".removeprefix(API))
        assert answer.status_code in (400, 404)
        assert "No such path" not in answer.text
