"""unitycatalog-client, the official Python SDK: generated from the specification, and so what this server is held to.

It moves no rows: it registers external tables, and makes managed ones by way of POST /staging-tables. Its one way to commit
is the experimental `delta/preview`, which this server refuses by name, for commits go through `delta/v1`. Tables cannot be
altered by the 2.1 API: catalogs and schemas can. The specification has no security scheme, so the token is set as a header.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from unitycatalog import client as uc
from unitycatalog.client.exceptions import (
    ApiException,
    BadRequestException,
    ForbiddenException,
    NotFoundException,
    ServiceException,
    UnauthorizedException,
)

from tests.embedded.catalog.harness import (
    API,
    READ,
    WRITE,
    CatalogProcess,
    ClientPrincipal,
    TableClient,
    create_body,
    outlive,
    stage,
)

pytestmark = pytest.mark.server

Result = TypeVar("Result")


class Apis:
    """The client's APIs, over one connection pool."""

    def __init__(self, api: uc.ApiClient) -> None:
        self.catalogs = uc.CatalogsApi(api)
        self.schemas = uc.SchemasApi(api)
        self.tables = uc.TablesApi(api)
        self.grants = uc.GrantsApi(api)
        self.commits = uc.DeltaCommitsApi(api)
        self.credentials = uc.TemporaryCredentialsApi(api)

    async def names(self, schema: str) -> list[str | None]:
        return [item.name for item in (await self.tables.list_tables("ratify", schema)).tables or []]


def use(server: CatalogProcess, token: str, work: Callable[[Apis], Awaitable[Result]]) -> Result:
    """Run `work` with a client that has this token."""

    async def run() -> Result:
        async with uc.ApiClient(uc.Configuration(host=server.url + API)) as api:
            api.default_headers["Authorization"] = f"Bearer {token}"
            return await work(Apis(api))

    return asyncio.run(run())


def external(schema: str, location: Path) -> uc.CreateTable:
    return uc.CreateTable(
        name="x",
        catalog_name="ratify",
        schema_name=schema,
        table_type=uc.TableType.EXTERNAL,
        data_source_format=uc.DataSourceFormat.DELTA,
        columns=[column()],
        storage_location=location.as_uri(),
        comment="outside",
        properties={"team": "air"},
    )


def column() -> uc.ColumnInfo:
    field = '{"name":"id","type":"long","nullable":true,"metadata":{}}'
    return uc.ColumnInfo(name="id", type_text="bigint", type_json=field, type_name=uc.ColumnTypeName.LONG, position=0)


def message(error: ApiException) -> tuple[str, str]:
    body = json.loads(str(error.body))
    return body["error_code"], body["message"]


def test_catalogs_and_schemas_are_made_altered_and_dropped(server: CatalogProcess, schema: str) -> None:
    async def work(apis: Apis) -> None:
        name = f"c_{schema}"
        created = await apis.catalogs.create_catalog(uc.CreateCatalog(name=name, comment="first", properties={"a": "b"}))
        assert (await apis.catalogs.get_catalog(name)) == created
        altered = await apis.catalogs.update_catalog(name, uc.UpdateCatalog(new_name=f"{name}_2", comment="second"))
        assert (altered.id, altered.name, altered.comment) == (created.id, f"{name}_2", "second")
        name = f"{name}_2"
        assert name in [item.name for item in (await apis.catalogs.list_catalogs()).catalogs or []]
        await apis.schemas.create_schema(uc.CreateSchema(name="a", catalog_name=name, properties={"k": "v"}))
        renamed = await apis.schemas.update_schema(f"{name}.a", uc.UpdateSchema(new_name="b", comment="c"))
        assert (renamed.full_name, renamed.comment, renamed.properties) == (f"{name}.b", "c", {"k": "v"})
        assert [item.name for item in (await apis.schemas.list_schemas(name)).schemas or []] == ["b"]
        await apis.schemas.delete_schema(f"{name}.b")
        await apis.catalogs.delete_catalog(name)
        with pytest.raises(NotFoundException) as error:
            await apis.catalogs.get_catalog(name)
        assert message(error.value) == ("CATALOG_NOT_FOUND", f"Catalog not found: {name}")

    use(server, server.token, work)


def test_an_external_table_is_registered_read_and_dropped(server: CatalogProcess, schema: str, tmp_path: Path) -> None:
    async def work(apis: Apis) -> None:
        created = await apis.tables.create_table(external(schema, tmp_path))
        found = await apis.tables.get_table(f"ratify.{schema}.x")
        assert found == created
        assert (found.storage_location, found.comment, found.properties) == (
            tmp_path.as_uri(),
            "outside",
            {"team": "air"},
        )
        [read] = found.columns or []
        assert (read.name, read.type_text, read.type_name) == ("id", "bigint", uc.ColumnTypeName.LONG)
        assert await apis.names(schema) == ["x"]
        await apis.tables.delete_table(f"ratify.{schema}.x")
        assert await apis.names(schema) == []

    use(server, server.token, work)


