"""The server as an ASGI application: its routes, and the one place where errors become answers."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Route

from ratify_lakehouse.embedded.catalog.access_rules import ADMIN, Privilege, RequiredPrivileges
from ratify_lakehouse.embedded.catalog.api_errors import (
    ApiError,
    MethodNotAllowedError,
    NoSuchPathError,
    NotSupportedError,
    error_body,
)
from ratify_lakehouse.embedded.catalog.bearer_auth import DISCOVERY, HOST_METADATA, TOKEN, BearerAuth, Identities
from ratify_lakehouse.embedded.catalog.endpoint import Call, Handler, endpoint
from ratify_lakehouse.embedded.catalog.routes import (
    catalogs_routes,
    delta_access_routes,
    delta_tables_routes,
    dropped_tables_routes,
    oidc_routes,
    permissions_routes,
    principals_routes,
    schemas_routes,
    tables_routes,
)
from ratify_lakehouse.embedded.catalog.server_metrics import ServerMetrics
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store

_log = logging.getLogger(__name__)

# databricks-sdk calls temporary-table-credentials under 2.0, and everything else under 2.1.
PREFIXES = ("/api/2.1/unity-catalog", "/api/2.0/unity-catalog")
_DELTA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE = _DELTA + "/tables/{table}"
_DROPPED = _DELTA + "/dropped-tables"
_PERMISSIONS = "/permissions/{securable_type}/{full_name}"
_ME = "/api/2.0/preview/scim/v2/Me"
_PRINCIPALS = "/api/2.0/preview/scim/v2/ServicePrincipals"
_TOKENS = "/api/2.0/token-management"
_SECRETS = "/api/2.0/accounts/servicePrincipals/{client_id}/credentials/secrets"

# The required privileges of each route on the securable that it names; `access_rules` has the rule, and AuthorizeExpressions
# those of the reference server. () admits every principal: such a route answers with what the principal may see.
Entry = tuple[str, str, Handler, RequiredPrivileges]
_ANY: RequiredPrivileges = ()
_OWNER = (Privilege.OWNER,)
_CATALOG, _SCHEMA = (Privilege.USE_CATALOG,), (Privilege.USE_SCHEMA,)
# delta/v1 and credentials are for external engines, and this server has no others.
_SEE = (Privilege.SELECT | Privilege.MODIFY,)
_LOAD = (*_SEE, Privilege.EXTERNAL_USE_SCHEMA)
_WRITE = (Privilege.MODIFY, Privilege.EXTERNAL_USE_SCHEMA)
_CREATE = (Privilege.CREATE_TABLE, Privilege.EXTERNAL_USE_SCHEMA)
_CREDENTIALS = (Privilege.SELECT, Privilege.EXTERNAL_USE_SCHEMA)  # and MODIFY, for READ_WRITE
_DROP = (Privilege.OWNER, Privilege.EXTERNAL_USE_SCHEMA)


def _metrics(call: Call) -> Response:
    with call.read():
        return call.metrics.page()


ROUTES: list[Entry] = [
    # First, because Starlette takes the first match, and DuckDB and Spark use these most.
    ("POST", _TABLE, delta_tables_routes.update_table, _WRITE),
    ("HEAD", _TABLE, delta_tables_routes.table_exists, _LOAD),
    ("GET", _TABLE, delta_tables_routes.load_table, _LOAD),
    ("DELETE", _TABLE, delta_tables_routes.delete_table, _DROP),
    ("POST", _TABLE + "/rename", delta_tables_routes.rename_table, (*_DROP, Privilege.CREATE_TABLE)),
    ("POST", _TABLE + "/metrics", delta_tables_routes.report_metrics, _LOAD),
    ("GET", _TABLE + "/credentials", delta_access_routes.table_credentials, _CREDENTIALS),
    ("GET", _TABLE + "/maintenance", delta_access_routes.permitted_maintenance, _WRITE),
    ("POST", _DELTA + "/tables", delta_tables_routes.create_table, _CREATE),
    ("POST", _DELTA + "/staging-tables", delta_tables_routes.create_staging_table, _CREATE),
    ("GET", _DROPPED, dropped_tables_routes.list_dropped, _SCHEMA),
    ("GET", "/delta/v1/catalogs/{catalog}/dropped-tables", dropped_tables_routes.list_of_catalog, _CATALOG),
    ("GET", "/delta/v1/catalogs/{catalog}/dropped-tables/{table_id}", dropped_tables_routes.load_dropped, _CATALOG),
    ("POST", _DROPPED + "/{table_id}/undrop", dropped_tables_routes.undrop_table, _CREATE),
    ("DELETE", _DROPPED + "/{table_id}", dropped_tables_routes.delete_dropped, (Privilege.EXTERNAL_USE_SCHEMA,)),
    ("GET", "/delta/v1/config", delta_access_routes.get_config, _CATALOG),
    ("GET", "/delta/v1/staging-tables/{table_id}/credentials", delta_access_routes.staging_table_credentials, _DROP),
    ("GET", "/delta/v1/temporary-path-credentials", delta_access_routes.temporary_path_credentials, (Privilege.READ_FILES,)),
    ("POST", "/catalogs", catalogs_routes.create_catalog, (Privilege.CREATE_CATALOG,)),
    ("GET", "/catalogs", catalogs_routes.list_catalogs, _ANY),
    ("GET", "/catalogs/{name}", catalogs_routes.get_catalog, _CATALOG),
    ("PATCH", "/catalogs/{name}", catalogs_routes.update_catalog, _OWNER),
    ("DELETE", "/catalogs/{name}", catalogs_routes.delete_catalog, _OWNER),
    ("GET", "/metastore_summary", catalogs_routes.metastore_summary, _ANY),
    ("POST", "/schemas", schemas_routes.create_schema, (Privilege.CREATE_SCHEMA,)),
    ("GET", "/schemas", schemas_routes.list_schemas, _ANY),
    ("GET", "/schemas/{full_name}", schemas_routes.get_schema, _SCHEMA),
    ("PATCH", "/schemas/{full_name}", schemas_routes.update_schema, _OWNER),
    ("DELETE", "/schemas/{full_name}", schemas_routes.delete_schema, _OWNER),
    ("POST", "/tables", tables_routes.create_table, (Privilege.CREATE_TABLE,)),
    ("GET", "/tables", tables_routes.list_tables, _ANY),
    ("GET", "/tables/{full_name}", tables_routes.get_table, _SEE),
    ("DELETE", "/tables/{full_name}", tables_routes.delete_table, _OWNER),
    ("POST", "/staging-tables", tables_routes.create_staging_table, (Privilege.CREATE_TABLE,)),
    ("POST", "/temporary-table-credentials", tables_routes.temporary_table_credentials, _CREDENTIALS),
    ("POST", "/temporary-path-credentials", tables_routes.temporary_path_credentials, _ANY),
    ("GET", _PERMISSIONS, permissions_routes.get_permissions, _ANY),
    ("PATCH", _PERMISSIONS, permissions_routes.update_permissions, _OWNER),
]
# Of Databricks and Prometheus, outside of the Unity Catalog API; the OWNER of the metastore is the admin.
WORKSPACE_ROUTES: list[Entry] = [
    ("GET", _ME, principals_routes.get_me, _ANY),
    ("POST", _PRINCIPALS, principals_routes.create_principal, _OWNER),
    ("GET", _PRINCIPALS, principals_routes.list_principals, _OWNER),
    ("DELETE", _PRINCIPALS + "/{client_id}", principals_routes.delete_principal, _OWNER),
    ("POST", _TOKENS + "/on-behalf-of/tokens", principals_routes.create_token, _OWNER),
    ("GET", _TOKENS + "/tokens", principals_routes.list_tokens, _OWNER),
    ("DELETE", _TOKENS + "/tokens/{id}", principals_routes.delete_token, _OWNER),
    ("POST", _SECRETS, principals_routes.create_secret, _OWNER),
    ("GET", _SECRETS, principals_routes.list_secrets, _OWNER),
    ("DELETE", _SECRETS + "/{id}", principals_routes.delete_secret, _OWNER),
    ("GET", "/metrics", _metrics, _OWNER),
]
# Without a token: `bearer_auth` lets these pass.
PUBLIC_ROUTES: list[Entry] = [
    ("GET", HOST_METADATA, oidc_routes.host_metadata, _ANY),
    ("GET", DISCOVERY, oidc_routes.discovery, _ANY),
    ("POST", TOKEN, oidc_routes.token, _ANY),
]
# The rest of unity-catalog-2.1.yaml, and what else databricks-sdk requests to find tables: refused by name with 501, so
# that no client takes a 404 for an empty result.
UNSUPPORTED = (
    "volumes", "functions", "models", "effective-permissions", "credentials", "external-locations",
    "temporary-volume-credentials", "temporary-model-version-credentials", "delta/preview", "table-summaries",
    "tables/{full_name}/exists",
)  # fmt: skip
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def create_app(store: Store, token: str, engine_tokens: Mapping[str, str] = MappingProxyType({})) -> Starlette:
    """The catalog server over `store`: `token` is the admin's, and `engine_tokens` maps other tokens to principals."""
    identities = Identities(store, {**engine_tokens, token: ADMIN})
    routes = [Route("/", _hello, methods=["GET"]), Route("/health", _health, methods=["GET"])]
    for prefix in PREFIXES:
        routes += [
            Route(prefix + path, endpoint(handler, required), methods=[method]) for method, path, handler, required in ROUTES
        ]
        for name in UNSUPPORTED:
            routes += _refused(prefix, name)
    for method, path, handler, required in WORKSPACE_ROUTES + PUBLIC_ROUTES:
        routes.append(Route(path, endpoint(handler, required), methods=[method]))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(BearerAuth, identities=identities)],
        exception_handlers={ApiError: _answer_refusal, HTTPException: _answer_unrouted, Exception: _answer_bug},
    )
    app.state.store = store
    app.state.identities = identities
    app.state.metrics = ServerMetrics(store)
    return app


