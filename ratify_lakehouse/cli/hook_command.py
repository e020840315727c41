"""`ratify hook`: notifications of new files over HTTP."""

import contextlib
import secrets
from pathlib import Path
from typing import Annotated

import typer

from ratify_lakehouse.cli.terminal_output import out


def hook(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")] = 8787,
) -> None:
    """Receive S3 notifications over HTTP on 127.0.0.1, until Ctrl-C. docs/discovery.md has their format."""
    import uvicorn

    from ratify_lakehouse.cli.notification_hook import hook_app
    from ratify_lakehouse.embedded.child_process import LOCALHOST, free_port
    from ratify_lakehouse.errors import NotConfigured
    from ratify_lakehouse.ingest.discovery.notifications import FolderQueue
    from ratify_lakehouse.settings import Settings

    settings = Settings()
    if "://" in settings.queue:
        raise NotConfigured(f"DISCOVERY_QUEUE is {settings.queue}: the hook needs a folder there, to write messages to.")
    port = free_port(port, "notification hook")
    token_file = settings.home / "secrets" / "hook.token"
    app = hook_app(FolderQueue(Path(settings.queue)), _token(token_file))
    out.print(
        f"POST notifications to http://{LOCALHOST}:{port}/ with the bearer token in {token_file}; they go to "
        f"{settings.queue}.",
        highlight=False,
        soft_wrap=True,
    )
    server = uvicorn.Server(uvicorn.Config(app, LOCALHOST, port, log_level="warning", access_log=False, lifespan="off"))
    # Ctrl-C is how it ends.
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def _token(path: Path) -> str:
    from ratify_lakehouse.embedded.private_files import write_private
    from ratify_lakehouse.errors import NotConfigured

    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    if token := path.read_text().strip():
        return token
    raise NotConfigured(
        f"The file {path} is empty, which would let anyone in: delete it, and the next start writes a new token."
    )
