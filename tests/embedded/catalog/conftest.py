"""One server for the tests of this folder; each test works in a schema of its own."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.embedded.catalog.harness import Server, TableClient


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalog")


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[Server]:
    started = Server.start(home)
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as connected:
        yield connected


@pytest.fixture
def schema(client: httpx.Client) -> str:
    name = f"s_{uuid.uuid4().hex[:8]}"
    client.post("/schemas", json={"name": name, "catalog_name": "ratify"}).raise_for_status()
    return name


@pytest.fixture
def table(client: httpx.Client, schema: str) -> TableClient:
    return TableClient.create(client, schema, "t")
