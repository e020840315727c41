"""Bearer tokens: token files, the principal of a token, and the middleware that requires one."""

import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ratify_lakehouse.embedded.catalog.api_errors import NotAuthorizedError, error_body
from ratify_lakehouse.embedded.catalog.store import principal_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store, now_ms

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


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal: its name, and the id that no other principal of that name has, before or after it."""

    name: str
    client_id: str


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
        self._known: dict[str, tuple[Identity, float]] = {}

    def principal_of(self, token: bytes) -> Identity | None:
        """The principal, or None for a token that is unknown, expired or revoked."""
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

    def _look_up(self, digest: str) -> tuple[Identity, float] | None:
        with self._store.read() as tx:
            if digest in self._files:
                name, end = self._files[digest], inf
            elif found := principal_store.find_credential(tx, digest, ("token", "access")):
                name, end = found.principal, found.expires_at
            else:
                return None
            client_id = principal_store.client_id_of(tx, name)
            return (Identity(name, client_id), end) if client_id is not None else None


class BearerAuth:
    """ASGI middleware: 401 unless the request has a valid token or its path is public.

    It sets `scope["state"]["principal"]`, the name, and `scope["state"]["client_id"]`.
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
            scope.setdefault("state", {}).update(principal=principal.name, client_id=principal.client_id)
            await self._app(scope, receive, send)
            return
        error = NotAuthorizedError()
        body = error_body(error, scope["path"])
        response = JSONResponse(body, error.status, headers=error.headers)
        await response(scope, receive, send)

    def _principal(self, scope: Scope) -> Identity | None:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return None
        scheme, _, credentials = values[0].partition(b" ")
        return self._identities.principal_of(credentials.strip()) if scheme.lower() == b"bearer" else None