def _refused(prefix: str, name: str) -> Sequence[Route]:
    def refuse(_: Call) -> Response:
        raise NotSupportedError(f"This server does not implement {name} of the Unity Catalog API.")

    run = endpoint(refuse, _ANY)
    return [
        Route(f"{prefix}/{name}", run, methods=_METHODS),
        Route(f"{prefix}/{name}/{{rest:path}}", run, methods=_METHODS),
    ]


async def _hello(_: Request) -> Response:
    return PlainTextResponse("Hello, Unity Catalog!")


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _answer(request: Request, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(error_body(error, request.url.path), error.status, {**error.headers, **(headers or {})})


async def _answer_refusal(request: Request, error: Exception) -> Response:
    return _answer(request, error if isinstance(error, ApiError) else ApiError("Internal error."))


async def _answer_unrouted(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        refusal = MethodNotAllowedError(f"{request.method} is not a method of {request.url.path}.")
        return _answer(request, refusal, {"Allow": ", ".join(sorted(_methods_of(request)))})
    return _answer(request, NoSuchPathError(f"No such path: {request.url.path}"))


def _methods_of(request: Request) -> set[str]:
    """The methods of all routes with this path: Starlette's own Allow header has only those of the first."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in routes for method in route.methods}


async def _answer_bug(request: Request, error: Exception) -> Response:
    request_id = getattr(request.state, "request_id", "-")
    _log.error("%s %s failed (request %s)", request.method, request.url.path, request_id, exc_info=error)
    return _answer(request, ApiError("Internal error; see the log of the catalog server."))
