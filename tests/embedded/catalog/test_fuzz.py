"""Rubbish for every route: bodies, names and parameters that no client sends. The server refuses; it never fails."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratify_lakehouse.embedded.catalog.catalog_app import ROUTES
from tests.embedded.catalog.harness import COLUMNS, CatalogProcess, TableClient, add_commit, create_body, published, stage

pytestmark = pytest.mark.server

NAMES = [
    "ratify", "s", "t", "", " ", ".", "..", "...", "%", "%2e%2e", "a.b", "a/b", "..%2f..%2fetc", "a\\b", "\x00", "t\x00",
    "\n", "'", '"', "`", "--", ";", "'; DROP TABLE tables; --", '" OR 1=1', "a" * 255, "a" * 256, "ü" * 255, "t\u0430ble",
    "\uff54", "RATIFY", "S", "T", "straße", "STRASSE", "\u202e", "\U0001f4a9", "None", "null", "0", "-1", "{table}", "$(id)",
    "file:///etc/passwd",
]  # fmt: skip
NUMBERS = [0, -1, 1, 1.5, 10**30, -(10**30), 2**63, 2**63 - 1, -(2**63)]
LEAVES = st.sampled_from([*NAMES, *NUMBERS, None, True, False, [], {}, [[]], [None], {"": ""}, "x" * 100_000]) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def templates(table: TableClient, staged: dict[str, Any]) -> dict[tuple[str, str], list[Any]]:
    """Bodies that are right, or nearly, for each route that reads one; what is sent is a damaged copy."""
    uuid = {"type": "assert-table-uuid", "uuid": table.table_id}
    actions: list[dict[str, Any]] = [
        add_commit(1),
        published(0),
        {"action": "set-properties", "updates": {"k": "v"}},
        {"action": "remove-properties", "removals": ["k"]},
        {"action": "set-columns", "columns": COLUMNS},
        {"action": "set-table-comment", "comment": "c"},
        {"action": "set-protocol", "protocol": staged["required-protocol"]},
        {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
        {"action": "set-partition-columns", "partition-columns": ["id"]},
    ]
    column = {"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0}
    names = {"name": "n", "catalog_name": "ratify", "schema_name": "s"}
    external = names | {"table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [column]}
    report = {"commit-report": {"num-files-added": 1, "num-bytes-added": 1}}
    created = {
        "/catalogs": [{"name": "n", "comment": "c", "properties": {"k": "v"}, "storage_root": "file:///tmp/x"}],
        "/catalogs/{name}": [{"new_name": "n", "comment": "c"}],
        "/schemas": [{"name": "n", "catalog_name": "ratify", "storage_root": "file:///tmp/x"}],
        "/schemas/{full_name}": [{"new_name": "n", "properties": {"k": "v"}}],
        "/tables": [external | {"storage_location": "file:///tmp/x/y"}],
        "/staging-tables": [names],
        "/temporary-table-credentials": [{"table_id": table.table_id, "operation": "READ"}],
        "/temporary-path-credentials": [{"url": "file:///tmp/x/z", "operation": "PATH_READ"}],
    }
    delta = {
        "": [{"requirements": [uuid, {"type": "assert-etag", "etag": "e"}], "updates": [action]} for action in actions],
        "/rename": [{"new-name": "n"}],
        "/metrics": [{"table-id": table.table_id, "report": report}],
    }
    base = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
    created |= {f"{base}/tables/{{table}}{path}": bodies for path, bodies in delta.items()}
    created |= {f"{base}/tables": [create_body("n", staged)], f"{base}/staging-tables": [{"name": "n"}]}
    return {(method, path): created.get(path, [{}]) for method, path, *_ in ROUTES if method in ("POST", "PATCH")}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def damaged(draw: st.DrawFn, body: Any) -> Any:
    """A copy of a body in which one place holds something else, or nothing."""
    body = copy.deepcopy(body)
    place = draw(st.sampled_from(list(places(body))))
    if not place:
        return draw(VALUES)
    holder = body
    for key in place[:-1]:
        holder = holder[key]
    if isinstance(holder, dict) and draw(st.booleans()):
        del holder[place[-1]]
    else:
        holder[place[-1]] = draw(VALUES)
    return body


class Target:
    """A server of its own, for rubbish may drop what it finds there."""

    def __init__(self, server: CatalogProcess) -> None:
        self.server = server
        self.client = server.client()
        self.ensure()
        self.templates = templates(self.table, stage(self.client, "s", "n2"))

    def ensure(self) -> None:
        """Make again what rubbish may have dropped."""
        for path, body in (("/catalogs", {"name": "ratify"}), ("/schemas", {"name": "s", "catalog_name": "ratify"})):
            self.client.post(path, json=body)
        answer = self.client.get("/delta/v1/catalogs/ratify/schemas/s/tables/t")
        if answer.status_code == 404:
            self.table = TableClient.create(self.client, "s", "t")

    def send(self, draw: st.DrawFn) -> httpx.Response:
        method, route, *_ = draw(st.sampled_from([*ROUTES, *(entry for entry in ROUTES * 3 if entry[0] == "POST")]))
        on_target = draw(st.booleans())
        right = {"catalog": "ratify", "schema": "s", "table": "t", "name": "ratify", "full_name": "ratify.s.t"}
        if draw(st.booleans()):
            right = {key: value.upper() for key, value in right.items()}
        path = route
        for name in ("catalog", "schema", "table", "name", "full_name", "table_id"):
            if "{" + name + "}" in route:
                rubbish = st.sampled_from(NAMES) | st.text(max_size=20)
                value = right.get(name, "x") if on_target else draw(rubbish)
                path = path.replace("{" + name + "}", quote(value.encode("utf-8", "surrogatepass"), safe=""))
        keys = ["max_results", "page_token", "force", "catalog_name", "schema_name", "catalog", "protocol-versions"]
        keys += ["location", "operation"]
        query = draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(NAMES) | st.text(max_size=20), max_size=3))
        safe = {key: value.encode("utf-8", "replace").decode() for key, value in query.items()}
        content = None
        if method in ("POST", "PATCH"):
            template = draw(st.sampled_from(self.templates[method, route]))
            content = draw(st.binary(max_size=50)) if draw(st.integers(0, 9)) == 0 else self._json(damaged(draw, template))
        return self.client.request(method, path, params=safe, content=content)

    def _json(self, value: Any) -> bytes:
        return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    server = CatalogProcess.start(tmp_path_factory.mktemp("fuzz"))
    created = Target(server)
    yield created
    created.client.close()
    assert server.stop() == 0


def check(target: Target, draw: st.DrawFn) -> None:
    answer = target.send(draw)
    request = answer.request
    message = f"{request.method} {request.url}: {answer.status_code} {answer.text[:300]}"
    assert answer.status_code < 500 or answer.status_code == 501, message
    assert "Traceback" not in answer.text, message
    if answer.status_code >= 400 and request.method != "HEAD":
        body = answer.json()
        assert "error" in body or {"error_code", "message"} <= set(body), message
    if request.method == "DELETE" and answer.is_success:
        target.ensure()


FUZZ: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=600, **FUZZ)
@given(data=st.data())
def test_rubbish_is_refused(target: Target, data: st.DataObject) -> None:
    check(target, data.draw)


@pytest.mark.long
@settings(max_examples=30_000, **FUZZ)
@given(data=st.data())
def test_much_rubbish_is_refused(target: Target, data: st.DataObject) -> None:
    check(target, data.draw)
