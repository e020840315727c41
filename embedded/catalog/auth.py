"""The bearer token: its file, and the middleware that asks for it."""

import hmac
import logging
import os
import secrets
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from embedded.catalog.errors import NotAuthorizedError, error_body

_log = logging.getLogger(__name__)

# databricks-sdk probes the last one before it has a token; its answer is 404 for everyone.
_PUBLIC = frozenset({"/", "/health", "/.well-known/databricks-config"})


def read_or_create_token(path: Path) -> str:
    """The token in `path`, which is created on the first start, readable by its owner alone.

    Raises ValueError when the file is empty: an empty token would admit everyone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"the token file {path} is empty; delete it, and the next start makes a new one") from None
        if path.stat().st_mode & 0o077:
            _log.warning("the token file %s can be read by others; run chmod 600 on it", path)
        return token
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    return token


class BearerAuth:
    """ASGI middleware: 401 unless the request carries the token, whatever the path but the public ones."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PUBLIC or self._admits(scope):
            await self._app(scope, receive, send)
            return
        error = NotAuthorizedError("The bearer token is missing or wrong; send 'Authorization: Bearer <token>'.")
        body = error_body(error, scope["path"])
        response = JSONResponse(body, error.status, headers={"WWW-Authenticate": "Bearer"})
        await response(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return False
        scheme, _, credentials = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(credentials.strip(), self._expected)
