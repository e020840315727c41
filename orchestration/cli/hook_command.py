"""`ratify hook`: notifications over HTTP, into the folder that the sensor takes them from."""

import contextlib
import logging
import secrets
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from embedded.child_process import LOCALHOST, free_port
from embedded.private_files import write_private
from ingest.discovery.notifications import MAX_BYTES, BadMessage, FolderQueue, created
from orchestration.cli import cli_session
from resources.errors import NotConfigured
from resources.settings import Settings

_log = logging.getLogger(__name__)


def hook(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free.")] = 8787,
) -> None:
    """Take notifications of S3 over HTTP on 127.0.0.1, until Ctrl-C. docs/discovery.md has the shapes."""
    settings = Settings()
    if "://" in settings.queue:
        raise NotConfigured(f"DISCOVERY_QUEUE is {settings.queue}: the hook needs a folder there, to write messages to.")
    port = free_port(port, "notification hook")
    secret_file = settings.home / "secrets" / "hook.token"
    app = hook_app(FolderQueue(Path(settings.queue)), _secret(secret_file))
    cli_session.out.print(
        f"POST notifications to http://{LOCALHOST}:{port}/ with the bearer token in {secret_file}; they go to "
        f"{settings.queue}.",
        highlight=False,
        soft_wrap=True,
    )
    server = uvicorn.Server(uvicorn.Config(app, LOCALHOST, port, log_level="warning", access_log=False, lifespan="off"))
    # Ctrl-C is how it ends.
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def _secret(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    if secret := path.read_text().strip():
        return secret
    raise NotConfigured(
        f"The file {path} is empty, which would let anyone in: delete it, and the next start makes a new one."
    )


def hook_app(queue: FolderQueue, secret: str) -> Starlette:
    """Return the application: POST / answers 202 when the message is on the disk.

    401 without the secret, 413 for more than `MAX_BYTES`, 400 for what is no notification, which is not kept; 503 where the
    message cannot be written.
    """

    async def receive(request: Request) -> JSONResponse:
        given = request.headers.get("Authorization", "").encode()
        if not secrets.compare_digest(given, f"Bearer {secret}".encode()):
            return _said(401, "send the token of the hook: Authorization: Bearer …")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                return _said(413, f"a message has at most {MAX_BYTES} bytes")
        try:
            text = body.decode()
            created(text)
            name = await run_in_threadpool(queue.put, text)
        except (UnicodeDecodeError, BadMessage) as error:
            return _said(400, str(error))
        except OSError:
            _log.exception("the message cannot be kept")
            return _said(503, "the message cannot be kept at the moment: send it again later")
        return JSONResponse({"message": name}, 202)

    return Starlette(routes=[Route("/", receive, methods=["POST"])])


def _said(status: int, error: str) -> JSONResponse:
    return JSONResponse({"error": error}, status)
