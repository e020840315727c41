"""databricks-sdk: catalogs, schemas, grants, and the registration of external tables; test_oauth has its principals.

It moves no rows and makes no commits: what it writes is metadata, and its conflicts are names that are taken. A table it
cannot alter here: its one change of a table is the owner, which is not in the published API, and is refused by name.
"""

from pathlib import Path

import httpx
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import (
    BadRequest,
    DatabricksError,
    NotFound,
    NotImplemented,  # noqa: A004 - the SDK's own name
    PermissionDenied,
    ResourceConflict,
    Unauthenticated,
)
from databricks.sdk.service.catalog import (
    ColumnInfo,
    ColumnTypeName,
    DataSourceFormat,
    PermissionsChange,
    Privilege,
    TableInfo,
    TableOperation,
    TableType,
)

from tests.embedded.catalog.harness import READ, WRITE, CatalogProcess, ClientPrincipal, TableClient, outlive, permissions

pytestmark = pytest.mark.server


def workspace_of(server: CatalogProcess, token: str) -> WorkspaceClient:
    return WorkspaceClient(host=server.url, token=token, auth_type="pat")


@pytest.fixture(scope="module")
def workspace(server: CatalogProcess) -> WorkspaceClient:
    """As the admin, for only it may choose where an external table lies."""
    return workspace_of(server, server.token)


def register(workspace: WorkspaceClient, schema: str, location: Path, name: str = "x") -> TableInfo:
    field = '{"name":"id","type":"long","nullable":true,"metadata":{}}'
    return workspace.tables.create(
        name=name,
        catalog_name="ratify",
        schema_name=schema,
        table_type=TableType.EXTERNAL,
        data_source_format=DataSourceFormat.DELTA,
        storage_location=location.as_uri(),
        columns=[ColumnInfo(name="id", type_text="bigint", type_json=field, type_name=ColumnTypeName.LONG, position=0)],
        properties={"team": "air"},
    )


def names(workspace: WorkspaceClient, schema: str) -> list[str | None]:
    return [item.name for item in workspace.tables.list("ratify", schema)]


def test_catalogs_and_schemas_are_made_altered_and_dropped(workspace: WorkspaceClient, schema: str) -> None:
    catalog = f"c_{schema}"
    created = workspace.catalogs.create(catalog, comment="first", properties={"team": "air"})
    assert (created.comment, created.properties, created.owner) == ("first", {"team": "air"}, "admin")
    assert workspace.catalogs.update(catalog, new_name=f"{catalog}_2", comment="second").comment == "second"
    assert {catalog, f"{catalog}_2"} & {item.name for item in workspace.catalogs.list()} == {f"{catalog}_2"}
    workspace.schemas.create("a", f"{catalog}_2", comment="c", properties={"k": "v"})
    altered = workspace.schemas.update(f"{catalog}_2.a", new_name="b", properties={"k": "w"})
    assert (altered.full_name, altered.comment, altered.properties) == (f"{catalog}_2.b", "c", {"k": "w"})
    assert [item.name for item in workspace.schemas.list(f"{catalog}_2")] == ["b"]
    with pytest.raises(BadRequest, match="force=true"):
        workspace.catalogs.delete(f"{catalog}_2")
    workspace.schemas.delete(f"{catalog}_2.b")
    workspace.catalogs.delete(f"{catalog}_2")
    with pytest.raises(NotFound, match=f"Catalog not found: {catalog}_2"):
        workspace.catalogs.get(f"{catalog}_2")
    assert workspace.metastores.summary().metastore_id


def test_an_external_table_is_registered_read_and_dropped(workspace: WorkspaceClient, schema: str, tmp_path: Path) -> None:
    created = register(workspace, schema, tmp_path)
    found = workspace.tables.get(f"ratify.{schema}.x")
    assert found.as_dict() == created.as_dict()
    assert (found.table_type, found.properties, found.storage_location) == (
        TableType.EXTERNAL,
        {"team": "air"},
        tmp_path.as_uri(),
    )
    assert [(column.name, column.type_text, column.type_name) for column in found.columns] == [
        ("id", "bigint", ColumnTypeName.LONG)
    ]
    assert names(workspace, schema) == ["x"]
    (tmp_path / "theirs").touch()
    workspace.tables.delete(f"ratify.{schema}.x")
    assert names(workspace, schema) == []
    assert (tmp_path / "theirs").exists()


