"""Grants, ownership and what lists show: what one principal can do after another has said so."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.store import database_schema, principal_store
from tests.embedded.catalog.catalog_lake import Lake, LocalCatalog
from tests.embedded.catalog.harness import create_body, error_of

P = Privilege
_REACH = {"catalog": P.USE_CATALOG, "schema": P.USE_SCHEMA}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCatalog]:
    local = LocalCatalog.at(tmp_path_factory.mktemp("local"))
    for name in ("ann", "bob", "eve"):
        local.principal(name)
    yield local
    local.store.close()


def _status(local: LocalCatalog, who: str, lake: Lake) -> int:
    return local.call(who, "GET", f"/tables/{lake.table}").status_code


def _change(local: LocalCatalog, who: str, path: str, **change: object) -> int:
    changes = [{"principal": "bob", "add": [], "remove": []} | change]
    return local.call(who, "PATCH", f"/permissions/{path}", json={"changes": changes}).status_code


@pytest.mark.parametrize("kind", ["catalog", "schema", "table"])
def test_a_grant_counts_for_all_that_is_below(local: LocalCatalog, kind: str) -> None:
    given = _REACH | {kind: _REACH.get(kind, P(0)) | P.SELECT}
    lake = local.lake("ann", "bob", given)
    assert _status(local, "bob", lake) == 200
    assert _status(local, "eve", lake) == 403
    name = {"catalog": lake.catalog, "schema": f"{lake.catalog}.s", "table": lake.table}[kind]
    assert _change(local, "ann", f"{kind}/{name}", remove=["SELECT"]) == 200
    assert _status(local, "bob", lake) == 403


@pytest.mark.parametrize("missing", ["catalog", "schema"])
def test_the_way_down_needs_use_even_to_a_table_of_ones_own(local: LocalCatalog, missing: str) -> None:
    lake = local.lake("ann", "bob", {**_REACH, "table": P.SELECT, missing: P(0)})
    refused = local.call("bob", "GET", f"/tables/{lake.table}")
    assert (refused.status_code, refused.json()["error_code"]) == (403, "PERMISSION_DENIED")
    assert refused.json()["message"] == f"bob needs USE {missing.upper()} on {lake.table}, or on what holds it."


def test_the_creator_owns_and_the_owner_may_all_below(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", {"catalog": P.USE_CATALOG | P.CREATE_SCHEMA})
    created = local.call("bob", "POST", "/schemas", json={"name": "own", "catalog_name": lake.catalog}).json()
    assert created["owner"] == "bob"
    staging = {"name": "x", "catalog_name": lake.catalog, "schema_name": "own"}
    assert local.call("bob", "POST", "/staging-tables", json=staging).status_code == 200
    assert local.call("bob", "DELETE", f"/schemas/{lake.catalog}.s").status_code == 403
    assert local.call("ann", "GET", f"/schemas/{lake.catalog}.own").json()["owner"] == "bob"
    assert local.call("bob", "DELETE", f"/schemas/{lake.catalog}.own").status_code == 200


def test_external_use_schema_is_asked_of_engines_and_of_a_tables_owner(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", {"catalog": P.USE_CATALOG, "schema": P.USE_SCHEMA | P.CREATE_TABLE | P.SELECT})
    assert _status(local, "bob", lake) == 200
    assert error_of(local.call("bob", "GET", f"{lake.delta}/tables/t")) == (403, "PermissionDeniedException")
    vend = {"json": {"table_id": lake.table_id, "operation": "READ"}}
    assert local.call("bob", "POST", "/temporary-table-credentials", **vend).status_code == 403
    assert _change(local, "ann", f"schema/{lake.catalog}.s", add=["EXTERNAL USE SCHEMA"]) == 200
    assert local.call("bob", "POST", f"{lake.delta}/tables", json=create_body("new", lake.mine)).status_code == 200
    assert local.call("bob", "POST", "/temporary-table-credentials", **vend).status_code == 200
    assert _change(local, "ann", f"schema/{lake.catalog}.s", remove=["EXTERNAL USE SCHEMA"]) == 200
    assert local.call("bob", "GET", f"{lake.delta}/tables/new").status_code == 403
    assert local.call("ann", "GET", f"{lake.delta}/tables/new").status_code == 200


def test_a_staging_table_is_its_makers(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", {"catalog": P.USE_CATALOG | P.USE_SCHEMA | P.CREATE_TABLE | P.EXTERNAL_USE_SCHEMA})
    taken = local.call("bob", "POST", f"{lake.delta}/tables", json=create_body("new", lake.theirs))
    assert error_of(taken) == (404, "NoSuchTableException")
    assert local.call("bob", "GET", f"/delta/v1/staging-tables/{lake.mine['table-id']}/credentials").status_code == 200


def test_credentials_are_no_more_than_the_grant(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", {"catalog": P.USE_CATALOG | P.USE_SCHEMA | P.EXTERNAL_USE_SCHEMA | P.SELECT})
    path = f"{lake.delta}/tables/t/credentials"
    read = local.call("bob", "GET", f"{path}?operation=READ").json()["storage-credentials"]
    assert [item["operation"] for item in read] == ["READ"]
    refused = local.call("bob", "GET", f"{path}?operation=READ_WRITE")
    assert "bob needs MODIFY" in refused.json()["error"]["message"]
    assert _change(local, "ann", f"table/{lake.table}", add=["MODIFY"]) == 200
    written = local.call("bob", "GET", f"{path}?operation=READ_WRITE").json()["storage-credentials"]
    assert [item["operation"] for item in written] == ["READ_WRITE"]


def test_lists_show_what_may_be_seen(local: LocalCatalog) -> None:
    hidden, seen = local.lake("ann", "bob"), local.lake("ann", "bob", _REACH | {"table": P.MODIFY})
    local.call("ann", "POST", "/schemas", json={"name": "other", "catalog_name": seen.catalog})
    staged = local.call("ann", "POST", f"{seen.delta}/staging-tables", json={"name": "u"}).json()
    assert local.call("ann", "POST", f"{seen.delta}/tables", json=create_body("u", staged)).status_code == 200

    def listed(who: str, kind: str, **query: str) -> list[str]:
        return [item["name"] for item in local.call(who, "GET", f"/{kind}", params=query).json()[kind]]

    both = {seen.catalog, hidden.catalog}
    assert [both & set(listed(who, "catalogs")) for who in ("ann", "bob", "eve")] == [both, {seen.catalog}, set()]
    in_catalog = {"catalog_name": seen.catalog}
    assert [listed(who, "schemas", **in_catalog) for who in ("ann", "bob", "eve")] == [["other", "s"], ["s"], []]
    in_schema = in_catalog | {"schema_name": "s"}
    assert [listed(who, "tables", **in_schema) for who in ("ann", "bob", "eve")] == [["t", "u"], ["t"], []]
    page = local.call("bob", "GET", "/tables", params=in_schema | {"max_results": "1"}).json()
    assert "next_page_token" not in page


def test_what_is_missing_is_404_before_it_is_403(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob")
    assert local.call("bob", "GET", "/catalogs/nope").json()["error_code"] == "CATALOG_NOT_FOUND"
    assert local.call("bob", "GET", f"/schemas/{lake.catalog}.nope").json()["error_code"] == "SCHEMA_NOT_FOUND"
    assert local.call("bob", "GET", f"/tables/{lake.catalog}.s.nope").json()["error_code"] == "TABLE_NOT_FOUND"
    assert local.call("bob", "HEAD", f"{lake.delta}/tables/nope").status_code == 404
    assert local.call("bob", "HEAD", f"{lake.delta}/tables/t").status_code == 403


def test_permissions_are_shown_to_the_owner_and_to_whom_they_belong(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", {"table": P.SELECT | P.MODIFY})
    path = f"/permissions/table/{lake.table}"
    bobs = [{"principal": "bob", "privileges": ["MODIFY", "SELECT"]}]
    for who, expected in {"ann": bobs, "admin": bobs, "bob": bobs, "eve": []}.items():
        assert local.call(who, "GET", path).json() == {"privilege_assignments": expected}
    assert local.call("eve", "GET", f"{path}?principal=bob").json() == {"privilege_assignments": []}
    assert local.call("ann", "GET", f"{path}?principal=eve").json() == {"privilege_assignments": []}


@pytest.mark.parametrize(
    ("path", "change", "status"),
    [
        ("table/{lake.table}", {"add": ["USE SCHEMA"]}, 400),
        ("schema/{lake.catalog}.s", {"add": ["CREATE CATALOG"]}, 400),
        ("metastore/m", {"add": ["SELECT"]}, 400),
        ("table/{lake.table}", {"add": ["OWNER"]}, 400),
        ("table/{lake.table}", {"add": ["SELECT"], "principal": "nobody"}, 404),
        ("table/{lake.catalog}.s", {}, 400),
        ("table/{lake.catalog}.s.nope", {}, 404),
        ("volume/{lake.table}", {}, 501),
        ("table/{lake.table}", {"add": "SELECT"}, 400),
    ],
)
def test_grants_that_are_refused_change_nothing(
    local: LocalCatalog, path: str, change: dict[str, object], status: int
) -> None:
    lake = local.lake("ann", "bob")
    first = {"principal": "eve", "add": ["SELECT"] if "table" in path else [], "remove": []}
    changes = [first, {"principal": "bob", "add": [], "remove": []} | change]
    answer = local.call("admin", "PATCH", f"/permissions/{path.format(lake=lake)}", json={"changes": changes})
    assert answer.status_code == status, answer.text
    found = local.call("ann", "GET", f"/permissions/table/{lake.table}")
    assert found.json() == {"privilege_assignments": []}


def test_a_grant_ends_with_its_securable(local: LocalCatalog) -> None:
    lake = local.lake("ann", "bob", _REACH | {"table": P.SELECT})
    local.call("ann", "DELETE", f"/catalogs/{lake.catalog}?force=true")
    with local.store.read() as tx:
        held = tx.exec_driver_sql("SELECT securable_id FROM grants").scalars().all()
    assert not set(held) & set(lake.ids.values())


def test_a_principal_that_is_deleted_leaves_no_token_no_grant_and_its_tables_to_the_admin(local: LocalCatalog) -> None:
    local.principal("tmp")
    lake = local.lake("tmp", "tmp")
    assert _status(local, "tmp", lake) == 200
    with local.store.read() as tx:
        client_id = principal_store.get_principal(tx, "tmp").client_id
    scim = "/api/2.0/preview/scim/v2/ServicePrincipals"
    assert local.call("admin", "DELETE", f"{scim}/{client_id}").status_code == 204
    assert _status(local, "tmp", lake) == 401
    local.principal("tmp")
    assert _status(local, "tmp", lake) == 403
    assert local.call("admin", "GET", f"/tables/{lake.table}").json()["owner"] == "admin"
    assert local.call("admin", "DELETE", f"{scim}/admin").json()["error_code"] == "FAILED_PRECONDITION"


def test_the_name_of_a_principal_that_is_deleted_is_nowhere(local: LocalCatalog) -> None:
    """Else the next one of that name would have what it had: the search goes through every value of the database."""
    local.principal("ghost")
    lake = local.lake("ghost", "ghost", dict.fromkeys(("catalog", "schema", "table"), P.SELECT), lost=True)
    assert _change(local, "admin", f"table/{lake.table}", principal="ghost", add=["SELECT"]) == 200
    staged = local.call("ghost", "POST", f"{lake.delta}/staging-tables", json={"name": "u"}).json()
    assert local.call("ghost", "POST", f"{lake.delta}/tables", json=create_body("u", staged)).status_code == 200
    assert _change(local, "admin", f"table/{lake.catalog}.s.u", principal="ghost", add=["SELECT"]) == 200
    assert local.call("ghost", "DELETE", f"/tables/{lake.catalog}.s.u").status_code == 200

    def found() -> list[str]:
        with local.store.read() as tx:
            rows = {name: tx.exec_driver_sql(f"SELECT * FROM {name}").all() for name in database_schema.metadata.tables}
        return [name for name, all_of_it in rows.items() if "ghost" in str(all_of_it)]

    without = {"metastore", "initial_principals", "commits", "purges"}
    assert set(found()) == set(database_schema.metadata.tables) - without
    with local.store.write() as tx:
        principal_store.delete_principal(tx, principal_store.get_principal(tx, "ghost"))
    assert found() == []


def test_a_principal_is_not_named_by_the_id_of_another(local: LocalCatalog) -> None:
    with local.store.read() as tx:
        client_id = principal_store.get_principal(tx, "eve").client_id
    body = {"displayName": client_id}
    refused = local.call("admin", "POST", "/api/2.0/preview/scim/v2/ServicePrincipals", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (409, "ALREADY_EXISTS")


def test_a_token_ends_by_the_clock_and_at_once_when_it_is_revoked(local: LocalCatalog) -> None:
    local.principal("brief", seconds=1)
    assert local.call("brief", "GET", "/catalogs").status_code == 200
    time.sleep(1.1)
    assert local.call("brief", "GET", "/catalogs").status_code == 401
    body = {"application_id": "bob", "lifetime_seconds": 60}
    created = local.call("admin", "POST", "/api/2.0/token-management/on-behalf-of/tokens", json=body).json()
    assert local.call(created["token_value"], "GET", "/catalogs").status_code == 200
    path = f"/api/2.0/token-management/tokens/{created['token_info']['token_id']}"
    assert local.call("admin", "DELETE", path).status_code == 200
    assert local.call(created["token_value"], "GET", "/catalogs").status_code == 401
    assert local.call("admin", "DELETE", path).status_code == 404


def test_no_secret_is_on_the_disk(tmp_path: Path) -> None:
    local = LocalCatalog.at(tmp_path)
    body = {"application_id": local.principal("p"), "lifetime_seconds": 60}
    token = local.call("admin", "POST", "/api/2.0/token-management/on-behalf-of/tokens", json=body).json()["token_value"]
    client = local.call("admin", "GET", "/api/2.0/preview/scim/v2/ServicePrincipals").json()["Resources"][0]["id"]
    path = f"/api/2.0/accounts/servicePrincipals/{client}/credentials/secrets"
    secret = local.call("admin", "POST", path, json={}).json()["secret"]
    form = {"data": {"grant_type": "client_credentials"}, "auth": (client, secret)}
    access = local.request("POST", "/oidc/v1/token", **form).json()["access_token"]
    for held in (token, access):
        assert local.call(held, "GET", "/catalogs").status_code == 200
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert principal_store.digest_of(token).encode() in written
    for value in (token, secret, access, *local.tokens.values()):
        assert value.encode() not in written
    local.store.close()
