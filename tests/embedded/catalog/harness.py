"""A catalog server in a process of its own, a client that speaks delta/v1 to it, and principals that it lets in."""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

API = "/api/2.1/unity-catalog"
READ = ("USE CATALOG", "USE SCHEMA", "EXTERNAL USE SCHEMA", "SELECT")
SPARK = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"
WRITE = (*READ, "MODIFY", "CREATE SCHEMA", "CREATE TABLE")
COLUMNS = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": "string", "nullable": True, "metadata": {"comment": "c"}},
    ],
}


def write_settings(home: Path, **changes: Any) -> str:
    """Write a server's settings into a directory, and return the file's path."""
    home.mkdir(parents=True, exist_ok=True)
    paths = {"state_dir": "state", "storage_root": "lake", "token_file": "token"}
    settings = {"port": 0, "dropped_table_seconds": 0} | {name: str(home / path) for name, path in paths.items()} | changes
    (home / "server.json").write_text(json.dumps(settings))
    return str(home / "server.json")


@dataclass
class CatalogAddress:
    """Where a running server is, and the token of its admin."""

    url: str
    token: str

    def client(self) -> httpx.Client:
        return client_of(self.url, self.token)


@dataclass
class CatalogProcess(CatalogAddress):
    """A running server; `stop` and `kill` end it, and `start` over the same directory brings it back."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, home: Path, **changes: Any) -> "CatalogProcess":
        command = [
            sys.executable,
            "-m",
            "ratify_lakehouse.embedded.catalog",
            write_settings(home, exit_with_stdin=True, **changes),
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(process.stdout.readline())
        return cls(ready["url"], (home / "token").read_text().strip(), process)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        self.process.stdin.close()
        return self.process.wait(10)


@dataclass
class TableClient:
    """One managed table: what Delta's writers send for it."""

    client: httpx.Client
    path: str
    table_id: str
    location: str

    @classmethod
    def create(cls, client: httpx.Client, schema: str, name: str, **changes: Any) -> "TableClient":
        staged = stage(client, schema, name)
        return cls.finalize(client, schema, staged, create_body(name, staged) | changes)

    @classmethod
    def create_readable(cls, client: httpx.Client, schema: str, name: str, **changes: Any) -> "TableClient":
        """One that engines can use: its log has version 0."""
        staged = stage(client, schema, name)
        body = create_body(name, staged) | {"last-commit-timestamp-ms": time.time_ns() // 1_000_000} | changes
        body["properties"] = staged["required-properties"] | changes.get("properties", {})
        write_first_commit(staged["table-id"], body)
        return cls.finalize(client, schema, staged, body)

    @classmethod
    def finalize(cls, client: httpx.Client, schema: str, staged: dict[str, Any], body: dict[str, Any]) -> "TableClient":
        answer = client.post(f"{delta(schema)}/tables", json=body)
        assert answer.status_code == 200, answer.text
        return cls(client, f"{delta(schema)}/tables/{body['name']}", staged["table-id"], staged["location"])

    @classmethod
    def of(cls, client: httpx.Client, schema: str, name: str) -> "TableClient":
        """One that is there."""
        path = f"{delta(schema)}/tables/{name}"
        metadata = client.get(path).raise_for_status().json()["metadata"]
        return cls(client, path, metadata["table-uuid"], metadata["location"])

    def load(self) -> dict[str, Any]:
        return self.client.get(self.path).raise_for_status().json()

    def commit(self, actions: list[dict[str, Any]], *updates: dict[str, Any]) -> int:
        """Commit actions, of which the first is the `commitInfo`, as the next version; publish and return it.

        `updates` notify the catalog of what the actions change beside rows.
        """
        version = self.load()["latest-table-version"] + 1
        content, log = as_lines(actions), log_of(self.location)
        staged = add_commit(version, timestamp=actions[0]["commitInfo"]["inCommitTimestamp"])
        (log / "_staged_commits" / staged["commit"]["file-name"]).write_text(content)
        answer = self.update(staged, *updates)
        assert answer.status_code == 200, answer.text
        (log / f"{version:020d}.json").write_text(content)
        assert self.update(published(version)).status_code == 200
        return version

    def update(self, *updates: dict[str, Any], etag: str | None = None) -> httpx.Response:
        requirements = [{"type": "assert-table-uuid", "uuid": self.table_id}]
        requirements += [{"type": "assert-etag", "etag": etag}] if etag else []
        return self.client.post(self.path, json={"requirements": requirements, "updates": list(updates)})


@dataclass
class ClientPrincipal:
    """A service principal of a running server, made by its admin."""

    admin: httpx.Client
    name: str
    client_id: str

    @classmethod
    def create(cls, admin: httpx.Client, *privileges: str) -> "ClientPrincipal":
        """Granted these on the catalog `ratify`."""
        name = f"p-{uuid.uuid4().hex[:8]}"
        url = admin.base_url.join("/api/2.0/preview/scim/v2/ServicePrincipals")
        client_id = admin.post(url, json={"displayName": name}).raise_for_status().json()["applicationId"]
        changes = [{"principal": name, "add": list(privileges)}]
        admin.patch("/permissions/catalog/ratify", json={"changes": changes}).raise_for_status()
        return cls(admin, name, client_id)

    def token(self, seconds: int = 600) -> str:
        """A new token with a life of `seconds`."""
        url = self.admin.base_url.join("/api/2.0/token-management/on-behalf-of/tokens")
        body = {"application_id": self.name, "lifetime_seconds": seconds}
        return self.admin.post(url, json=body).raise_for_status().json()["token_value"]

    def secret(self) -> str:
        """A new OAuth secret."""
        path = f"/api/2.0/accounts/servicePrincipals/{self.client_id}/credentials/secrets"
        return self.admin.post(self.admin.base_url.join(path), json={}).raise_for_status().json()["secret"]


def permissions(workspace: "WorkspaceClient", kind: str, name: str, **change: Any) -> dict[str, list[str]]:
    """The privileges on a securable by principal, after a change if one is given.

    Not by the SDK's own `grants`: it spells them as Databricks does, and leaves out what is spelled as the published API is.
    """
    path, changes = f"{API}/permissions/{kind}/{name}", [{"add": [], "remove": []} | change]
    request = {"method": "PATCH", "body": {"changes": changes}} if change else {"method": "GET"}
    found = workspace.api_client.do(path=path, **request)["privilege_assignments"]
    return {one["principal"]: one["privileges"] for one in found}


def client_of(url: str, token: str) -> httpx.Client:
    # verify=False: the server speaks plain HTTP, and loading the certificates costs 0.2 s a client.
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url + API, headers=headers, timeout=30, verify=False)  # noqa: S501


