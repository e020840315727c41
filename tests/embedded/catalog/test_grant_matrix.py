"""Every route, by every kind of caller: the status that is expected. A route without a row fails the first test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.routing import Route

from ratify_lakehouse.embedded.catalog import catalog_app
from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from tests.embedded.catalog.catalog_lake import Lake, LocalCatalog
from tests.embedded.catalog.harness import add_commit, create_body

_USE = Privilege.USE_CATALOG | Privilege.USE_SCHEMA | Privilege.EXTERNAL_USE_SCHEMA
_READ = {"catalog": _USE | Privilege.SELECT}
_WRITE = {"catalog": _USE | Privilege.SELECT | Privilege.MODIFY | Privilege.CREATE_TABLE | Privilege.CREATE_SCHEMA}
_GRANTED = {"none": {}, "read": _READ, "write": _WRITE, "owner": {}, "admin": {}}

_D = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_T = _D + "/tables/{table}"
_P = "/permissions/{securable_type}/{full_name}"
_ME = "/api/2.0/preview/scim/v2/Me"
_SCIM = "/api/2.0/preview/scim/v2/ServicePrincipals"
_TOKENS = "/api/2.0/token-management"
_SECRETS = "/api/2.0/accounts/servicePrincipals/{client_id}/credentials/secrets"
_OIDC = "/oidc/.well-known/oauth-authorization-server"

Request = Callable[[Lake], tuple[str, dict[str, Any]]]


def _delta(path: str = "", **request: Any) -> Request:
    return lambda lake: (lake.delta + path, request)


def _at(path: str, **request: Any) -> Request:
    """`{…}` in the path are the attributes of the lake."""
    return lambda lake: (path.format(lake=lake), request)


def _made(api: str) -> Request:
    def managed(lake: Lake) -> tuple[str, dict[str, Any]]:
        return f"{lake.delta}/tables", {"json": create_body("new", lake.mine)}

    def external(lake: Lake) -> tuple[str, dict[str, Any]]:
        body = create_body("new", lake.mine) | {"table-type": "EXTERNAL", "location": f"file:///out/{lake.catalog}"}
        body |= {"protocol": {"min-reader-version": 1, "min-writer-version": 2}, "properties": {}}
        return f"{lake.delta}/tables", {"json": body}

    return {"managed": managed, "external": external}[api]


def _dropped(path: str) -> Request:
    return lambda lake: (f"{lake.delta}/dropped-tables/{lake.dropped_id}{path}", {})


def _lost(path: str) -> Request:
    """Of a dropped schema whose name is that of a new one of the caller."""
    return lambda lake: (f"{lake.delta[:-1]}r/dropped-tables{path.format(lake=lake)}", {})


def _update(lake: Lake) -> tuple[str, dict[str, Any]]:
    requirement = {"type": "assert-table-uuid", "uuid": lake.table_id}
    return f"{lake.delta}/tables/t", {"json": {"requirements": [requirement], "updates": [add_commit(1)]}}


def _named(path: str, **body: str) -> Request:
    return lambda lake: (path, {"json": {"catalog_name": lake.catalog, **body}})


def _external(lake: Lake) -> tuple[str, dict[str, Any]]:
    body = {"name": "x", "catalog_name": lake.catalog, "schema_name": "s", "table_type": "EXTERNAL", "columns": []}
    return "/tables", {"json": body | {"data_source_format": "CSV", "storage_location": f"file:///csv/{lake.catalog}"}}


def _vend(operation: str) -> Request:
    return lambda lake: ("/temporary-table-credentials", {"json": {"table_id": lake.table_id, "operation": operation}})


_GRANT = {"json": {"changes": [{"principal": "read", "add": ["SELECT"], "remove": []}]}}
_CREDENTIALS = "/tables/t/credentials?operation="
_PATH = "/delta/v1/temporary-path-credentials"
_PATHS = "/temporary-path-credentials"
# A status for all who have a token, or one each for: no grant, read grant, write grant, owner of the catalog, admin.
MATRIX: list[tuple[str, str, Request, int | tuple[int, int, int, int, int]]] = [
    ("POST", _T, _update, (403, 403, 200, 200, 200)),
    ("HEAD", _T, _delta("/tables/t"), (403, 204, 204, 204, 204)),
    ("GET", _T, _delta("/tables/t"), (403, 200, 200, 200, 200)),
    ("DELETE", _T, _delta("/tables/t"), (403, 403, 403, 204, 204)),
    ("POST", _T + "/rename", _delta("/tables/t/rename", json={"new-name": "u"}), (403, 403, 403, 204, 204)),
    (
        "POST",
        _T + "/metrics",
        lambda lake: (f"{lake.delta}/tables/t/metrics", {"json": {"table-id": lake.table_id}}),
        (403, 204, 204, 204, 204),
    ),
    ("GET", _T + "/credentials", _delta(_CREDENTIALS + "READ"), (403, 200, 200, 200, 200)),
    ("GET", _T + "/credentials", _delta(_CREDENTIALS + "READ_WRITE"), (403, 403, 200, 200, 200)),
    ("GET", _T + "/maintenance", _delta("/tables/t/maintenance"), (403, 403, 200, 200, 200)),
    ("GET", _D + "/dropped-tables", _delta("/dropped-tables"), (403, 200, 200, 200, 200)),
    ("POST", _D + "/dropped-tables/{table_id}/undrop", _dropped("/undrop"), (403, 403, 403, 200, 200)),
    ("DELETE", _D + "/dropped-tables/{table_id}", _dropped(""), (403, 403, 403, 204, 204)),
    (
        "GET",
        "/delta/v1/catalogs/{catalog}/dropped-tables",
        _at("/delta/v1/catalogs/{lake.catalog}/dropped-tables"),
        (403, 200, 200, 200, 200),
    ),
    (
        "GET",
        "/delta/v1/catalogs/{catalog}/dropped-tables/{table_id}",
        _at("/delta/v1/catalogs/{lake.catalog}/dropped-tables/{lake.dropped_id}"),
        (403, 403, 403, 200, 200),
    ),
    (
        "GET",
        "/delta/v1/catalogs/{catalog}/dropped-tables/{table_id}",
        _at("/delta/v1/catalogs/{lake.catalog}/dropped-tables/{lake.lost_id}"),
        (403, 403, 403, 200, 200),
    ),
    ("GET", _D + "/dropped-tables", _lost(""), (403, 200, 200, 200, 200)),
    ("POST", _D + "/dropped-tables/{table_id}/undrop", _lost("/{lake.lost_id}/undrop"), (403, 403, 403, 200, 200)),
    ("DELETE", _D + "/dropped-tables/{table_id}", _lost("/{lake.lost_id}"), (403, 403, 403, 204, 204)),
    ("POST", _D + "/tables", _made("managed"), (403, 403, 200, 200, 200)),
    ("POST", _D + "/tables", _made("external"), (403, 403, 403, 403, 200)),
    ("POST", _D + "/staging-tables", _delta("/staging-tables", json={"name": "n"}), (403, 403, 200, 200, 200)),
    (
        "GET",
        "/delta/v1/config",
        _at("/delta/v1/config?catalog={lake.catalog}&protocol-versions=1.0"),
        (403, 200, 200, 200, 200),
    ),
    (
        "GET",
        "/delta/v1/staging-tables/{table_id}/credentials",
        lambda lake: (f"/delta/v1/staging-tables/{lake.theirs['table-id']}/credentials", {}),
        (403, 403, 403, 200, 200),
    ),
    ("GET", _PATH, _at(_PATH + "?location=file:///x&operation=READ"), (403, 403, 403, 403, 200)),
    ("GET", _PATH, _at(_PATH + "?location=file:///x&operation=READ_WRITE"), (403, 403, 403, 403, 200)),
    # Files that wait for an undrop, of a schema that had a root of its own.
    ("GET", _PATH, _at(_PATH + "?location={lake.lost_root}&operation=READ"), (403, 403, 403, 403, 400)),
    (
        "POST",
        "/catalogs",
        lambda lake: ("/catalogs", {"json": {"name": f"{lake.catalog}x"}}),
        (403, 403, 403, 403, 200),
    ),
    ("GET", "/catalogs", _at("/catalogs"), 200),
    ("GET", "/catalogs/{name}", _at("/catalogs/{lake.catalog}"), (403, 200, 200, 200, 200)),
    ("PATCH", "/catalogs/{name}", _at("/catalogs/{lake.catalog}", json={"comment": "c"}), (403, 403, 403, 200, 200)),
    ("DELETE", "/catalogs/{name}", _at("/catalogs/{lake.catalog}?force=true"), (403, 403, 403, 200, 200)),
    ("GET", "/metastore_summary", _at("/metastore_summary"), 200),
    ("POST", "/schemas", _named("/schemas", name="new"), (403, 403, 200, 200, 200)),
    ("POST", "/schemas", _named("/schemas", name="new", storage_root="file:///out"), (403, 403, 403, 403, 200)),
    ("GET", "/schemas", _at("/schemas?catalog_name={lake.catalog}"), 200),
    ("GET", "/schemas/{full_name}", _at("/schemas/{lake.catalog}.s"), (403, 200, 200, 200, 200)),
    ("PATCH", "/schemas/{full_name}", _at("/schemas/{lake.catalog}.s", json={"comment": "c"}), (403, 403, 403, 200, 200)),
    ("DELETE", "/schemas/{full_name}", _at("/schemas/{lake.catalog}.s?force=true"), (403, 403, 403, 200, 200)),
    ("POST", "/tables", _external, (403, 403, 403, 403, 200)),
    ("GET", "/tables", _at("/tables?catalog_name={lake.catalog}&schema_name=s"), 200),
    ("GET", "/tables/{full_name}", _at("/tables/{lake.table}"), (403, 200, 200, 200, 200)),
    ("DELETE", "/tables/{full_name}", _at("/tables/{lake.table}"), (403, 403, 403, 200, 200)),
    ("POST", "/staging-tables", _named("/staging-tables", name="n", schema_name="s"), (403, 403, 200, 200, 200)),
    ("POST", "/temporary-table-credentials", _vend("READ"), (403, 200, 200, 200, 200)),
    ("POST", "/temporary-table-credentials", _vend("READ_WRITE"), (403, 403, 200, 200, 200)),
    ("POST", _PATHS, _at(_PATHS, json={"url": "file:///x", "operation": "PATH_READ"}), (403, 403, 403, 403, 200)),
    ("POST", _PATHS, _at(_PATHS, json={"url": "file:///x", "operation": "PATH_READ_WRITE"}), (403, 403, 403, 403, 200)),
    ("POST", _PATHS, _at(_PATHS, json={"url": "file:///x", "operation": "PATH_CREATE_TABLE"}), (403, 403, 403, 403, 200)),
    ("GET", _P, _at("/permissions/table/{lake.table}"), 200),
    ("PATCH", _P, _at("/permissions/table/{lake.table}", **_GRANT), (403, 403, 403, 200, 200)),
    ("PATCH", _P, _at("/permissions/metastore/m", json={"changes": []}), (403, 403, 403, 403, 200)),
    (
        "POST",
        _SCIM,
        lambda lake: (_SCIM, {"json": {"displayName": f"p-{lake.catalog}"}}),
        (403, 403, 403, 403, 201),
    ),
    ("GET", _ME, _at(_ME), 200),
    ("GET", _SCIM, _at(_SCIM), (403, 403, 403, 403, 200)),
    ("DELETE", _SCIM + "/{client_id}", _at(_SCIM + "/nobody"), (403, 403, 403, 403, 404)),
    (
        "POST",
        _TOKENS + "/on-behalf-of/tokens",
        _at(_TOKENS + "/on-behalf-of/tokens", json={"application_id": "read", "lifetime_seconds": 1}),
        (403, 403, 403, 403, 200),
    ),
    ("GET", _TOKENS + "/tokens", _at(_TOKENS + "/tokens"), (403, 403, 403, 403, 200)),
    ("DELETE", _TOKENS + "/tokens/{id}", _at(_TOKENS + "/tokens/none"), (403, 403, 403, 403, 404)),
    ("POST", _SECRETS, _at(_SECRETS.format(client_id="read"), json={}), (403, 403, 403, 403, 200)),
    ("GET", _SECRETS, _at(_SECRETS.format(client_id="read")), (403, 403, 403, 403, 200)),
    ("DELETE", _SECRETS + "/{id}", _at(_SECRETS.format(client_id="read") + "/none"), (403, 403, 403, 403, 404)),
]
# Open to everybody: the status is the same with and without a token.
OPEN = {
    ("GET", "/"): 200,
    ("GET", "/health"): 200,
    ("GET", "/.well-known/databricks-config"): 200,
    ("GET", _OIDC): 200,
    ("POST", "/oidc/v1/token"): 400,  # for it has no grant_type
}
CALLERS = tuple(_GRANTED)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    local = LocalCatalog.at(tmp_path_factory.mktemp("local"))
    for name in ("none", "read", "write", "owner"):
        local.principal(name)
    local.principal("expired", seconds=-1)
    yield local
    local.store.close()


@pytest.fixture(scope="module")
def read_lakes(local: LocalCatalog) -> dict[str, Lake]:
    """A lake for each caller, for requests that change nothing: to make one takes longer than to ask."""
    return {caller: local.lake("owner", caller, _GRANTED[caller], lost=True) for caller in CALLERS}


def test_every_route_has_its_row(local: LocalCatalog) -> None:
    served = {
        (method, route.path)
        for route in local.app.routes
        if isinstance(route, Route)
        for method in route.methods - ({"HEAD"} if "GET" in route.methods else set())
    }
    refused = {f"{prefix}/{name}" for prefix in catalog_app.PREFIXES for name in catalog_app.UNSUPPORTED}
    # Of the admin alone, and outside of the API: see test_operation.
    served -= {("GET", "/metrics")}
    served = {(method, path) for method, path in served if path.removesuffix("/{rest:path}") not in refused}
    expected = {(method, path) for method, path, _, _ in MATRIX if path.startswith("/api")} | set(OPEN)
    for prefix in catalog_app.PREFIXES:
        expected |= {(method, prefix + path) for method, path, _, _ in MATRIX if not path.startswith("/api")}
    assert served == expected


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: f"{row[0]} {row[1]}")
def test_who_may(
    local: LocalCatalog, read_lakes: dict[str, Lake], row: tuple[str, str, Request, int | tuple[int, ...]]
) -> None:
    method, _, request, expected = row
    statuses = (expected,) * len(CALLERS) if isinstance(expected, int) else expected
    found: list[int] = []
    for caller in CALLERS:
        reads = method in ("GET", "HEAD")
        lake = read_lakes[caller] if reads else local.lake("owner", caller, _GRANTED[caller], lost=True)
        path, options = request(lake)
        found.append(local.call(caller, method, path, **options).status_code)
    assert tuple(found) == statuses
    path, options = request(read_lakes["owner"])
    for caller in (None, "wrong", "expired"):
        answer = local.call(caller, method, path, **options)
        assert (caller, answer.status_code, answer.headers["WWW-Authenticate"]) == (caller, 401, "Bearer")


@pytest.mark.parametrize("caller", [None, "wrong", "expired", *CALLERS])
def test_what_is_open(local: LocalCatalog, caller: str | None) -> None:
    for (method, path), status in OPEN.items():
        headers = {"Authorization": f"Bearer {local.tokens.get(caller, caller)}"} if caller else {}
        assert local.request(method, path, headers=headers).status_code == status


@pytest.mark.parametrize("name", catalog_app.UNSUPPORTED)
def test_what_is_not_served_asks_for_a_token_first(local: LocalCatalog, name: str) -> None:
    assert [local.call(caller, "GET", f"/{name}").status_code for caller in (None, "wrong", "expired")] == [401] * 3
    assert local.call("none", "GET", f"/{name}").status_code == 501