def test_a_managed_table_of_others(workspace: WorkspaceClient, schema: str, table: TableClient) -> None:
    found = workspace.tables.get(f"ratify.{schema}.t")
    assert (found.table_id, [column.type_text for column in found.columns]) == (table.table_id, ["bigint", "string"])
    credentials = workspace.temporary_table_credentials.generate_temporary_table_credentials(
        table_id=table.table_id, operation=TableOperation.READ_WRITE
    )
    assert credentials.url == table.location
    workspace.tables.delete(f"ratify.{schema}.t")
    assert names(workspace, schema) == []


def test_names_that_are_taken(workspace: WorkspaceClient, schema: str, tmp_path: Path) -> None:
    first = register(workspace, schema, tmp_path)
    with pytest.raises(ResourceConflict, match="Table already exists: x"):
        register(workspace, schema, tmp_path / "other")
    assert workspace.tables.get(f"ratify.{schema}.x").as_dict() == first.as_dict()
    with pytest.raises(ResourceConflict, match="Catalog already exists: ratify"):
        workspace.catalogs.create("ratify")
    with pytest.raises(ResourceConflict, match=rf"Schema already exists: ratify\.{schema}"):
        workspace.schemas.create(schema, "ratify")
    workspace.schemas.create(f"{schema}_2", "ratify")
    with pytest.raises(ResourceConflict, match=rf"Schema already exists: ratify\.{schema}"):
        workspace.schemas.update(f"ratify.{schema}_2", new_name=schema)
    with pytest.raises(BadRequest, match="with tables; drop them, or pass force=true"):
        workspace.schemas.delete(f"ratify.{schema}")
    assert names(workspace, schema) == ["x"]
    workspace.schemas.delete(f"ratify.{schema}", force=True)
    with pytest.raises(NotFound):
        list(workspace.tables.list("ratify", schema))


def test_a_reader_reads_and_changes_nothing(
    server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient, tmp_path: Path
) -> None:
    principal = ClientPrincipal.create(client, *READ)
    reader = workspace_of(server, principal.token())
    full, before = f"ratify.{schema}", table.load()
    assert reader.tables.get(f"{full}.t").table_id == table.table_id
    assert names(reader, schema) == ["t"]
    vend = reader.temporary_table_credentials.generate_temporary_table_credentials
    assert vend(table_id=table.table_id, operation=TableOperation.READ).url == table.location
    for refused, privilege in (
        (lambda: vend(table_id=table.table_id, operation=TableOperation.READ_WRITE), "MODIFY"),
        (lambda: register(reader, schema, tmp_path), "CREATE TABLE"),
        (lambda: reader.tables.delete(f"{full}.t"), "OWNER"),
        (lambda: reader.schemas.create("new", "ratify"), "CREATE SCHEMA"),
        (lambda: reader.schemas.update(full, comment="mine"), "OWNER"),
        (lambda: reader.schemas.delete(full, force=True), "OWNER"),
        (lambda: reader.catalogs.create("new"), "CREATE CATALOG"),
        (lambda: reader.catalogs.delete("ratify", force=True), "OWNER"),
        (
            lambda: reader.grants.update(
                "table", f"{full}.t", changes=[PermissionsChange(add=[Privilege.MODIFY], principal=principal.name)]
            ),
            "OWNER",
        ),
    ):
        with pytest.raises(PermissionDenied, match=f"{principal.name} needs {privilege} on"):
            refused()
    assert table.load() == before
    assert names(reader, schema) == ["t"]


def test_the_creator_of_a_schema_grants_what_is_in_it(
    server: CatalogProcess, workspace: WorkspaceClient, client: httpx.Client, schema: str
) -> None:
    owner, other = ClientPrincipal.create(client, *WRITE), ClientPrincipal.create(client, "USE CATALOG")
    theirs = f"ratify.{schema}_own"
    mine, others = (workspace_of(server, principal.token()) for principal in (owner, other))
    assert mine.schemas.create(f"{schema}_own", "ratify").owner == owner.name
    with pytest.raises(PermissionDenied, match="USE SCHEMA"):
        others.schemas.get(theirs)
    assert permissions(mine, "schema", theirs, principal=other.name, add=["USE SCHEMA"]) == {other.name: ["USE SCHEMA"]}
    assert others.schemas.get(theirs).owner == owner.name
    permissions(mine, "schema", theirs, principal=other.name, remove=["USE SCHEMA"])
    with pytest.raises(PermissionDenied, match="USE SCHEMA"):
        others.schemas.get(theirs)


