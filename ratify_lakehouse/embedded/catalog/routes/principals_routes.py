"""Service principals, their tokens and their OAuth secrets, in the terms of the Databricks APIs that databricks-sdk speaks.

SCIM (`service_principals`), `token_management` and `service_principal_secrets_proxy`: create, list and delete, by the
admin only. A token or secret is in the answer to its creation, and is never shown again. `current_user.me()` is open to all.
"""

from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.api_models import CreatePrincipal, CreateSecret, CreateToken
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.store import principal_store
from ratify_lakehouse.embedded.catalog.store.principal_store import Credential, Principal


def get_me(call: Call) -> Response:
    """Who the caller is, as databricks-sdk's `current_user.me()` asks."""
    schemas = ["urn:ietf:params:scim:schemas:core:2.0:User"]
    return JSONResponse({"schemas": schemas, "userName": call.principal, "displayName": call.principal, "active": True})


def create_principal(call: Call) -> Response:
    request = call.parse(CreatePrincipal)
    with call.write() as tx:
        created = principal_store.create_principal(tx, request.display_name)
    return JSONResponse(_principal(created), 201)


def list_principals(call: Call) -> Response:
    """All principals on the first page: databricks-sdk requests pages until one is empty."""
    with call.read() as tx:
        found = principal_store.list_principals(tx) if call.query.get("startIndex", "1") == "1" else []
    return JSONResponse({"totalResults": len(found), "startIndex": 1, "Resources": [_principal(item) for item in found]})


def delete_principal(call: Call) -> Response:
    with call.write() as tx:
        principal_store.delete_principal(tx, principal_store.get_principal(tx, call.path["client_id"]))
    call.identities.forget()
    return Response(status_code=204)


def create_token(call: Call) -> Response:
    request = call.parse(CreateToken)
    with call.write() as tx:
        owner = principal_store.get_principal(tx, request.application_id).name
        created, value = principal_store.issue(tx, owner, "token", request.lifetime_seconds, comment=request.comment)
    return JSONResponse({"token_value": value, "token_info": _token(created)})


def list_tokens(call: Call) -> Response:
    with call.read() as tx:
        found = principal_store.list_credentials(tx, "token")
    return JSONResponse({"token_infos": [_token(item) for item in found]})


def delete_token(call: Call) -> Response:
    with call.write() as tx:
        principal_store.revoke_credential(tx, "token", call.path["id"])
    call.identities.forget()
    return JSONResponse({})


def create_secret(call: Call) -> Response:
    request = call.parse(CreateSecret)
    with call.write() as tx:
        owner = principal_store.get_principal(tx, call.path["client_id"]).name
        created, value = principal_store.issue(tx, owner, "secret", int(request.lifetime.removesuffix("s")))
    return JSONResponse({**_secret(created), "secret": value})


def list_secrets(call: Call) -> Response:
    with call.read() as tx:
        owner = principal_store.get_principal(tx, call.path["client_id"]).name
        found = principal_store.list_credentials(tx, "secret", owner)
    return JSONResponse({"secrets": [_secret(item) for item in found]})


def delete_secret(call: Call) -> Response:
    with call.write() as tx:
        owner = principal_store.get_principal(tx, call.path["client_id"]).name
        principal_store.revoke_credential(tx, "secret", call.path["id"], owner)
    call.identities.forget()
    return JSONResponse({})


def _principal(principal: Principal) -> dict[str, Any]:
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServicePrincipal"],
        "id": principal.client_id,
        "applicationId": principal.client_id,
        "displayName": principal.name,
        "active": True,
    }


def _token(token: Credential) -> dict[str, Any]:
    return {
        "token_id": token.id,
        "created_by_username": token.principal,
        "comment": token.comment,
        "creation_time": token.created_at,
        "expiry_time": token.expires_at,
    }


def _secret(secret: Credential) -> dict[str, Any]:
    return {
        "id": secret.id,
        "status": "ACTIVE",
        "create_time": _rfc3339(secret.created_at),
        "expire_time": _rfc3339(secret.expires_at),
    }


def _rfc3339(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
