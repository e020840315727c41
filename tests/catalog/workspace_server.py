"""A local HTTP server that speaks the endpoints of a Databricks workspace that we use, in the shape of its API reference.

It gives and checks OAuth tokens. The outcome of a statement is set beforehand, or an engine of the test runs it.
"""

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

CLIENT_ID = "11111111-2222-3333-4444-555555555555"
CLIENT_SECRET = "dose0123456789abcdef"
ADMIN_TOKEN = "dapi0123456789abcdef"
WAREHOUSE = "1234567890abcdef"
MOST_PARAMETERS = 256
SUCCEEDED = {
    "status": {"state": "SUCCEEDED"},
    "manifest": {
        "format": "JSON_ARRAY",
        "schema": {
            "column_count": 1,
            "columns": [{"name": "num_affected_rows", "position": 0, "type_name": "LONG", "type_text": "BIGINT"}],
        },
        "total_chunk_count": 1,
        "total_row_count": 1,
        "truncated": False,
        "chunks": [{"chunk_index": 0, "row_offset": 0, "row_count": 1}],
    },
    "result": {"chunk_index": 0, "row_offset": 0, "row_count": 1, "data_array": [["5"]]},
}


def failed(message: str, code: str = "BAD_REQUEST", sql_state: str | None = None) -> dict[str, Any]:
    """The answer for a statement that failed."""
    state = {"sql_state": sql_state} if sql_state else {}
    return {"status": {"state": "FAILED", "error": {"error_code": code, "message": message}, **state}}


def state(name: str) -> dict[str, Any]:
    """The answer for a statement that is in a state that needs no more words."""
    return {"status": {"state": name}}


Engine = Callable[[str, dict[str, str | None]], dict[str, Any]]


