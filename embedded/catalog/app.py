"""The server as an ASGI application: its routes, and the one place where errors become answers."""

import logging
from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from embedded.catalog.auth import BearerAuth
from embedded.catalog.endpoint import Call, Handler, endpoint
from embedded.catalog.errors import CatalogError, MethodNotAllowedError, NoSuchPathError, NotSupportedError, error_body
from embedded.catalog.routes import catalogs, delta_access, delta_tables, schemas, tables
from embedded.catalog.store.database import Store

_log = logging.getLogger(__name__)

# databricks-sdk calls temporary-table-credentials under 2.0, and everything else under 2.1.
PREFIXES = ("/api/2.1/unity-catalog", "/api/2.0/unity-catalog")
_DELTA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE = _DELTA + "/tables/{table}"

_ROUTES: list[tuple[str, str, Handler]] = [
    # First, for Starlette takes the first match and DuckDB and Spark live on these two.
    ("POST", _TABLE, delta_tables.update_table),
    ("HEAD", _TABLE, delta_tables.table_exists),
    ("GET", _TABLE, delta_tables.load_table),
    ("DELETE", _TABLE, delta_tables.delete_table),
    ("POST", _TABLE + "/rename", delta_tables.rename_table),
    ("POST", _TABLE + "/metrics", delta_tables.report_metrics),
    ("GET", _TABLE + "/credentials", delta_access.table_credentials),
    ("POST", _DELTA + "/tables", delta_tables.create_table),
    ("POST", _DELTA + "/staging-tables", delta_tables.create_staging_table),
    ("GET", "/delta/v1/config", delta_access.get_config),
    ("GET", "/delta/v1/staging-tables/{table_id}/credentials", delta_access.staging_table_credentials),
    ("GET", "/delta/v1/temporary-path-credentials", delta_access.temporary_path_credentials),
    ("POST", "/catalogs", catalogs.create_catalog),
    ("GET", "/catalogs", catalogs.list_catalogs),
    ("GET", "/catalogs/{name}", catalogs.get_catalog),
    ("PATCH", "/catalogs/{name}", catalogs.update_catalog),
    ("DELETE", "/catalogs/{name}", catalogs.delete_catalog),
    ("GET", "/metastore_summary", catalogs.metastore_summary),
    ("POST", "/schemas", schemas.create_schema),
    ("GET", "/schemas", schemas.list_schemas),
    ("GET", "/schemas/{full_name}", schemas.get_schema),
    ("PATCH", "/schemas/{full_name}", schemas.update_schema),
    ("DELETE", "/schemas/{full_name}", schemas.delete_schema),
    ("POST", "/tables", tables.create_table),
    ("GET", "/tables", tables.list_tables),
    ("GET", "/tables/{full_name}", tables.get_table),
    ("DELETE", "/tables/{full_name}", tables.delete_table),
    ("POST", "/staging-tables", tables.create_staging_table),
    ("POST", "/temporary-table-credentials", tables.temporary_table_credentials),
]
# The rest of unity-catalog-2.1.yaml: known, and refused by name, so that no client takes a 404 for "there is none".
_UNSUPPORTED = (
    "volumes", "functions", "models", "permissions", "credentials", "external-locations",
    "temporary-volume-credentials", "temporary-model-version-credentials", "temporary-path-credentials",
    "delta/preview",
)  # fmt: skip
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def create_app(store: Store, token: str) -> Starlette:
    """The catalog server over `store`, open to whoever holds `token`."""
    routes = [Route("/", _hello, methods=["GET"]), Route("/health", _health, methods=["GET"])]
    for prefix in PREFIXES:
        routes += [Route(prefix + path, endpoint(handler), methods=[method]) for method, path, handler in _ROUTES]
        for name in _UNSUPPORTED:
            routes += _refused(prefix, name)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(BearerAuth, token=token)],
        exception_handlers={CatalogError: _answer_refusal, HTTPException: _answer_unrouted, Exception: _answer_bug},
    )
    app.state.store = store
    return app


def _refused(prefix: str, name: str) -> Sequence[Route]:
    def refuse(_: Call) -> Response:
        raise NotSupportedError(f"This server does not implement {name} of the Unity Catalog API.")

    run = endpoint(refuse)
    return [
        Route(f"{prefix}/{name}", run, methods=_METHODS),
        Route(f"{prefix}/{name}/{{rest:path}}", run, methods=_METHODS),
    ]


async def _hello(_: Request) -> Response:
    return PlainTextResponse("Hello, Unity Catalog!")


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _answer(request: Request, error: CatalogError) -> Response:
    if request.method == "HEAD":
        return Response(status_code=error.status)
    return JSONResponse(error_body(error, request.url.path), error.status)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    return _answer(request, error if isinstance(error, CatalogError) else CatalogError("Internal error."))


async def _answer_unrouted(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return _answer(request, MethodNotAllowedError(f"{request.method} is not a method of {request.url.path}."))
    return _answer(request, NoSuchPathError(f"No such path: {request.url.path}"))


async def _answer_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(request, CatalogError("Internal error; see the log of the catalog server."))
