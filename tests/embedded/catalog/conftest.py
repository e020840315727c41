"""One server for the tests of this folder; each test works in a schema of its own.

No fixture here may have the name of one that `stack` is made of: it would be the stack's from then on, for all tests.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.embedded.catalog.harness import CatalogProcess, TableClient


@pytest.fixture(scope="session")
def server_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalog")


@pytest.fixture(scope="session")
def server(server_home: Path) -> Iterator[CatalogProcess]:
    started = CatalogProcess.start(server_home)
    yield started
    assert started.stop() == 0


# For a module and not the session, so that a module may have a server of its own.
@pytest.fixture(scope="module")
def client(server: CatalogProcess) -> Iterator[httpx.Client]:
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