def test_a_token_that_expires(server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient) -> None:
    principal = ClientPrincipal.create(client, *WRITE)
    short = principal.token(2)
    writer = workspace_of(server, short)
    assert names(writer, schema) == ["t"]
    outlive(client, short)
    for refused in (
        lambda: writer.tables.get(f"ratify.{schema}.t"),
        lambda: names(writer, schema),
        lambda: writer.schemas.create(f"{schema}_2", "ratify"),
    ):
        with pytest.raises(Unauthenticated, match="expired or revoked") as error:
            refused()
        assert short not in str(error.value)
    again = workspace_of(server, principal.token())
    assert names(again, schema) == ["t"]
    assert f"{schema}_2" not in [item.name for item in again.schemas.list("ratify")]


def test_what_is_not_there(workspace: WorkspaceClient, schema: str, tmp_path: Path) -> None:
    for missing, message in (
        (lambda: workspace.catalogs.get("nope"), "Catalog not found: nope"),
        (lambda: workspace.schemas.get("ratify.nope"), r"Schema not found: ratify\.nope"),
        (lambda: workspace.schemas.create("s", "nope"), "Catalog not found: nope"),
        (lambda: workspace.tables.get(f"ratify.{schema}.nope"), rf"Table not found: ratify\.{schema}\.nope"),
        (lambda: workspace.tables.delete(f"ratify.{schema}.nope"), rf"Table not found: ratify\.{schema}\.nope"),
        (lambda: register(workspace, "nope", tmp_path), r"Schema not found: ratify\.nope"),
        (lambda: names(workspace, "nope"), r"Schema not found: ratify\.nope"),
        (lambda: workspace.grants.get("table", f"ratify.{schema}.nope"), "Table not found"),
    ):
        with pytest.raises(NotFound, match=message):
            missing()


def test_what_the_server_does_not_have_it_says_and_does_not_call_missing(
    workspace: WorkspaceClient, schema: str, table: TableClient
) -> None:
    for refused in (
        lambda: workspace.tables.exists(f"ratify.{schema}.t"),
        lambda: list(workspace.tables.list_summaries("ratify")),
        lambda: list(workspace.volumes.list("ratify", schema)),
    ):
        with pytest.raises(NotImplemented, match="does not implement"):
            refused()
    with pytest.raises(DatabricksError, match="PATCH is not a method of"):
        workspace.tables.update(f"ratify.{schema}.t", owner="me")
    with pytest.raises(BadRequest, match="owner: Extra inputs are not permitted"):
        workspace.schemas.update(f"ratify.{schema}", owner="me")
    assert workspace.tables.get(f"ratify.{schema}.t").owner == "admin"


def test_privileges_are_spelled_as_the_published_api_spells_them(
    workspace: WorkspaceClient, client: httpx.Client, schema: str
) -> None:
    """So the SDK can grant those of one word only, and leaves the others out of what it reads."""
    principal, name = ClientPrincipal.create(client), f"ratify.{schema}"
    one_word = PermissionsChange(principal=principal.name, add=[Privilege.SELECT])
    [assigned] = workspace.grants.update("schema", name, changes=[one_word]).privilege_assignments
    assert assigned.privileges == [Privilege.SELECT]
    two_words = PermissionsChange(principal=principal.name, add=[Privilege.USE_SCHEMA])
    with pytest.raises(BadRequest, match="USE_SCHEMA cannot be granted on a schema"):
        workspace.grants.update("schema", name, changes=[two_words])
    permissions(workspace, "schema", name, principal=principal.name, add=["USE SCHEMA"])
    assert permissions(workspace, "schema", name) == {principal.name: ["SELECT", "USE SCHEMA"]}
    [assigned] = workspace.grants.get("schema", name).privilege_assignments
    assert assigned.privileges == [Privilege.SELECT]
