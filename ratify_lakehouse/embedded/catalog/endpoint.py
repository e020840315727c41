"""Between Starlette and the handlers: bounded bodies in, JSON out, handlers in threads."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog.access_rules import RequiredPrivileges
from ratify_lakehouse.embedded.catalog.api_errors import (
    ApiError,
    BodyTooLargeError,
    InvalidParameterError,
    InvalidRequestError,
    NotAuthorizedError,
)
from ratify_lakehouse.embedded.catalog.bearer_auth import Identities
from ratify_lakehouse.embedded.catalog.server_metrics import ServerMetrics
from ratify_lakehouse.embedded.catalog.store import grant_store, principal_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from ratify_lakehouse.embedded.catalog.store.namespace_store import Catalog, Schema
from ratify_lakehouse.embedded.catalog.store.table_store import Table

# Parsed, a body takes up to 40 times its size in memory. The largest that clients send are schemas: 10,000 columns fit.
MAX_BODY = 2 * 1024 * 1024
# Of a client that nobody knows, which asks for a token: a form of a few fields.
MAX_ANONYMOUS_BODY = 4 * 1024
# Clients that do not page (DuckDB) must still see everything, so a page holds any catalog of one machine.
MAX_PAGE = 10_000

Json = dict[str, Any]
BodyModel = TypeVar("BodyModel", bound=BaseModel)
Item = TypeVar("Item", Catalog, Schema, Table)
# pydantic's error types for a value that has the right form and breaks a rule; all others are malformed requests.
_RULES = {"value_error", "greater_than", "greater_than_equal", "less_than", "string_too_long", "string_too_short"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as the handlers see it."""

    store: Store
    identities: Identities
    metrics: ServerMetrics
    principal: str
    client_id: str
    required_privileges: RequiredPrivileges
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    origin: str
    body: bytes

    @contextmanager
    def read(self, *names: str, also: RequiredPrivileges = ()) -> Generator[Connection]:
        """A snapshot in which the principal has the required privileges, and `also`, on the securable of these names.

        Raises PermissionDeniedError, or NoSuchCatalogError, NoSuchSchemaError or NoSuchTableError.
        """
        with self.store.read() as tx:
            self._refuse_another(tx)
            grant_store.effective(tx, self.principal, names).require((*self.required_privileges, *also))
            yield tx

    @contextmanager
    def read_id(self, table_id: str, also: RequiredPrivileges = ()) -> Generator[Connection]:
        """Like `read`, for a table or staging table by its id. Raises NoSuchTableError."""
        with self.store.read() as tx:
            self._refuse_another(tx)
            grant_store.effective_by_id(tx, self.principal, table_id).require((*self.required_privileges, *also))
            yield tx

    @contextmanager
    def write(self, *names: str, also: RequiredPrivileges = ()) -> Generator[Connection]:
        """Like `read`, in a write transaction: the privileges cannot change before its end."""
        with self.store.write() as tx:
            self._refuse_another(tx)
            grant_store.effective(tx, self.principal, names).require((*self.required_privileges, *also))
            yield tx

    def _refuse_another(self, tx: Connection) -> None:
        """Raises NotAuthorizedError when the principal was deleted after its token was read, whoever has its name now."""
        if principal_store.client_id_of(tx, self.principal) != self.client_id:
            raise NotAuthorizedError

    def parse(self, model: type[BodyModel]) -> BodyModel:
        """The body as `model`. Raises InvalidRequestError, or InvalidParameterError for a value out of bounds."""
        try:
            return model.model_validate_json(self.body)
        except ValidationError as error:
            raise _refusal(error) from None

    def required(self, name: str) -> str:
        """A query parameter. Raises InvalidParameterError when it is missing or empty."""
        value = self.query.get(name, "")
        if not value:
            raise InvalidParameterError(f"The query parameter {name!r} is missing.")
        return value

    def flag(self, name: str) -> bool:
        """A boolean query parameter, false when missing. Raises InvalidParameterError."""
        value = self.query.get(name, "false").lower()
        if value not in ("true", "false"):
            raise InvalidParameterError(f"The query parameter {name!r} is {value!r}; it must be true or false.")
        return value == "true"

    def page(self) -> tuple[str, int]:
        """The name to list after, and the most items to return. Raises InvalidParameterError."""
        text = self.query.get("max_results", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) >= 2**31:
            raise InvalidParameterError(f"max_results is {text!r}; it must be a whole number, 0 or more (int32).")
        return self.query.get("page_token", ""), min(int(text) or MAX_PAGE, MAX_PAGE)


Handler = Callable[[Call], Response]


def endpoint(handler: Handler, required: RequiredPrivileges) -> Callable[[Request], Awaitable[Response]]:
    """`handler` as a Starlette endpoint, which runs in a thread because SQLite waits for the disk on each commit."""

    async def run(request: Request) -> Response:
        principal = getattr(request.state, "principal", "")
        call = Call(
            request.app.state.store,
            request.app.state.identities,
            request.app.state.metrics,
            principal,
            getattr(request.state, "client_id", ""),
            required,
            request.path_params,
            request.query_params,
            request.headers,
            str(request.base_url).rstrip("/"),
            await _bounded_body(request, MAX_BODY if principal else MAX_ANONYMOUS_BODY),
        )
        return await run_in_threadpool(handler, call)

    return run


def page_body(key: str, items: Sequence[Item], view: Callable[[Item], Json], limit: int) -> JSONResponse:
    """A list response. `items` holds one more than `limit` when there is a next page."""
    body: Json = {key: [view(item) for item in items[:limit]]}
    if len(items) > limit:
        body["next_page_token"] = items[limit - 1].name
    return JSONResponse(body)


async def _bounded_body(request: Request, most: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise BodyTooLargeError(f"The request body is over {most} bytes.")
    return bytes(body)


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    message = f"{where}: {first['msg'].removeprefix('Value error, ')}"
    return InvalidParameterError(message) if first["type"] in _RULES else InvalidRequestError(message)
