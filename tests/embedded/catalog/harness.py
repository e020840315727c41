"""A catalog server in a process of its own, and a client that speaks delta/v1 to it."""

import json
import signal
import subprocess
import sys
import uuid
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

API = "/api/2.1/unity-catalog"
COLUMNS = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": "string", "nullable": True, "metadata": {"comment": "c"}},
    ],
}


@dataclass
class Server:
    """A running server; `stop` and `kill` end it, and `start` over the same directory brings it back."""

    process: subprocess.Popen[str]
    url: str
    token: str

    @classmethod
    def start(cls, home: Path, *extra: str) -> "Server":
        command = [sys.executable, "-m", "embedded.catalog", "--state-dir", str(home / "state"), "--port", "0"]
        command += ["--storage-root", str(home / "lake"), "--token-file", str(home / "token"), "--exit-with-stdin"]
        process = subprocess.Popen([*command, *extra], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(process.stdout.readline())
        return cls(process, ready["url"], (home / "token").read_text().strip())

    def client(self) -> httpx.Client:
        # verify=False: the server speaks plain HTTP, and loading the certificates costs 0.2 s a client.
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url + API, headers=headers, timeout=30, verify=False)  # noqa: S501

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
        answer = client.post(f"{delta(schema)}/tables", json=create_body(name, staged) | changes)
        assert answer.status_code == 200, answer.text
        return cls(client, f"{delta(schema)}/tables/{name}", staged["table-id"], staged["location"])

    def load(self) -> dict[str, Any]:
        return self.client.get(self.path).raise_for_status().json()

    def update(self, *updates: dict[str, Any], etag: str | None = None) -> httpx.Response:
        requirements = [{"type": "assert-table-uuid", "uuid": self.table_id}]
        requirements += [{"type": "assert-etag", "etag": etag}] if etag else []
        return self.client.post(self.path, json={"requirements": requirements, "updates": list(updates)})


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


def add_commit(version: int, file_name: str | None = None, **extra: Any) -> dict[str, Any]:
    commit = {
        "version": version,
        "timestamp": 1_700_000_000_000 + version,
        "file-name": file_name or staged_file(version),
        "file-size": 700,
        "file-modification-timestamp": 1_700_000_000_000 + version,
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