@dataclass
class FakeWorkspace:
    """What it answers, and what it was asked.

    Attributes:
        life: Seconds for which it takes an access token.
        expires_in: What it says of that.
        catalogs: Those that there are.
        engine: Runs a statement with its parameters, and returns the answer; none: each succeeds.
        parameters: Those of the statements.
        courses: The answers that statements get, those with such words in them one after the other, the last for ever.
        statements: What was begun, oldest first; `cancelled` has the places in it of those that were cancelled.
        reply_delay: Seconds between the beginning of a statement and the reply, which has its id.
        followed: Places in it of those whose status was requested, so that the client knows their ids.
        callers: Who began them.
        tokens: Access tokens given out, with the time (monotonic) of each.
    """

    url: str = ""
    life: float = 3600
    expires_in: int = 3600
    catalogs: list[str] = field(default_factory=lambda: ["main", "samples"])
    engine: Engine | None = None
    parameters: list[dict[str, str | None]] = field(default_factory=list[dict[str, str | None]])
    courses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    reply_delay: float = 0
    followed: set[int] = field(default_factory=set[int])
    callers: list[str] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    tokens: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    _asked: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)

    def host_metadata(self, _request: Request) -> JSONResponse:
        return JSONResponse({"oidc_endpoint": f"{self.url}/oidc", "workspace_id": "1234567890123456", "cloud": "AWS"})

    def authorization_server(self, _request: Request) -> JSONResponse:
        oidc = f"{self.url}/oidc"
        return JSONResponse(
            {
                "issuer": oidc,
                "authorization_endpoint": f"{oidc}/v1/authorize",
                "token_endpoint": f"{oidc}/v1/token",
                "grant_types_supported": ["client_credentials", "authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
                "scopes_supported": ["all-apis", "sql", "offline_access"],
            }
        )

    async def token(self, request: Request) -> JSONResponse:
        form = parse_qs((await request.body()).decode())
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {expected}":
            refusal = {"error": "invalid_client", "error_description": "Client authentication failed"}
            return JSONResponse(refusal, 401)
        assert (form["grant_type"], form["scope"]) == (["client_credentials"], ["all-apis"])
        value = uuid4().hex
        self.tokens[value] = time.monotonic()
        return JSONResponse(
            {"access_token": value, "scope": "all-apis", "token_type": "Bearer", "expires_in": self.expires_in}
        )

    def list_catalogs(self, request: Request) -> JSONResponse:
        self._caller(request)
        shown = [{"name": name, "catalog_type": "MANAGED_CATALOG", "full_name": name} for name in self.catalogs]
        return JSONResponse({"catalogs": shown})

    def me(self, request: Request) -> JSONResponse:
        schemas = ["urn:ietf:params:scim:schemas:core:2.0:User"]
        return JSONResponse({"schemas": schemas, "id": "42", "userName": self._caller(request), "active": True})

    async def begin(self, request: Request) -> JSONResponse:
        caller, body = self._caller(request), await request.json()
        if body["warehouse_id"] != WAREHOUSE:
            refusal = {"error_code": "NOT_FOUND", "message": f"SQL warehouse {body['warehouse_id']} does not exist."}
            return JSONResponse(refusal, 404)
        assert body["wait_timeout"] == "0s"
        statement, id_ = body["statement"], str(uuid4())
        parameters = {each["name"]: each.get("value") for each in body.get("parameters", [])}
        assert len(parameters) <= MOST_PARAMETERS
        options = next((answers for words, answers in self.courses.items() if words in statement), None)
        if options is None:
            options = [await asyncio.to_thread(self.engine, statement, parameters)] if self.engine else [SUCCEEDED]
        self._asked[id_] = len(self.statements), list(options)
        self.statements.append(statement)
        self.parameters.append(parameters)
        self.callers.append(caller)
        await asyncio.sleep(self.reply_delay)
        return JSONResponse({"statement_id": id_, **state("PENDING")})

    def follow(self, request: Request) -> JSONResponse:
        self._caller(request)
        id_ = request.path_params["id"]
        place, options = self._asked[id_]
        self.followed.add(place)
        return JSONResponse({"statement_id": id_, **(options.pop(0) if len(options) > 1 else options[0])})

    def chunk(self, request: Request) -> JSONResponse:
        self._caller(request)
        _, options = self._asked[request.path_params["id"]]
        return JSONResponse(options[-1]["chunks"][request.path_params["number"]])

    def cancel(self, request: Request) -> JSONResponse:
        self._caller(request)
        self.cancelled.append(self._asked[request.path_params["id"]][0])
        return JSONResponse({})

    def _caller(self, request: Request) -> str:
        """Who asks.

        Raises:
            Refused: nobody whom it knows.
        """
        value = request.headers.get("authorization", "").removeprefix("Bearer ")
        if value == ADMIN_TOKEN:
            return "admin@example.com"
        if time.monotonic() - self.tokens.get(value, -1e9) < self.life:
            return CLIENT_ID
        self.refused += 1
        raise Refused


class Refused(Exception):
    """The token is wrong or has expired."""


def _refuse(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"error_code": "403", "message": "Invalid access token. [ReqId: 0000]"}, 403)


@contextmanager
def fake_workspace() -> Generator[FakeWorkspace]:
    """Run it on a free port."""
    fake, statements = FakeWorkspace(), "/api/2.0/sql/statements"
    routes = [
        Route("/.well-known/databricks-config", fake.host_metadata),
        Route("/oidc/.well-known/oauth-authorization-server", fake.authorization_server),
        Route("/oidc/v1/token", fake.token, methods=["POST"]),
        Route("/api/2.1/unity-catalog/catalogs", fake.list_catalogs),
        Route("/api/2.0/preview/scim/v2/Me", fake.me),
        Route(statements, fake.begin, methods=["POST"]),
        Route(f"{statements}/{{id}}", fake.follow),
        Route(f"{statements}/{{id}}/result/chunks/{{number:int}}", fake.chunk),
        Route(f"{statements}/{{id}}/cancel", fake.cancel, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={Refused: _refuse})
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server does not start"
            time.sleep(0.01)
        fake.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield fake
    finally:
        server.should_exit = True
        thread.join()
