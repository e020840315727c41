"""A catalog server in a thread of the test's process: it starts in a twentieth of a second, and cannot be killed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from ratify_lakehouse.embedded.catalog import catalog_server
from ratify_lakehouse.embedded.catalog.bearer_auth import read_or_create_token
from ratify_lakehouse.embedded.catalog.server_settings import ServerSettings
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from tests.embedded.catalog.harness import CatalogAddress, write_settings


@contextmanager
def catalog_here(home: Path, **changes: Any) -> Iterator[CatalogAddress]:
    """Run a server with these settings for a block: it listens to real clients, as `CatalogProcess` does."""
    settings = ServerSettings.model_validate_json(Path(write_settings(home, **changes)).read_text())
    token = read_or_create_token(settings.token_file)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    database, root = settings.state_dir / "catalog.sqlite", catalog_server._root_url(settings.storage_root)
    store = Store(
        database,
        root,
        access_token_seconds=settings.access_token_seconds,
        maintenance=settings.maintenance,
        dropped_table_seconds=settings.dropped_table_seconds,
    )
    with closing(store):
        catalog_server._prepare(store, settings)
        server = uvicorn.Server(catalog_server._config(store, token, {}))
        with closing(catalog_server._listen(settings.port)) as listener, ThreadPoolExecutor(1) as pool:
            serving = pool.submit(server.run, sockets=[listener])
            try:
                # The socket listens already: a request waits for the server.
                yield CatalogAddress(f"http://{catalog_server.HOST}:{listener.getsockname()[1]}", token)
            finally:
                server.should_exit = True
                serving.result()
