"""The process: start, token, errors, concurrency, kill -9."""

import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratify_lakehouse.embedded.catalog.catalog_app import create_app
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from tests.embedded.catalog.harness import (
    API,
    CatalogProcess,
    TableClient,
    add_commit,
    delta,
    error_of,
    published,
    write_settings,
)

pytestmark = pytest.mark.server


def test_routes_ask_for_the_token(server: CatalogProcess, server_home: Path) -> None:
    assert stat.S_IMODE((server_home / "token").stat().st_mode) == 0o600
    with httpx.Client(base_url=server.url) as anonymous:
        assert "Unity Catalog" in anonymous.get("/").text
        assert anonymous.get("/health").status_code == 200
        assert anonymous.get("/.well-known/databricks-config").json() == {"oidc_endpoint": f"{server.url}/oidc"}
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": server.token}):
            refused = anonymous.get(f"{API}/catalogs", headers=headers)
            assert (refused.status_code, refused.json()["error_code"]) == (401, "UNAUTHENTICATED")
            refused = anonymous.get(f"{API}{delta('s')}/tables/t", headers=headers)
            assert error_of(refused) == (401, "NotAuthorizedException")
        assert anonymous.get("/nowhere").status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/volumes?catalog_name=a", "/volumes/a.b.c", "/functions", "/models/versions", "/effective-permissions/table/a.b.c",
     "/credentials", "/external-locations", "/delta/preview/commits"],
)  # fmt: skip
def test_the_rest_of_the_api_is_refused_by_name(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error_code"]) == (501, "UNIMPLEMENTED")
    assert path.split("?", maxsplit=1)[0].split("/")[1] in answer.json()["message"]


def test_unknown_paths_and_methods(client: httpx.Client) -> None:
    assert client.get("/nowhere").json()["error_code"] == "NOT_FOUND"
    assert error_of(client.get("/delta/v1/nowhere")) == (404, "NotFoundException")
    assert error_of(client.get(f"{delta('s')}/tables"))[0] == 405
    assert error_of(client.get(f"{delta('nope')}/tables/t")) == (404, "NoSuchSchemaException")
    missing = delta("s").replace("catalogs/ratify", "catalogs/nope")
    assert error_of(client.get(f"{missing}/tables/t")) == (404, "NoSuchCatalogException")
    assert error_of(client.post(f"{missing}/staging-tables", json={"name": "t"})) == (404, "NoSuchCatalogException")
    asked = {"catalog": "nope", "protocol-versions": "1.0"}
    assert error_of(client.get("/delta/v1/config", params=asked)) == (404, "NoSuchCatalogException")


def test_bodies_are_bounded_and_must_be_json(client: httpx.Client) -> None:
    assert client.post("/schemas", content=b" " * (2 * 1024 * 1024 + 1)).status_code == 413
    assert client.post("/schemas", content=b" " * (2 * 1024 * 1024)).status_code == 400
    for body in (b"", b"{", b"[]", b'{"name":"\\ud800","catalog_name":"ratify"}', b"[" * 5000):
        answer = client.post("/schemas", content=body)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_ARGUMENT")


def test_a_request_that_offers_h2c_keeps_its_body(server: CatalogProcess, schema: str) -> None:
    """Java's HttpClient offers the upgrade on its first request; httptools loses the body then."""
    body = json.dumps({"name": f"{schema}_h2c", "catalog_name": "ratify"})
    head = (
        f"POST {API}/schemas HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        f"HTTP2-Settings: AAEA\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), timeout=5) as connection:
        connection.sendall((head + body).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_bug_answers_500_without_its_trace(tmp_path: Path) -> None:
    store = Store(tmp_path / "catalog.sqlite", "file:///lake")
    with store.write() as tx:
        tx.exec_driver_sql("DROP TABLE catalogs")

    async def get(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(create_app(store, "t"), raise_app_exceptions=False)
        headers = {"Authorization": "Bearer t"}
        async with httpx.AsyncClient(transport=transport, base_url=f"http://x{API}", headers=headers) as client:
            return await client.get(path)

    answer = asyncio.run(get("/catalogs"))
    assert (answer.status_code, answer.json()["error_code"]) == (500, "INTERNAL")
    assert "sqlite" not in answer.text
    assert error_of(asyncio.run(get(f"{delta('s')}/tables/t"))) == (500, "InternalServerErrorException")


def _refused_start(tmp_path: Path, **changes: Any) -> str:
    command = [sys.executable, "-m", "ratify_lakehouse.embedded.catalog", write_settings(tmp_path, **changes)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr


@pytest.mark.parametrize("root", ["s3://Bad_Bucket/x", "s3://bucket/../x", "s3:///x", "100%/lake", "__unitystorage"])
def test_a_storage_root_that_cannot_be_one_is_said(tmp_path: Path, root: str) -> None:
    root = root if root.startswith("s3:") else str(tmp_path / root)
    output = _refused_start(tmp_path, storage_root=root)
    assert not Path(root).exists()
    assert "Location" in output
    assert "Traceback" not in output


def test_a_taken_port_is_said(server: CatalogProcess, tmp_path: Path) -> None:
    port = httpx.URL(server.url).port
    stderr = _refused_start(tmp_path, port=port)
    assert f"port {port} on 127.0.0.1 is taken" in stderr
    assert '"port"' in stderr


def test_sigterm_stops_it(tmp_path: Path) -> None:
    started = CatalogProcess.start(tmp_path, catalog="mine")
    with started.client() as client:
        assert [item["name"] for item in client.get("/catalogs").json()["catalogs"]] == ["mine"]
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(10) == 0


def test_sixteen_writers_get_gapless_versions(server: CatalogProcess, client: httpx.Client, schema: str) -> None:
    table = TableClient.create(client, schema, "t")

    def write(_: int) -> list[int]:
        won: list[int] = []
        with server.client() as own:
            mine = TableClient(own, table.path, table.table_id, table.location)
            while len(won) < 4:
                latest = mine.load()["latest-table-version"]
                answer = mine.update(add_commit(latest + 1), published(latest))
                if answer.status_code == 200:
                    won.append(latest + 1)
                else:
                    assert error_of(answer) == (409, "CommitVersionConflictException")
        return won

    with ThreadPoolExecutor(16) as pool:
        versions = sorted(version for won in pool.map(write, range(16)) for version in won)
    assert versions == list(range(1, 65))
    assert table.load()["latest-table-version"] == 64


def test_acknowledged_commits_survive_kill_9(tmp_path: Path) -> None:
    acknowledged: dict[str, dict[int, str]] = {}
    server = CatalogProcess.start(tmp_path)
    with server.client() as client:
        client.post("/schemas", json={"name": "s", "catalog_name": "ratify"}).raise_for_status()
        tables = {name: TableClient.create(client, "s", name) for name in ("a", "b", "c")}
    for _ in range(2):
        before = {name: len(acknowledged.setdefault(name, {})) for name in tables}
        threads = [
            threading.Thread(target=_commit_until_killed, args=(server, table, acknowledged[name]))
            for name, table in tables.items()
        ]
        for thread in threads:
            thread.start()
        # On a busy machine, the first commits take a while.
        for name, number in before.items():
            while len(acknowledged[name]) == number:
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.01)
        time.sleep(0.4)
        server.kill()
        for thread in threads:
            thread.join()
        server = CatalogProcess.start(tmp_path)
        with server.client() as client:
            for name, table in tables.items():
                loaded = TableClient(client, table.path, table.table_id, "").load()
                commits = {commit["version"]: commit["file-name"] for commit in loaded["commits"]}
                kept = {version: file for version, file in acknowledged[name].items() if version in commits}
                assert kept.items() <= commits.items()
                assert loaded["latest-table-version"] >= max(acknowledged[name])
                assert sorted(commits) == list(range(min(commits), loaded["latest-table-version"] + 1))
                assert kept
    assert server.stop() == 0


def _commit_until_killed(server: CatalogProcess, table: TableClient, acknowledged: dict[int, str]) -> None:
    with server.client() as client:
        own = TableClient(client, table.path, table.table_id, "")
        try:
            version = own.load()["latest-table-version"]
            while True:
                version += 1
                action = add_commit(version)
                # The last twenty stay unpublished, so that the test can compare their files after the restart.
                own.update(action, published(max(0, version - 20))).raise_for_status()
                acknowledged[version] = action["commit"]["file-name"]
        except httpx.TransportError:
            return
