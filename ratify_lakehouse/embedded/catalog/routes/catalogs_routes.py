"""/catalogs and /metastore_summary of the 2.1 API."""

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.access_rules import Privilege, to_root
from ratify_lakehouse.embedded.catalog.api_models import CreateCatalog, UpdateNamespace
from ratify_lakehouse.embedded.catalog.api_views import catalog_info
from ratify_lakehouse.embedded.catalog.endpoint import Call, page_body
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.store import grant_store, namespace_store
from ratify_lakehouse.embedded.catalog.store.database_schema import catalogs


def create_catalog(call: Call) -> Response:
    request = call.parse(CreateCatalog)
    with call.write(also=to_root(request.storage_root)) as tx:
        catalog = namespace_store.create_catalog(tx, request, call.store.default_root, call.principal)
    return JSONResponse(catalog_info(catalog))


def list_catalogs(call: Call) -> Response:
    after, limit = call.page()
    with call.read() as tx:
        seen = grant_store.visible(tx, call.principal, (), catalogs, Privilege.USE_CATALOG)
        found = namespace_store.list_catalogs(tx, after, limit + 1, seen)
    return page_body("catalogs", found, catalog_info, limit)


def get_catalog(call: Call) -> Response:
    with call.read(call.path["name"]) as tx:
        catalog = namespace_store.get_catalog(tx, call.path["name"])
    return JSONResponse(catalog_info(catalog))


def update_catalog(call: Call) -> Response:
    request = call.parse(UpdateNamespace)
    with call.write(call.path["name"]) as tx:
        catalog = namespace_store.update_catalog(tx, call.path["name"], request)
    return JSONResponse(catalog_info(catalog))


def delete_catalog(call: Call) -> Response:
    force = call.flag("force")
    with call.write(call.path["name"]) as tx:
        namespace_store.delete_catalog(tx, call.path["name"], force=force)
    purge_dropped(call.store)
    return JSONResponse({})


def metastore_summary(call: Call) -> Response:
    return JSONResponse({"metastore_id": call.store.metastore_id})
