"""/schemas of the 2.1 API."""

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.access_rules import Privilege, to_root
from ratify_lakehouse.embedded.catalog.api_models import CreateSchema, UpdateNamespace
from ratify_lakehouse.embedded.catalog.api_views import schema_info
from ratify_lakehouse.embedded.catalog.endpoint import Call, page_body
from ratify_lakehouse.embedded.catalog.object_names import split_full_name
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.store import grant_store, namespace_store
from ratify_lakehouse.embedded.catalog.store.database_schema import schemas


def create_schema(call: Call) -> Response:
    request = call.parse(CreateSchema)
    with call.write(request.catalog_name, also=to_root(request.storage_root)) as tx:
        schema = namespace_store.create_schema(tx, request, call.principal)
    return JSONResponse(schema_info(schema))


def list_schemas(call: Call) -> Response:
    catalog = call.required("catalog_name")
    after, limit = call.page()
    with call.read(catalog) as tx:
        seen = grant_store.visible(tx, call.principal, (catalog,), schemas, Privilege.USE_SCHEMA)
        found = namespace_store.list_schemas(tx, catalog, after, limit + 1, seen)
    return page_body("schemas", found, schema_info, limit)


def get_schema(call: Call) -> Response:
    catalog, name = split_full_name(call.path["full_name"], 2)
    with call.read(catalog, name) as tx:
        schema = namespace_store.get_schema(tx, catalog, name)
    return JSONResponse(schema_info(schema))


def update_schema(call: Call) -> Response:
    catalog, name = split_full_name(call.path["full_name"], 2)
    request = call.parse(UpdateNamespace)
    with call.write(catalog, name) as tx:
        schema = namespace_store.update_schema(tx, catalog, name, request)
    return JSONResponse(schema_info(schema))


def delete_schema(call: Call) -> Response:
    catalog, name = split_full_name(call.path["full_name"], 2)
    force = call.flag("force")
    with call.write(catalog, name) as tx:
        namespace_store.delete_schema(tx, catalog, name, force=force)
    purge_dropped(call.store)
    return JSONResponse({})