def managed_properties(client: httpx.Client, schema: str, table_id: str) -> dict[str, str]:
    """What a managed table must say of itself, which `delta/v1` answers to whoever stages one."""
    contract = stage(client, schema, "contract")
    protocol = contract["required-protocol"]
    return {
        **create_body("m", contract)["properties"],
        **{f"delta.feature.{feature}": "supported" for feature in protocol["writer-features"]},
        "io.unitycatalog.tableId": table_id,
        "delta.minReaderVersion": str(protocol["min-reader-version"]),
        "delta.minWriterVersion": str(protocol["min-writer-version"]),
    }


def test_a_principal_makes_a_managed_table_and_its_commits_are_refused_by_name(
    server: CatalogProcess, client: httpx.Client, schema: str
) -> None:
    principal = ClientPrincipal.create(client, *WRITE)

    async def work(apis: Apis) -> None:
        staged = await apis.tables.create_staging_table(
            uc.CreateStagingTable(name="m", catalog_name="ratify", schema_name=schema)
        )
        request = external(schema, Path("/")).model_copy(
            update={
                "name": "m",
                "table_type": uc.TableType.MANAGED,
                "storage_location": staged.staging_location,
                "properties": managed_properties(client, schema, str(staged.id)),
            }
        )
        created = await apis.tables.create_table(request)
        assert (created.table_id, created.owner, created.storage_location) == (
            staged.id,
            principal.name,
            staged.staging_location,
        )
        # The staging table is used up by the first.
        again = request.model_copy(update={"name": "m2"})
        with pytest.raises(BadRequestException) as used:
            await apis.tables.create_table(again)
        assert "was already finalized" in message(used.value)[1]
        asked = uc.GenerateTemporaryTableCredential(table_id=str(staged.id), operation=uc.TableOperation.READ_WRITE)
        credentials = await apis.credentials.generate_temporary_table_credentials(asked)
        assert credentials.url == staged.staging_location
        commit = uc.DeltaCommit(
            table_id=str(staged.id),
            table_uri=str(staged.staging_location),
            commit_info=uc.DeltaCommitInfo(
                version=1,
                timestamp=1,
                file_name=f"{1:020d}.x.json",
                file_size=1,
                file_modification_timestamp=1,
            ),
        )
        with pytest.raises(ServiceException) as refused:
            await apis.commits.commit(commit)
        assert refused.value.status == 501
        assert message(refused.value)[0] == "UNIMPLEMENTED"

    use(server, principal.token(), work)
    assert (
        TableClient(client, f"/delta/v1/catalogs/ratify/schemas/{schema}/tables/m", "", "").load()["latest-table-version"]
        == 0
    )


def test_names_that_are_taken(server: CatalogProcess, schema: str, tmp_path: Path) -> None:
    async def work(apis: Apis) -> None:
        first = await apis.tables.create_table(external(schema, tmp_path))
        await apis.schemas.create_schema(uc.CreateSchema(name=f"{schema}_2", catalog_name="ratify"))
        for taken, code in (
            (apis.tables.create_table(external(schema, tmp_path / "other")), "TABLE_ALREADY_EXISTS"),
            (
                apis.tables.create_staging_table(uc.CreateStagingTable(name="x", catalog_name="ratify", schema_name=schema)),
                "TABLE_ALREADY_EXISTS",
            ),
            (apis.schemas.create_schema(uc.CreateSchema(name=schema, catalog_name="ratify")), "SCHEMA_ALREADY_EXISTS"),
            (
                apis.schemas.update_schema(f"ratify.{schema}_2", uc.UpdateSchema(new_name=schema)),
                "SCHEMA_ALREADY_EXISTS",
            ),
            (apis.catalogs.create_catalog(uc.CreateCatalog(name="ratify")), "CATALOG_ALREADY_EXISTS"),
        ):
            with pytest.raises(ApiException) as conflict:
                await taken
            assert (conflict.value.status, message(conflict.value)[0]) == (409, code)
        with pytest.raises(BadRequestException) as refused:
            await apis.schemas.delete_schema(f"ratify.{schema}")
        assert message(refused.value)[0] == "FAILED_PRECONDITION"
        assert await apis.tables.get_table(f"ratify.{schema}.x") == first

    use(server, server.token, work)


