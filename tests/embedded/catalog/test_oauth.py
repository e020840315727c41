"""Machine-to-machine OAuth and the administration of principals, by databricks-sdk against the running server."""

import base64
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound, PermissionDenied, Unauthenticated
from databricks.sdk.service.iam import ServicePrincipal

from tests.embedded.catalog.harness import API, CatalogProcess, TableClient, permissions

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def admin(server: CatalogProcess) -> WorkspaceClient:
    return WorkspaceClient(host=server.url, token=server.token, auth_type="pat")


@pytest.fixture
def principal(admin: WorkspaceClient) -> ServicePrincipal:
    return admin.service_principals.create(display_name=f"p-{uuid.uuid4().hex[:8]}")


def _client(server: CatalogProcess, client_id: str, secret: str) -> WorkspaceClient:
    return WorkspaceClient(host=server.url, client_id=client_id, client_secret=secret, auth_type="oauth-m2m")


def test_a_client_with_a_secret(
    server: CatalogProcess, admin: WorkspaceClient, principal: ServicePrincipal, schema: str, table: TableClient
) -> None:
    secret = admin.service_principal_secrets_proxy.create(principal.id)
    client = _client(server, principal.application_id, secret.secret)
    assert list(client.catalogs.list()) == []
    with pytest.raises(PermissionDenied, match="USE CATALOG"):
        client.tables.get(f"ratify.{schema}.t")
    permissions(admin, "catalog", "ratify", principal=principal.display_name, add=["USE CATALOG"])
    # By the application id, which is how Databricks names a service principal.
    permissions(admin, "schema", f"ratify.{schema}", principal=principal.application_id, add=["USE SCHEMA", "SELECT"])
    assert client.tables.get(f"ratify.{schema}.t").table_id == table.table_id
    assert permissions(client, "schema", f"ratify.{schema}") == {principal.display_name: ["SELECT", "USE SCHEMA"]}
    with pytest.raises(PermissionDenied):
        list(client.service_principals.list())


def test_a_revoked_secret_takes_its_access_tokens_with_it(
    server: CatalogProcess, admin: WorkspaceClient, principal: ServicePrincipal
) -> None:
    secret = admin.service_principal_secrets_proxy.create(principal.id)
    other = admin.service_principal_secrets_proxy.create(principal.id)
    clients = [_client(server, principal.application_id, created.secret) for created in (secret, other)]
    assert [list(client.catalogs.list()) for client in clients] == [[], []]
    assert {item.id for item in admin.service_principal_secrets_proxy.list(principal.id)} == {secret.id, other.id}
    admin.service_principal_secrets_proxy.delete(principal.id, secret.id)
    with pytest.raises(Unauthenticated):
        list(clients[0].catalogs.list())
    assert list(clients[1].catalogs.list()) == []
    with pytest.raises(ValueError, match="invalid_client"):
        list(_client(server, principal.application_id, secret.secret).catalogs.list())


def test_principals_and_tokens(server: CatalogProcess, admin: WorkspaceClient, principal: ServicePrincipal) -> None:
    assert principal.id in {item.id for item in admin.service_principals.list()}
    created = admin.token_management.create_obo_token(principal.application_id, comment="c", lifetime_seconds=60)
    [listed] = [item for item in admin.token_management.list() if item.token_id == created.token_info.token_id]
    assert (listed.comment, listed.created_by_username) == ("c", principal.display_name)
    assert created.token_value not in str(listed)
    assert 55_000 < listed.expiry_time - time.time() * 1000 <= 60_000
    client = WorkspaceClient(host=server.url, token=created.token_value, auth_type="pat")
    assert list(client.catalogs.list()) == []
    admin.token_management.delete(created.token_info.token_id)
    with pytest.raises(Unauthenticated):
        list(client.catalogs.list())
    admin.service_principals.delete(principal.id)
    with pytest.raises(NotFound):
        admin.token_management.create_obo_token(principal.application_id)


def _ask(server: CatalogProcess, authorization: str, form: str) -> httpx.Response:
    headers = {"Authorization": authorization, "Content-Type": "application/x-www-form-urlencoded"}
    return httpx.post(f"{server.url}/oidc/v1/token", content=form, headers=headers)


def _basic(client_id: str | None, secret: str | None) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def test_what_the_java_client_sends(server: CatalogProcess, admin: WorkspaceClient, principal: ServicePrincipal) -> None:
    """OAuthTokenProvider of unitycatalog-client: Basic, form, and then `access_token` and `expires_in` are read."""
    secret = admin.service_principal_secrets_proxy.create(principal.id)
    basic = _basic(principal.application_id, secret.secret)
    answer = _ask(server, basic, "grant_type=client_credentials&scope=all-apis")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert answer.json().items() >= {"token_type": "Bearer", "expires_in": 3600, "scope": "all-apis"}.items()
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    assert httpx.get(f"{server.url}{API}/catalogs", headers=headers).json()["catalogs"] == []
    # A secret is no token, and a token no secret.
    headers = {"Authorization": f"Bearer {secret.secret}"}
    assert httpx.get(f"{server.url}{API}/catalogs", headers=headers).status_code == 401
    exchanged = _basic(principal.application_id, answer.json()["access_token"])
    assert _ask(server, exchanged, "grant_type=client_credentials").status_code == 401


