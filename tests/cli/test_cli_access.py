"""`ratify principal`, `grant`, `revoke` and `grants` against a catalog server, as the admin of a stack and as others."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import PermissionDenied, Unauthenticated
from typer.testing import CliRunner, Result

from ratify_lakehouse.cli.main import app
from ratify_lakehouse.cli.terminal_output import runnable
from tests.embedded.catalog.harness import API, CatalogProcess

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    started = CatalogProcess.start(tmp_path_factory.mktemp("catalog"), principals={"engine": ["USE_CATALOG", "SELECT"]})
    yield started
    assert started.stop() == 0


@pytest.fixture(autouse=True)
def home(server: CatalogProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose stack is that server."""
    files = {"token_file": server.token, "engine_token_file": "of an engine, which may nothing here"}
    for name, token in files.items():
        (tmp_path / name).write_text(token)
    catalog = {"url": server.url, "name": "ratify", "pid": 1} | {name: str(tmp_path / name) for name in files}
    (tmp_path / "stack.json").write_text(json.dumps({"pid": 1, "catalog": catalog}))
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CLIENT_ID", "UNITY_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ratify(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def result_of(*words: str) -> list[dict[str, str]]:
    answer = ratify(*words, "--json")
    assert answer.exit_code == 0, answer.stderr
    return json.loads(answer.stdout)


def test_from_a_principal_to_its_end(server: CatalogProcess) -> None:
    [made] = result_of("principal", "create", "bob")
    assert made in result_of("principal", "list")
    token = ratify("principal", "token", "bob", "--days", "1", "--comment", "laptop")
    bob = WorkspaceClient(host=server.url, token=token.stdout.strip(), auth_type="pat")
    with pytest.raises(PermissionDenied):
        bob.catalogs.get("ratify")
    assert result_of("grant", "use catalog, SELECT", "on", "ratify", "to", "bob") == [
        {"principal": "bob", "privileges": "SELECT, USE CATALOG"}
    ]
    assert bob.catalogs.get("ratify").name == "ratify"
    assert {"principal": "bob", "privileges": "SELECT, USE CATALOG"} in result_of("grants", "ratify")
    assert result_of("revoke", "USE", "CATALOG", "on", "catalog", "ratify", "from", "bob") == [
        {"principal": "bob", "privileges": "SELECT"}
    ]
    with pytest.raises(PermissionDenied):
        bob.catalogs.get("ratify")
    [listed] = result_of("principal", "credentials", "bob")
    assert (listed["kind"], listed["comment"]) == ("token", "laptop")
    assert ratify("principal", "revoke", "bob", listed["id"]).exit_code == 0
    with pytest.raises(Unauthenticated):
        list(bob.catalogs.list())
    assert ratify("principal", "delete", "bob").exit_code == 0
    assert made not in result_of("principal", "list")


def test_a_secret_is_for_the_environment_and_shown_once(server: CatalogProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    result_of("principal", "create", "m2m")
    [made] = result_of("principal", "secret", "m2m", "--days", "1")
    [listed] = result_of("principal", "credentials", "m2m")
    assert (listed["kind"], listed["id"]) == ("secret", made["id"])
    assert made["client_secret"] not in ratify("principal", "credentials", "m2m").output
    for name, value in (("HOST", server.url), ("CLIENT_ID", made["client_id"]), ("CLIENT_SECRET", made["client_secret"])):
        monkeypatch.setenv(f"UNITY_{name}", value)
    refused = ratify("principal", "list")
    assert refused.exit_code == 1
    assert "CatalogDenied" in refused.stderr
    assert "m2m needs OWNER on the metastore" in " ".join(refused.stderr.split())
    for name in ("HOST", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"UNITY_{name}")
    assert ratify("principal", "revoke", "m2m", made["id"]).exit_code == 0
    form = {"grant_type": "client_credentials"}
    asked = httpx.post(f"{server.url}/oidc/v1/token", data=form, auth=(made["client_id"], made["client_secret"]))
    assert asked.status_code == 401


def test_a_token_alone_is_on_stdout(server: CatalogProcess) -> None:
    result_of("principal", "create", "script")
    answer = ratify("principal", "token", "script")
    assert answer.stdout.count("\n") == 1
    headers = {"Authorization": f"Bearer {answer.stdout.strip()}"}
    assert httpx.get(f"{server.url}{API}/catalogs", headers=headers).status_code == 200
    assert answer.stdout.strip() not in answer.stderr


def test_grants_on_the_metastore(server: CatalogProcess) -> None:
    result_of("principal", "create", "maker")
    [granted] = result_of("grant", "CREATE CATALOG", "on", "metastore", "to", "maker")
    assert granted == {"principal": "maker", "privileges": "CREATE CATALOG"}
    assert granted in result_of("grants", "metastore")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("grant SELECT ratify to bob", "is not of the form"),
        ("grant SELECT on ratify from bob", "is not of the form"),
        ("grant FLY on ratify to bob", "There is no privilege 'FLY'"),
        ("grant SELECT on table ratify to engine", "is not a catalog, catalog.schema, catalog.schema.table"),
        ("grant SELECT on a.b.c.d to engine", "is not a catalog, catalog.schema, catalog.schema.table"),
        ("grant CREATE CATALOG on ratify to engine", "cannot be granted on a catalog; these can"),
        ("grant SELECT on ratify to nobody", "Principal not found: nobody"),
        ("grant SELECT on ratify.nope to engine", "Schema not found: ratify.nope"),
        ("principal token nobody", "`ratify principal create nobody` makes it"),
        ("principal revoke engine none", "There is no token with the id none"),
        ("principal create engine", "Principal already exists: engine"),
        ("principal create a/b", "displayName"),
    ],
)
def test_errors_say_what_to_do(words: str, message: str) -> None:
    answer = ratify(*words.split())
    assert answer.exit_code == 1, answer.output
    # How the command is typed depends on the folder.
    assert runnable(message) in " ".join(answer.stderr.split())