def test_a_reader_reads_and_changes_nothing(
    server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient, tmp_path: Path
) -> None:
    principal, before = ClientPrincipal.create(client, *READ), table.load()

    async def work(apis: Apis) -> None:
        full = f"ratify.{schema}"
        assert (await apis.tables.get_table(f"{full}.t")).table_id == table.table_id
        read, write = (
            apis.credentials.generate_temporary_table_credentials(
                uc.GenerateTemporaryTableCredential(table_id=table.table_id, operation=operation)
            )
            for operation in (uc.TableOperation.READ, uc.TableOperation.READ_WRITE)
        )
        assert (await read).url == table.location
        more = uc.PermissionsChange(principal=principal.name, add=[uc.Privilege.MODIFY], remove=[])
        for refused, privilege in (
            (write, "MODIFY"),
            (apis.tables.create_table(external(schema, tmp_path)), "CREATE TABLE"),
            (apis.tables.delete_table(f"{full}.t"), "OWNER"),
            (apis.schemas.create_schema(uc.CreateSchema(name="new", catalog_name="ratify")), "CREATE SCHEMA"),
            (apis.schemas.update_schema(full, uc.UpdateSchema(comment="mine")), "OWNER"),
            (apis.schemas.delete_schema(full, force=True), "OWNER"),
            (apis.catalogs.create_catalog(uc.CreateCatalog(name="new")), "CREATE CATALOG"),
            (
                apis.grants.update(uc.SecurableType.TABLE, f"{full}.t", uc.UpdatePermissions(changes=[more])),
                "OWNER",
            ),
        ):
            with pytest.raises(ForbiddenException) as denied:
                await refused
            code, text = message(denied.value)
            assert code == "PERMISSION_DENIED"
            assert text.startswith(f"{principal.name} needs {privilege} on ")
        assert await apis.names(schema) == ["t"]

    use(server, principal.token(), work)
    assert table.load() == before


def test_the_owner_grants_and_takes_back(
    server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient
) -> None:
    principal = ClientPrincipal.create(client, "USE CATALOG", "USE SCHEMA")
    full = f"ratify.{schema}.t"

    def change(add: list[uc.Privilege], remove: list[uc.Privilege]) -> list[uc.PrivilegeAssignment]:
        async def work(apis: Apis) -> list[uc.PrivilegeAssignment]:
            asked = uc.PermissionsChange(principal=principal.name, add=add, remove=remove)
            await apis.grants.update(uc.SecurableType.TABLE, full, uc.UpdatePermissions(changes=[asked]))
            return (await apis.grants.get(uc.SecurableType.TABLE, full)).privilege_assignments or []

        return use(server, server.token, work)

    def table_id() -> str | None:
        return use(server, token, lambda apis: apis.tables.get_table(full)).table_id

    token = principal.token()
    with pytest.raises(ForbiddenException):
        table_id()
    assert change([uc.Privilege.SELECT], []) == [
        uc.PrivilegeAssignment(principal=principal.name, privileges=[uc.Privilege.SELECT])
    ]
    assert table_id() == table.table_id
    assert change([], [uc.Privilege.SELECT]) == []
    with pytest.raises(ForbiddenException):
        table_id()


def test_a_token_that_expires(server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient) -> None:
    principal = ClientPrincipal.create(client, *WRITE)
    short = principal.token(2)

    async def work(apis: Apis) -> None:
        assert await apis.names(schema) == ["t"]
        outlive(client, short)
        for refused in (
            apis.names(schema),
            apis.tables.get_table(f"ratify.{schema}.t"),
            apis.schemas.create_schema(uc.CreateSchema(name=f"{schema}_2", catalog_name="ratify")),
        ):
            with pytest.raises(UnauthorizedException) as error:
                await refused
            code, text = message(error.value)
            assert code == "UNAUTHENTICATED"
            assert "expired or revoked" in text

    use(server, short, work)

    async def after(apis: Apis) -> None:
        assert await apis.names(schema) == ["t"]
        with pytest.raises(NotFoundException):
            await apis.schemas.get_schema(f"ratify.{schema}_2")

    use(server, principal.token(), after)


def test_what_is_not_there(server: CatalogProcess, schema: str, tmp_path: Path) -> None:
    async def work(apis: Apis) -> None:
        nobody = uc.PermissionsChange(principal="nobody", add=[uc.Privilege.USE_SCHEMA], remove=[])
        for missing, code in (
            (apis.catalogs.get_catalog("nope"), "CATALOG_NOT_FOUND"),
            (apis.schemas.get_schema("ratify.nope"), "SCHEMA_NOT_FOUND"),
            (apis.schemas.list_schemas("nope"), "CATALOG_NOT_FOUND"),
            (apis.tables.get_table(f"ratify.{schema}.nope"), "TABLE_NOT_FOUND"),
            (apis.tables.delete_table(f"ratify.{schema}.nope"), "TABLE_NOT_FOUND"),
            (apis.tables.create_table(external("nope", tmp_path)), "SCHEMA_NOT_FOUND"),
            (apis.names("nope"), "SCHEMA_NOT_FOUND"),
            (
                apis.grants.update(uc.SecurableType.SCHEMA, f"ratify.{schema}", uc.UpdatePermissions(changes=[nobody])),
                "NOT_FOUND",
            ),
        ):
            with pytest.raises(NotFoundException) as error:
                await missing
            assert message(error.value)[0] == code

    use(server, server.token, work)
