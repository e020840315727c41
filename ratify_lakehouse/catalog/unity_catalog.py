"""The catalog client: databricks-sdk against a Databricks workspace, an open-source Unity Catalog or the embedded one."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import dagster as dg
from pydantic import Field, PrivateAttr, SecretStr

from ratify_lakehouse.catalog.catalog_answers import busy, denied, missing, rejected, unavailable, unclear, updated_table
from ratify_lakehouse.catalog.lazy_sdk import register_lazy_sdk
from ratify_lakehouse.errors import CatalogDenied, CatalogError, CommitOutcomeUnknown, TransientError
from ratify_lakehouse.settings import CatalogConnection, Settings

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.config import Config
    from databricks.sdk.core import ApiClient
    from databricks.sdk.service.catalog import TableInfo
    from requests import PreparedRequest, Session

T = TypeVar("T")

API = "/api/2.1/unity-catalog"
_ME = "/api/2.0/preview/scim/v2/Me"
_MAINTENANCE = "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/maintenance"


class UnityCatalog(dg.ConfigurableResource[Any]):
    """A Unity Catalog server.

    Every field may stay empty: its value then comes from the environment, or else from the running stack. `token` and
    `admin` (the admin's token of the running stack) are given in Python only: no launchpad or run's configuration has them.
    """

    host: str = Field(default="", description="URL of the server; empty: UNITY_HOST or the running stack")
    name: str = Field(default="", description="Catalog; empty: UNITY_CATALOG or the running stack's")
    # Dagster copies resources by their fields, and leaves those that are not configuration as they are.
    token: dg.ResourceDependency[SecretStr | None] = Field(
        default=cast("Any", None), description="Bearer token for `host`; none: UNITY_TOKEN or the running stack's"
    )
    admin: dg.ResourceDependency[bool] = Field(default=cast("Any", False))
    retry_seconds: int = Field(default=30, description="How long requests to a server that does not answer are repeated")
    timeout_seconds: float = Field(default=30, description="How long one request waits for its answer")

    _client: Any = PrivateAttr(default=None)
    _api_client: Any = PrivateAttr(default=None)
    _config: Any = PrivateAttr(default=None)
    _connection: CatalogConnection | None = PrivateAttr(default=None)
    _any_schema: str | None = PrivateAttr(default=None)
    _principal: str | None = PrivateAttr(default=None)
    _session: Any = PrivateAttr(default=None)

    def __init__(self, *, token: str | SecretStr | None = None, **fields: Any) -> None:
        """Take the fields; a bearer token belongs to `host`."""
        fields["token"] = SecretStr(token) if isinstance(token, str) else token
        super().__init__(**fields)

    @property
    def connection(self) -> CatalogConnection:
        """How to reach the catalog.

        Raises:
            NotConfigured: no server is named anywhere.
        """
        if self._connection is None:
            if self.host:
                settings = Settings().model_copy(update={"unity_host": self.host})
                if self.token:
                    mine = {"unity_token": self.token, "unity_client_id": None}
                    settings = settings.model_copy(update=mine)
            else:
                settings = Settings()
            connection = settings.catalog_connection(admin=self.admin)
            self._connection = connection.model_copy(update={"name": self.name} if self.name else {})
        return self._connection

    @property
    def client(self) -> "WorkspaceClient":
        """The databricks-sdk client of all services, opened at first use, which takes a second to import."""
        if self._client is None:
            config = self.config
            from databricks.sdk import WorkspaceClient

            self._client = WorkspaceClient(config=config)
        return cast("WorkspaceClient", self._client)

    @property
    def config(self) -> "Config":
        """How databricks-sdk reaches the server, and as whom."""
        if self._config is None:
            register_lazy_sdk()
            from databricks.sdk.config import Config

            to = self.connection
            with self._translating("connect"), _without_discovery_warning():
                self._config = Config(
                    host=to.host,
                    token=to.token.get_secret_value() if to.token else None,
                    client_id=to.client_id,
                    client_secret=to.client_secret.get_secret_value() if to.client_secret else None,
                    auth_type="pat" if to.token else "oauth-m2m",
                    http_timeout_seconds=self.timeout_seconds,
                    retry_timeout_seconds=self.retry_seconds,
                )
        return cast("Config", self._config)

    @property
    def _api(self) -> "ApiClient":
        if self._api_client is None:
            config = self.config
            from databricks.sdk.core import ApiClient

            self._api_client = ApiClient(config)
        return cast("ApiClient", self._api_client)

    def bearer_token(self) -> str:
        """Return a token that other clients of the same server may use now (OAuth tokens are fetched and renewed)."""
        header = self.ask("authenticate", self.config.authenticate)["Authorization"]
        return header.removeprefix("Bearer ")

    def default_schema(self) -> str:
        """Return an existing schema, or "bronze" if there is none: DuckDB finds its own functions through one.

        Engines call this before they start, to check that the server answers, accepts the token and has the catalog:
        their own errors come late and are unclear.

        Raises:
            CatalogUnavailable, CatalogDenied, TableMissing: it does not.
        """
        if self._any_schema is None:
            name = self.connection.name
            found = self._schema_names(f"list the schemas of {name}")
            self._any_schema = next((schema for schema in found if schema not in {"", "information_schema"}), None)
        return self._any_schema or "bronze"

    def principal(self) -> str | None:
        """Return who the catalog says that this client is; None where it does not say, as with other open-source servers."""
        if self._principal is None:
            try:
                self._principal = self.request("GET", "ask who this is", _ME).get("userName") or ""
            except TransientError:
                return None
            except CatalogError:
                self._principal = ""
        return self._principal or None

    @property
    def known_principal(self) -> str | None:
        """What `principal` has returned, without a request; None before."""
        return self._principal or None

    def ensure_schemas(self, names: tuple[str, ...]) -> list[str]:
        """Create the schemas that are missing; return their names.

        Raises:
            CatalogDenied, CatalogUnavailable: as for every call.
        """
        catalog = self.connection.name
        existing = self.schemas()
        missing = [name for name in names if name.casefold() not in existing]
        for name in missing:
            try:
                self.request("POST", "create a schema", f"{API}/schemas", {"name": name, "catalog_name": catalog})
            except CatalogError:
                # Another process was faster: servers report that by different errors.
                if name.casefold() not in self.schemas():
                    raise
        return missing

    def schemas(self) -> set[str]:
        """Return the names of the schemas, case-folded: case means nothing in them."""
        return {name.casefold() for name in self._schema_names("list schemas")}

    def _schema_names(self, what: str) -> list[str]:
        # The classes of databricks-sdk for them take longer to import than the request takes.
        names, query = list[str](), {"catalog_name": self.connection.name, "max_results": "0"}
        while True:
            page = self.request("GET", what, f"{API}/schemas", None, **query)
            names += [schema.get("name") or "" for schema in page.get("schemas") or ()]
            if not (token := page.get("next_page_token")):
                return names
            query["page_token"] = token

    def table(self, full_name: str) -> "TableInfo":
        """Return the catalog's entry of a table.

        Raises:
            TableMissing: there is no such table.
        """
        api = self._api
        from databricks.sdk.service.catalog import TablesAPI

        return self.ask(f"look up {full_name}", lambda: TablesAPI(api).get(full_name))

    def version(self, full_name: str) -> int:
        """Return the latest ratified version of a table, from the catalog's `delta/v1` loadTable.

        Raises:
            TableMissing: there is no such table.
        """
        return int(self.load_table(full_name)["latest-table-version"])

    def load_table(self, full_name: str) -> dict[str, Any]:
        """Return the answer of the catalog's `delta/v1` loadTable (DeltaLoadTableResponse).

        Raises:
            TableMissing: there is no such table.
        """
        return self.request("GET", f"load {full_name}", _table_path(full_name))

    def table_credentials(self, full_name: str, operation: str = "READ_WRITE") -> list[dict[str, Any]]:
        """Return storage credentials for a table's files (DeltaStorageCredential).

        Args:
            full_name: The table.
            operation: READ or READ_WRITE.

        Raises:
            CatalogDenied: the principal may not do that.
        """
        path = f"{_table_path(full_name)}/credentials?operation={operation}"
        return self.request("GET", f"get credentials for {full_name}", path)["storage-credentials"]

    def permitted_maintenance(self, full_name: str) -> frozenset[str] | None:
        """Return what the catalog permits clients: some of "compact", "clean" and "clean_log"; None if it does not say.

        Delta's PROTOCOL.md permits none beyond checkpoints of a catalog-managed table, unless the catalog says so. The
        published API has no way to say it; the embedded catalog lists its own among the endpoints of `delta/v1/config`.

        Raises:
            TableMissing: there is no such table.
            CatalogDenied: the principal may not write to it.
        """
        if not self.offers(full_name.split(".", 1)[0], _MAINTENANCE):
            return None
        path = f"{_table_path(full_name)}/maintenance"
        return frozenset(self.request("GET", f"ask what is permitted on {full_name}", path)["operations"])

    def offers(self, catalog: str, endpoint: str) -> bool:
        """Return whether the server lists an endpoint of `delta/v1` for a catalog, as its config spells it."""
        config = f"{API}/delta/v1/config?catalog={catalog}&protocol-versions=1.0"
        return endpoint in self.request("GET", "get the catalog's configuration", config)["endpoints"]

    def update_table(
        self, full_name: str, requirements: list[dict[str, Any]], updates: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Send one request to the catalog's `delta/v1` updateTable, and return the table after it (DeltaLoadTableResponse).

        Raises:
            CommitConflict, CatalogDenied, TableMissing, CatalogBusy, CatalogRejected: the catalog refused this request.
            CommitOutcomeUnknown: it may have carried it out (see `catalog_answers`).
        """
        from requests import RequestException

        host, what = self.connection.host, f"update {full_name}"
        headers = self.ask("authenticate", self.config.authenticate)

        def authorized(request: "PreparedRequest") -> "PreparedRequest":
            request.headers.update(headers)
            return request

        try:
            response = self._once.post(
                f"{host}{_table_path(full_name)}",
                json={"requirements": requirements, "updates": updates},
                # As databricks-sdk does it: over a plain header, requests prefers what ~/.netrc has.
                auth=authorized,
                timeout=self.timeout_seconds,
                allow_redirects=False,
            )
        except RequestException as error:
            cause = unavailable(host, what, type(error).__name__)
            raise CommitOutcomeUnknown(str(cause)) from cause
        return updated_table(host, what, response)

    @property
    def _once(self) -> "Session":
        """A session that sends each request once."""
        if self._session is None:
            from requests import Session

            self._session = Session()
            self._session.headers["User-Agent"] = self.config.user_agent
        return cast("Session", self._session)

    def request(self, method: str, what: str, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """Send a request and return the answer; errors as those of `ask`."""
        do = cast("Callable[..., dict[str, Any]]", self._api.do)  # pyright: ignore[reportUnknownMemberType]
        return self.ask(what, lambda: do(method, path, body=body, query=query or None))

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Run a call of `client` and return its result; its errors are translated into ours.

        Raises:
            CatalogDenied, CatalogUnavailable, CatalogBusy, TableMissing, CatalogRejected: each message has the next step.
        """
        with self._translating(what):
            return call()

    @contextmanager
    def _translating(self, what: str) -> Generator[None]:
        """Translate errors of databricks-sdk and requests into ours, each with the next step."""
        register_lazy_sdk()
        from databricks.sdk import errors
        from databricks.sdk.errors.base import DatabricksError
        from requests.exceptions import RequestException

        host = self.connection.host
        try:
            yield
        except (errors.Unauthenticated, errors.PermissionDenied) as error:
            raise denied(host, what, error) from error
        except errors.NotFound as error:
            raise missing(host, what, error) from error
        except (errors.TooManyRequests, errors.TemporarilyUnavailable) as error:
            raise busy(host, what, error) from error
        except (RequestException, TimeoutError) as error:
            tried = f"{type(error).__name__}, asked for {self.retry_seconds} s"
            raise unavailable(host, what, tried) from error
        except ValueError as error:
            # databricks-sdk passes on errors of the token endpoint as ValueError.
            if not self.connection.client_id:
                raise
            raise CatalogDenied(
                f"The catalog at {host} gave no token to {what}: {error}. Check UNITY_CLIENT_ID and UNITY_CLIENT_SECRET: "
                "the secret may be wrong, expired or revoked."
            ) from error
        except DatabricksError as error:
            no_answer = isinstance(error, errors.InternalError | errors.DeadlineExceeded | errors.Cancelled)
            kind = unclear if no_answer and not isinstance(error, errors.NotImplemented) else rejected
            raise kind(host, what, error) from error


def _table_path(full_name: str) -> str:
    catalog, schema, table = full_name.split(".")
    return f"{API}/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"


@contextmanager
def _without_discovery_warning() -> Generator[None]:
    """Open-source servers have no /.well-known/databricks-config, and the SDK warns of that at each start."""
    sdk = logging.getLogger("databricks.sdk")
    level = sdk.level
    sdk.setLevel(logging.ERROR)
    try:
        yield
    finally:
        sdk.setLevel(level)
