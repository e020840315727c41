"""What operators see: request ids, the access log, Prometheus' metrics, the graceful stop."""

import asyncio
import json
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratify_lakehouse.embedded.catalog.catalog_app import create_app
from ratify_lakehouse.embedded.catalog.server_metrics import Observed
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from tests.embedded.catalog.harness import API, CatalogProcess, TableClient, add_commit, delta, published

pytestmark = pytest.mark.server


def _figures(server: CatalogProcess) -> dict[tuple[str, ...], float]:
    answer = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"})
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("ratify_catalog_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def _log(home: Path, last: str) -> dict[str, dict[str, object]]:
    """The lines by id, once the `last` is among them: an answer is sent before its line is written."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in (home / "state" / "access.log").read_text().splitlines()]
        if lines[-1]["id"] == last:
            break
    return {line["id"]: line for line in lines}


def test_each_request_has_an_id_and_a_log_line(server: CatalogProcess, client: httpx.Client, server_home: Path) -> None:
    created = client.get("/catalogs?page_token=").headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", created)
    path = f"{delta('nope')}/tables/é%0a"
    sent = client.get(path, headers={"X-Request-Id": "job-7:2"})
    assert sent.headers["x-request-id"] == "job-7:2"
    for insane in ("a b", "x" * 129, '"}{"', "ü".encode()):
        assert re.fullmatch("[0-9a-f]{16}", client.get(path, headers={"X-Request-Id": insane}).headers["x-request-id"])
    refused = httpx.get(f"{server.url}{API}/catalogs", headers={"Authorization": "Bearer wrong-secret"})
    lines = _log(server_home, refused.headers["x-request-id"])
    first, second, third = (lines[key] for key in (created, "job-7:2", refused.headers["x-request-id"]))
    assert (first["principal"], first["method"], first["path"], first["status"]) == ("admin", "GET", f"{API}/catalogs", 200)
    assert (second["path"], second["status"]) == (f"{API}{delta('nope')}/tables/é\n", 404)
    assert (third["principal"], third["status"]) == (None, 401)
    assert first.keys() == {"time", "id", "principal", "method", "path", "status", "ms"}
    text = (server_home / "state" / "access.log").read_text()
    assert server.token not in text
    assert "wrong-secret" not in text


def test_a_bug_has_an_id_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path / "catalog.sqlite", "file:///lake")
    with store.write() as tx:
        tx.exec_driver_sql("DROP TABLE catalogs")
    app = create_app(store, "t")

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(Observed(app, app.state.metrics), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(f"{API}/catalogs", headers={"Authorization": "Bearer t", "X-Request-Id": "r1"})

    answer = asyncio.run(get())
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "r1")
    assert "(request r1)" in caplog.text
    assert app.state.metrics.registry.get_sample_value(
        "ratify_catalog_requests_total", {"method": "GET", "route": f"{API}/catalogs", "status": "500"}
    )


def test_figures_for_prometheus(server: CatalogProcess, client: httpx.Client, schema: str) -> None:
    table = TableClient.create(client, schema, "t")
    before = _figures(server)
    first = add_commit(1)
    for action in (first, first, add_commit(1), add_commit(2)):
        table.update(action)
    table.update(published(2), add_commit(3))
    client.request("BREW", f"{table.path}/{'x' * 50}")
    after = _figures(server)
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    route = API + "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    assert [grown["commits_total", outcome] for outcome in ("ratified", "replayed", "conflicted")] == [3, 1, 1]
    assert grown["requests_total", "POST", route, "200"] == 4
    assert grown["requests_total", "POST", route, "409"] == 1
    assert grown["request_seconds_count", "POST", route] == 5
    assert after["unpublished_commits", "ratify", schema, "t"] == 1
    assert grown["requests_total", "OTHER", "none", "404"] == 1
    table.update(published(3)).raise_for_status()
    assert ("unpublished_commits", "ratify", schema, "t") not in _figures(server)


def test_figures_are_the_admin_s(server: CatalogProcess) -> None:
    assert httpx.get(f"{server.url}/metrics").status_code == 401


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_stop_lets_requests_end(tmp_path: Path) -> None:
    server = CatalogProcess.start(tmp_path)
    body = json.dumps({"name": "late", "catalog_name": "ratify"}).encode()
    head = f"POST {API}/schemas HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {server.token}\r\n\r\n"
    port = httpx.URL(server.url).port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(head.encode() + body[:5])
        # Until it has begun with this request, the stop closes the connection as an idle one.
        with server.client() as client:
            client.get("/catalogs").raise_for_status()
        server.process.send_signal(signal.SIGTERM)
        while _listens(port):
            pass
        connection.sendall(body[5:])
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert server.process.wait(10) == 0
