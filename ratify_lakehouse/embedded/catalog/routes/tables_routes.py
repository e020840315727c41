"""/tables, /staging-tables and the temporary credentials of the 2.1 API."""

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog import table_creation
from ratify_lakehouse.embedded.catalog.access_rules import LEVEL, PATH_LEVEL, Privilege, to_place
from ratify_lakehouse.embedded.catalog.api_models import (
    CreateStagingTable,
    CreateTable,
    GenerateTemporaryPathCredential,
    GenerateTemporaryTableCredential,
)
from ratify_lakehouse.embedded.catalog.api_views import staging_table_info, table_info, temporary_credentials
from ratify_lakehouse.embedded.catalog.endpoint import Call, page_body
from ratify_lakehouse.embedded.catalog.object_names import external_location, split_full_name
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.store import database_schema as layout
from ratify_lakehouse.embedded.catalog.store import dropped_store, grant_store, namespace_store, table_store
from ratify_lakehouse.embedded.catalog.store.location_store import refuse_overlap


def create_table(call: Call) -> Response:
    request = call.parse(CreateTable)
    with call.write(request.catalog_name, request.schema_name, also=to_place(request.table_type)) as tx:
        schema = namespace_store.get_schema(tx, request.catalog_name, request.schema_name)
        table = table_creation.create_table(tx, schema, request, call.principal)
    return JSONResponse(table_info(table))


def list_tables(call: Call) -> Response:
    catalog, schema_name = call.required("catalog_name"), call.required("schema_name")
    after, limit = call.page()
    with call.read(catalog, schema_name) as tx:
        schema = namespace_store.get_schema(tx, catalog, schema_name)
        seen = grant_store.visible(
            tx, call.principal, (catalog, schema_name), layout.tables, Privilege.SELECT | Privilege.MODIFY
        )
        found = table_store.list_tables(tx, schema.id, after, limit + 1, seen)
    return page_body("tables", found, table_info, limit)


def get_table(call: Call) -> Response:
    catalog, schema, name = split_full_name(call.path["full_name"], 3)
    with call.read(catalog, schema, name) as tx:
        table = table_store.get_table(tx, catalog, schema, name)
    return JSONResponse(table_info(table))


def delete_table(call: Call) -> Response:
    catalog, schema, name = split_full_name(call.path["full_name"], 3)
    with call.write(catalog, schema, name) as tx:
        dropped_store.drop_table(tx, table_store.get_table(tx, catalog, schema, name))
    purge_dropped(call.store)
    return JSONResponse({})


def create_staging_table(call: Call) -> Response:
    request = call.parse(CreateStagingTable)
    with call.write(request.catalog_name, request.schema_name) as tx:
        schema = namespace_store.get_schema(tx, request.catalog_name, request.schema_name)
        staging = table_creation.create_staging_table(tx, schema, request.name, call.principal)
    return JSONResponse(staging_table_info(staging, schema))


def temporary_table_credentials(call: Call) -> Response:
    request = call.parse(GenerateTemporaryTableCredential)
    with call.read_id(request.table_id, also=LEVEL[request.operation]) as tx:
        location = table_store.location_of(tx, request.table_id)
    return JSONResponse(temporary_credentials(location, call.store.s3.vend(location, request.operation)))


def temporary_path_credentials(call: Call) -> Response:
    request = call.parse(GenerateTemporaryPathCredential)
    with call.read(also=PATH_LEVEL[request.operation]) as tx:
        location = external_location(request.url)
        refuse_overlap(tx, location)
    operation = "READ" if request.operation == "PATH_READ" else "READ_WRITE"
    return JSONResponse(temporary_credentials(location, call.store.s3.vend(location, operation)))
