"""Clients that others wrote: databricks-sdk, the official Python SDK, and DuckDB's extension."""

import asyncio
import json
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound, NotImplemented, Unauthenticated  # noqa: A004 - the SDK's own name
from databricks.sdk.service.catalog import TableOperation

from tests.embedded.catalog.harness import COLUMNS, Server, TableClient, create_body, delta, stage


def test_databricks_sdk(server: Server, schema: str, table: TableClient) -> None:
    workspace = WorkspaceClient(host=server.url, token=server.token, auth_type="pat")
    assert "ratify" in [catalog.name for catalog in workspace.catalogs.list()]
    made = workspace.schemas.create(name=f"{schema}_sdk", catalog_name="ratify", comment="c")
    assert workspace.schemas.get(made.full_name).comment == "c"
    assert made.name in [item.name for item in workspace.schemas.list("ratify")]
    workspace.schemas.delete(made.full_name)
    found = workspace.tables.get(f"ratify.{schema}.t")
    assert (found.table_id, [column.type_text for column in found.columns]) == (table.table_id, ["bigint", "string"])
    assert [item.name for item in workspace.tables.list("ratify", schema)] == ["t"]
    assert workspace.metastores.summary().metastore_id
    credentials = workspace.temporary_table_credentials.generate_temporary_table_credentials(
        table_id=table.table_id, operation=TableOperation.READ
    )
    assert credentials.url == table.location
    with pytest.raises(NotFound):
        workspace.tables.get(f"ratify.{schema}.nope")
    with pytest.raises(NotImplemented):
        list(workspace.volumes.list("ratify", schema))
    workspace.tables.delete(f"ratify.{schema}.t")
    assert list(workspace.tables.list("ratify", schema)) == []
    with pytest.raises(Unauthenticated):
        list(WorkspaceClient(host=server.url, token="wrong", auth_type="pat").catalogs.list())


def test_official_python_sdk(server: Server, schema: str, table: TableClient) -> None:
    from unitycatalog.client import ApiClient, CatalogsApi, Configuration, CreateSchema, SchemasApi, TablesApi

    async def use() -> None:
        configuration = Configuration(host=f"{server.url}/api/2.1/unity-catalog")
        async with ApiClient(configuration) as api:
            api.default_headers["Authorization"] = f"Bearer {server.token}"
            listed = await CatalogsApi(api).list_catalogs()
            assert "ratify" in [catalog.name for catalog in listed.catalogs]
            await SchemasApi(api).create_schema(CreateSchema(name=f"{schema}_uc", catalog_name="ratify"))
            await SchemasApi(api).delete_schema(f"ratify.{schema}_uc")
            found = await TablesApi(api).get_table(f"ratify.{schema}.t")
            assert found.table_id == table.table_id
            tables = await TablesApi(api).list_tables("ratify", schema)
            assert tables.tables[0].columns[0].type_text == "bigint"

    asyncio.run(use())


def _write_first_commit(location: str, body: dict[str, object], table_id: str) -> None:
    """Version 0 of an empty table, by hand: what Spark writes between staging and createTable."""
    protocol = {key.title().replace("-", ""): value for key, value in body["protocol"].items()}
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(COLUMNS),
        "partitionColumns": [],
        "configuration": body["properties"],
        "createdTime": body["last-commit-timestamp-ms"],
    }
    info = {"timestamp": 1, "operation": "CREATE TABLE", "operationParameters": {}, "txnId": str(uuid.uuid4())}
    info["inCommitTimestamp"] = body["last-commit-timestamp-ms"]
    actions = [
        {"commitInfo": info},
        {"protocol": {key[0].lower() + key[1:]: value for key, value in protocol.items()}},
        {"metaData": metadata},
    ]
    log = Path(urlsplit(location).path) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_duckdb_reads_and_commits(server: Server, client: httpx.Client, schema: str, tmp_path: Path) -> None:
    import duckdb
    import duckdb_extensions

    staged = stage(client, schema, "d")
    body = create_body("d", staged) | {"last-commit-timestamp-ms": time.time_ns() // 1_000_000}
    _write_first_commit(staged["location"], body, staged["table-id"])
    client.post(f"{delta(schema)}/tables", json=body).raise_for_status()
    with duckdb.connect(config={"extension_directory": str(tmp_path)}) as connection:
        for name in ("httpfs", "delta", "unity_catalog"):
            duckdb_extensions.import_extension(name, con=connection)
            connection.execute(f"LOAD {name}")
        connection.execute(
            f"CREATE SECRET (TYPE unity_catalog, TOKEN '{server.token}', ENDPOINT '{server.url}/', AWS_REGION 'x')"
        )
        connection.execute(f"ATTACH 'ratify' AS uc (TYPE unity_catalog, DEFAULT_SCHEMA '{schema}')")
        for value in (1, 2, 3):
            connection.execute(f"INSERT INTO uc.{schema}.d VALUES ({value}, 'x')")
        assert connection.execute(f"SELECT count(*), sum(id) FROM uc.{schema}.d").fetchone() == (3, 6)
    assert client.get(f"{delta(schema)}/tables/d").json()["latest-table-version"] == 3
