"""OAuth 2.0 client credentials (RFC 6749, section 4.4), as databricks-sdk and the Java client of Unity Catalog speak it.

A principal's client id and one of its secrets, by HTTP basic authentication, are exchanged for an access token.
"""

import base64
import binascii
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.bearer_auth import TOKEN
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.store import principal_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import now_ms

SCOPE = "all-apis"


def host_metadata(call: Call) -> Response:
    """Leads databricks-sdk to `discovery`. It is its first request; without an answer it does not use OAuth."""
    return JSONResponse({"oidc_endpoint": f"{call.origin}/oidc"})


def discovery(call: Call) -> Response:
    """Authorization server metadata (RFC 8414); databricks-sdk requires both endpoints, and uses only the token's."""
    return JSONResponse(
        {
            "issuer": f"{call.origin}/oidc",
            "authorization_endpoint": f"{call.origin}/oidc/v1/authorize",
            "token_endpoint": f"{call.origin}{TOKEN}",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "grant_types_supported": ["client_credentials"],
            "response_types_supported": [],
            "scopes_supported": [SCOPE],
        }
    )


def token(call: Call) -> Response:
    form = parse_qs(call.body.decode("ascii", errors="replace"))
    if form.get("grant_type") != ["client_credentials"]:
        return _refuse(400, "unsupported_grant_type", "grant_type must be client_credentials.")
    if SCOPE not in form.get("scope", [SCOPE])[0].split():
        return _refuse(400, "invalid_scope", f"The only scope is {SCOPE}.")
    client_id, secret = _basic(call.headers.get("authorization", ""))
    seconds = call.store.access_token_seconds
    with call.store.write() as tx:
        found = principal_store.find_credential(tx, principal_store.digest_of(secret), ("secret",))
        if (
            found is None
            or found.expires_at <= now_ms()
            or principal_store.get_principal(tx, found.principal).client_id != client_id
        ):
            return _refuse(401, "invalid_client", "The client id or secret is wrong, expired or revoked.")
        # Not longer than the secret itself is valid.
        seconds = min(seconds, max(1, (found.expires_at - now_ms()) // 1000))
        _, value = principal_store.issue(tx, found.principal, "access", seconds, secret_id=found.id)
    answer = {"access_token": value, "token_type": "Bearer", "expires_in": seconds, "scope": SCOPE}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _basic(header: str) -> tuple[str, str]:
    """User and password of an Authorization header; empty strings, which match nobody, for any other form."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password


def _refuse(status: int, error: str, description: str) -> Response:
    headers = {"Cache-Control": "no-store"} | ({"WWW-Authenticate": "Basic"} if status == 401 else {})
    return JSONResponse({"error": error, "error_description": description}, status, headers=headers)
