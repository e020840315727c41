"""Bearer tokens: token files, the principal of a token, and the middleware that requires one."""

import logging
import os
import secrets
from collections.abc import Mapping
from math import inf
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from embedded.catalog.api_errors import NotAuthorizedError, error_body
from embedded.catalog.store import principal_store
from embedded.catalog.store.catalog_database import Store, now_ms

_log = logging.getLogger(__name__)

# Paths that need no token, among them those that issue one.
HOST_METADATA = "/.well-known/databricks-config"
DISCOVERY, TOKEN = "/oidc/.well-known/oauth-authorization-server", "/oidc/v1/token"
_PUBLIC = frozenset({"/", "/health", HOST_METADATA, DISCOVERY, TOKEN})


def read_or_create_token(path: Path) -> str:
    """The token in `path`, which is created on the first start, readable only by its owner.

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


class Identities:
    """The principal of each token: the store has the tokens' digests, and token files are read once per process.

    Results are cached in memory, so that a request does not read the disk. Code that changes a principal or a credential
    calls `forget` after the commit and before the answer, so that a revoked token is refused at once. A look-up that has
    read the old state by then adds its result to a dictionary that is no longer used.
    """

    def __init__(self, store: Store, files: Mapping[str, str]) -> None:
        """`files` maps each token from a file to its principal."""
        self._store = store
        self._files = {principal_store.digest_of(token): principal for token, principal in files.items()}
        self._known: dict[str, tuple[str, float]] = {}

    def principal_of(self, token: bytes) -> str | None:
        """The name of the principal, or None for a token that is unknown, expired or revoked."""
        digest = principal_store.digest_of(token)
        known = self._known
        found = known.get(digest) or self._look_up(digest)
        if found is None or found[1] <= now_ms():
            return None
        known[digest] = found
        return found[0]

    def forget(self) -> None:
        """Empty the cache."""
        self._known = {}

    def _look_up(self, digest: str) -> tuple[str, float] | None:
        with self._store.read() as tx:
            if digest in self._files:
                return (self._files[digest], inf) if principal_store.is_principal(tx, self._files[digest]) else None
            found = principal_store.find_credential(tx, digest, ("token", "access"))
            return (found.principal, found.expires_at) if found else None


class BearerAuth:
    """ASGI middleware: 401 unless the request has a valid token or its path is public.

    It sets `scope["state"]["principal"]`.
    """

    def __init__(self, app: ASGIApp, identities: Identities) -> None:
        self._app = app
        self._identities = identities

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PUBLIC:
            await self._app(scope, receive, send)
            return
        principal = self._principal(scope)
        if principal is not None:
            scope.setdefault("state", {})["principal"] = principal
            await self._app(scope, receive, send)
            return
        error = NotAuthorizedError(
            "The bearer token is missing, wrong, expired or revoked; send 'Authorization: Bearer <token>'."
        )
        body = error_body(error, scope["path"])
        response = JSONResponse(body, error.status, headers={"WWW-Authenticate": "Bearer"})
        await response(scope, receive, send)

    def _principal(self, scope: Scope) -> str | None:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return None
        scheme, _, credentials = values[0].partition(b" ")
        return self._identities.principal_of(credentials.strip()) if scheme.lower() == b"bearer" else None
