"""The catalog server as a process: its socket, its one line of JSON when ready, and its end."""

import asyncio
import errno
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import uvicorn

from ratify_lakehouse.embedded.catalog.access_rules import ADMIN, grantable
from ratify_lakehouse.embedded.catalog.api_errors import NoSuchCatalogError
from ratify_lakehouse.embedded.catalog.api_models import CreateCatalog
from ratify_lakehouse.embedded.catalog.bearer_auth import read_or_create_token
from ratify_lakehouse.embedded.catalog.catalog_app import create_app
from ratify_lakehouse.embedded.catalog.object_names import storage_root
from ratify_lakehouse.embedded.catalog.routes.purge import purge_dropped
from ratify_lakehouse.embedded.catalog.server_metrics import Observed, log_access_to
from ratify_lakehouse.embedded.catalog.server_settings import ServerSettings
from ratify_lakehouse.embedded.catalog.store import grant_store, namespace_store, principal_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from ratify_lakehouse.embedded.child_process import call_at_end_of_input

HOST = "127.0.0.1"
_PURGE_S = 3600
_log = logging.getLogger(__name__)


class PortTakenError(Exception):
    """Another process listens on the port."""


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM, SIGINT or, if asked, the end of stdin.

    Raises PortTakenError, InvalidParameterError for a storage root that cannot be one, and ValueError or OSError for a
    port, state directory or token file that cannot be used.
    """
    listener = _listen(settings.port)
    token = read_or_create_token(settings.token_file)
    engine_tokens = {
        read_or_create_token(settings.token_file.with_name(f"{name}.token")): name for name in settings.principals
    }
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    log_access_to(settings.state_dir / "access.log")
    store = Store(
        settings.state_dir / "catalog.sqlite",
        _root_url(settings.storage_root),
        access_token_seconds=settings.access_token_seconds,
        s3=settings.s3,
        maintenance=settings.maintenance,
        dropped_table_seconds=settings.dropped_table_seconds,
    )
    try:
        _prepare(store, settings)
        server = uvicorn.Server(_config(store, token, engine_tokens))
        _end_on_signals(server)
        if settings.exit_with_stdin:
            call_at_end_of_input(lambda: setattr(server, "should_exit", True))
        asyncio.run(_run(server, listener, settings, store))
    finally:
        store.close()


def _listen(port: int) -> socket.socket:
    # The protocol is named because asyncio turns Nagle's algorithm off only then: it costs 40 ms a request otherwise.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Without it a restart would wait for the connections of the last run to leave TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTakenError(
            f'port {port} on {HOST} is taken ({error.strerror}); choose another "port" in the settings, or 0 for a free one'
        ) from error
    return listener


def _root_url(root: str) -> str:
    if root.startswith("s3:"):
        return storage_root(root)
    path = Path(root).resolve()
    url = storage_root(path.as_uri())
    path.mkdir(parents=True, exist_ok=True)
    return url


def _prepare(store: Store, settings: ServerSettings) -> None:
    purge_dropped(store)
    with store.write() as tx:
        try:
            catalog = namespace_store.get_catalog(tx, settings.catalog)
        except NoSuchCatalogError:
            catalog = namespace_store.create_catalog(tx, CreateCatalog(name=settings.catalog), store.default_root, ADMIN)
        for name, privileges in settings.initial_grants().items():
            # Given once: what the admin has changed since, or deleted, stays so.
            if principal_store.create_initial(tx, name):
                for kind, securable_id in (("metastore", grant_store.METASTORE), ("catalog", catalog.id)):
                    possible = grantable(kind).values()
                    grant_store.grant(tx, securable_id, name, [one for one in privileges if one in possible])


def _config(store: Store, token: str, engine_tokens: Mapping[str, str]) -> uvicorn.Config:
    # Java's HttpClient offers an upgrade to h2c with its first request. httptools then drops that request's body, and
    # h11 does not; uvicorn goes on in HTTP/1.1, as it may, with a warning each time, which log_level silences.
    app = create_app(store, token, engine_tokens)
    return uvicorn.Config(
        Observed(app, app.state.metrics),
        http="h11",
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        # A connection that is closed while a client sends its next commit on it leaves that client without an answer.
        timeout_keep_alive=300,
        timeout_graceful_shutdown=5,
    )


def _end_on_signals(server: uvicorn.Server) -> None:
    """End with exit code 0: uvicorn raises the signal again after its own stop, which would kill us before ours."""

    def stop(_: int, __: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


async def _run(server: uvicorn.Server, listener: socket.socket, settings: ServerSettings, store: Store) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if server.started:
        ready = {
            "url": f"http://{HOST}:{listener.getsockname()[1]}",
            "catalog": settings.catalog,
            "token_file": str(settings.token_file),
            "pid": os.getpid(),
        }
        print(json.dumps(ready), flush=True)
    purging = asyncio.create_task(_purge_for_ever(store))
    await serving
    purging.cancel()


async def _purge_for_ever(store: Store) -> None:
    """Tables whose time has come lose their files also where nobody drops another one."""
    while True:
        await asyncio.sleep(_PURGE_S)
        try:
            await asyncio.to_thread(purge_dropped, store)
        except Exception:  # noqa: BLE001 - the next attempt is an hour away, and requests go on
            _log.exception("the files of dropped tables are deleted an hour later")