def outlive(admin: httpx.Client, token: str, seconds: int = 30) -> None:
    """Return when the token has expired, which it does within `seconds`."""
    deadline = time.monotonic() + seconds
    headers = {"Authorization": f"Bearer {token}"}
    while admin.get("/metastore_summary", headers=headers).status_code != 401:
        assert time.monotonic() < deadline, "the token does not expire"
        time.sleep(0.05)


def written(location: str) -> tuple[set[str], set[str]]:
    """The data files in a table's directory, and the commits proposed there; to publish one later adds to neither."""
    root = Path(urlsplit(location).path)
    return {path.name for path in root.rglob("*.parquet")}, {path.name for path in root.rglob("_staged_commits/*.json")}


def delta(schema: str) -> str:
    return f"/delta/v1/catalogs/ratify/schemas/{schema}"


def stage(client: httpx.Client, schema: str, name: str) -> dict[str, Any]:
    return client.post(f"{delta(schema)}/staging-tables", json={"name": name}).raise_for_status().json()


def create_body(name: str, staged: dict[str, Any]) -> dict[str, Any]:
    staged = deepcopy(staged)
    return {
        "name": name,
        "location": staged["location"],
        "table-type": "MANAGED",
        "columns": COLUMNS,
        "partition-columns": [],
        "protocol": staged["required-protocol"],
        "properties": staged["required-properties"],
        "last-commit-timestamp-ms": 1_700_000_000_000,
    }


def write_first_commit(table_id: str, body: dict[str, Any], rows: Sequence[dict[str, Any]] = ()) -> None:
    """Version 0 of a table, by hand: what Spark writes between staging and createTable."""
    log = log_of(body["location"])
    (log / "_staged_commits").mkdir(parents=True)
    (log / f"{0:020d}.json").write_text(first_commit(table_id, body, rows))


def first_commit(table_id: str, body: dict[str, Any], rows: Sequence[dict[str, Any]] = ()) -> str:
    """Return the text of version 0 of a table, with the actions of its rows if it has some."""
    features = {"readerFeatures": body["protocol"]["reader-features"], "writerFeatures": body["protocol"]["writer-features"]}
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(body["columns"]),
        "partitionColumns": body["partition-columns"],
        "configuration": body["properties"],
        "createdTime": body["last-commit-timestamp-ms"],
        **({"description": body["comment"]} if "comment" in body else {}),
    }
    operation = "CREATE TABLE AS SELECT" if rows else "CREATE TABLE"
    info = {"timestamp": 1, "operation": operation, "operationParameters": {}, "txnId": str(uuid.uuid4())}
    info |= {"inCommitTimestamp": body["last-commit-timestamp-ms"], "engineInfo": SPARK}
    actions = [
        {"commitInfo": info},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": metadata},
        *(
            {"domainMetadata": {"domain": domain, "configuration": json.dumps(configuration), "removed": False}}
            for domain, configuration in body.get("domain-metadata", {}).items()
        ),
        *rows,
    ]
    return as_lines(actions)


def log_of(location: str) -> Path:
    return Path(urlsplit(location).path) / "_delta_log"


def as_lines(actions: Iterable[dict[str, Any]]) -> str:
    """Return actions as a commit's file has them."""
    return "".join(json.dumps(action) + "\n" for action in actions)


def add_commit(version: int, file_name: str | None = None, timestamp: int | None = None, **extra: Any) -> dict[str, Any]:
    timestamp = timestamp or 1_700_000_000_000 + version
    commit = {
        "version": version,
        "timestamp": timestamp,
        "file-name": file_name or staged_file(version),
        "file-size": 700,
        "file-modification-timestamp": timestamp,
    }
    return {"action": "add-commit", "commit": commit, **extra}


def staged_file(version: int) -> str:
    return f"{version:020d}.{uuid.uuid4()}.json"


def published(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and type of a delta/v1 error, whose shape is checked on the way."""
    body = answer.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["code"] == answer.status_code
    assert "Traceback" not in body["error"]["message"]
    return answer.status_code, body["error"]["type"]