def test_what_the_token_endpoint_refuses(
    server: CatalogProcess, admin: WorkspaceClient, principal: ServicePrincipal
) -> None:
    secret = admin.service_principal_secrets_proxy.create(principal.id).secret
    good, form = _basic(principal.application_id, secret), "grant_type=client_credentials"
    for authorization, body, status, error in (
        (_basic(principal.application_id, "wrong"), form, 401, "invalid_client"),
        (_basic("admin", secret), form, 401, "invalid_client"),
        (_basic("", ""), form, 401, "invalid_client"),
        (f"Bearer {server.token}", form, 401, "invalid_client"),
        ("Basic é".encode("latin-1"), form, 401, "invalid_client"),
        ("Basic ====", form, 401, "invalid_client"),
        (good, "grant_type=password", 400, "unsupported_grant_type"),
        (good, "", 400, "unsupported_grant_type"),
        (good, f"{form}&scope=sql", 400, "invalid_scope"),
    ):
        answer = _ask(server, authorization, body)
        assert (answer.status_code, answer.json()["error"]) == (status, error)
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)


PUBLIC = ("/", "/health", "/.well-known/databricks-config", "/oidc/.well-known/oauth-authorization-server", "/oidc/v1/token")


def _resident(server: CatalogProcess) -> int:
    """The memory that a server holds, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize("path", [*PUBLIC, f"{API}/schemas"])
def test_who_has_no_token_sends_little(server: CatalogProcess, path: str) -> None:
    before = _resident(server)
    for content in (b"a=b&" * 2_500_000, (b"a=b&" * 1000 for _ in range(2500))):
        with suppress(httpx.WriteError):  # It may close the connection before it has read the rest.
            answer = httpx.post(f"{server.url}{path}", content=content)
            assert answer.status_code in ({413} if path.endswith("token") else {401, 405})
    assert _resident(server) - before < 8 * 2**20


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[CatalogProcess]:
    started = CatalogProcess.start(
        tmp_path, access_token_seconds=1, principals={"etl": ["USE_CATALOG", "SELECT", "CREATE_CATALOG"]}
    )
    yield started
    assert started.stop() == 0


def test_access_tokens_expire_and_are_renewed(short_lived: CatalogProcess) -> None:
    admin = WorkspaceClient(host=short_lived.url, token=short_lived.token, auth_type="pat")
    [etl] = admin.service_principals.list()
    secret = admin.service_principal_secrets_proxy.create(etl.id)
    basic = _basic(etl.application_id, secret.secret)
    held = _ask(short_lived, basic, "grant_type=client_credentials").json()
    assert held["expires_in"] == 1
    headers = {"Authorization": f"Bearer {held['access_token']}"}
    assert httpx.get(f"{short_lived.url}{API}/catalogs", headers=headers).status_code == 200
    client = _client(short_lived, etl.application_id, secret.secret)
    assert [item.name for item in client.catalogs.list()] == ["ratify"]
    time.sleep(1.2)
    assert httpx.get(f"{short_lived.url}{API}/catalogs", headers=headers).status_code == 401
    assert [item.name for item in client.catalogs.list()] == ["ratify"]


def test_principals_of_the_settings_keep_what_the_admin_changed(short_lived: CatalogProcess, tmp_path: Path) -> None:
    token_file = tmp_path / "etl.token"
    assert token_file.stat().st_mode & 0o777 == 0o600
    admin = WorkspaceClient(host=short_lived.url, token=short_lived.token, auth_type="pat")
    for kind, name, privileges in (
        ("catalog", "ratify", ["SELECT", "USE CATALOG"]),
        ("metastore", "any", ["CREATE CATALOG"]),
    ):
        assert permissions(admin, kind, name) == {"etl": privileges}
    permissions(admin, "catalog", "ratify", principal="etl", remove=["SELECT"])
    assert short_lived.stop() == 0
    again = CatalogProcess.start(tmp_path, principals={"etl": ["USE_CATALOG", "SELECT"]})
    etl = WorkspaceClient(host=again.url, token=token_file.read_text().strip(), auth_type="pat")
    assert permissions(etl, "catalog", "ratify") == {"etl": ["USE CATALOG"]}
    admin = WorkspaceClient(host=again.url, token=again.token, auth_type="pat")
    admin.service_principals.delete(next(iter(admin.service_principals.list())).id)
    with pytest.raises(Unauthenticated):
        list(etl.catalogs.list())
    assert again.stop() == 0
    again = CatalogProcess.start(tmp_path, principals={"etl": ["USE_CATALOG", "SELECT"]})
    etl = WorkspaceClient(host=again.url, token=token_file.read_text().strip(), auth_type="pat")
    admin = WorkspaceClient(host=again.url, token=again.token, auth_type="pat")
    assert list(admin.service_principals.list()) == []
    assert permissions(admin, "catalog", "ratify") == {}
    with pytest.raises(Unauthenticated):
        list(etl.catalogs.list())
    # Only by this command, and without its grants.
    admin.service_principals.create(display_name="etl")
    assert list(etl.catalogs.list()) == []
    assert again.stop() == 0
    short_lived.process = CatalogProcess.start(tmp_path).process
