"""The catalog client: databricks-sdk against a Databricks workspace, an open-source Unity Catalog or the embedded one."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import dagster as dg
from pydantic import Field, PrivateAttr, SecretStr

from resources.errors import (
    CatalogBusy,
    CatalogDenied,
    CatalogError,
    CatalogUnavailable,
    TableMissing,
    UnsafeTable,
)
from resources.settings import CatalogConnection, Settings
from resources.tables import TableDeclaration

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.catalog import TableInfo

T = TypeVar("T")

API = "/api/2.1/unity-catalog"


class UnityCatalog(dg.ConfigurableResource[Any]):
    """A Unity Catalog server.

    Every field may stay empty: the environment, or else the stack that `ratify up` started, then says what it is. Give
    secrets as `dg.EnvVar`, so that the UI shows the variable's name and never its value.
    """

    host: str = Field(default="", description="URL of the server; empty: UNITY_HOST or the running stack")
    name: str = Field(default="", description="Catalog; empty: UNITY_CATALOG or the running stack's")
    token: str = Field(default="", description="Bearer token; empty: UNITY_TOKEN or the running stack's")
    admin: bool = Field(default=False, description="Come to the running stack as the admin, not as the engines do")
    retry_seconds: int = Field(default=30, description="How long a server that does not answer is asked again")

    _client: Any = PrivateAttr(default=None)
    _connection: CatalogConnection | None = PrivateAttr(default=None)
    _any_schema: str | None = PrivateAttr(default=None)

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
                    settings.unity_token = SecretStr(self.token)
            else:
                settings = Settings()
            connection = settings.catalog_connection(admin=self.admin)
            self._connection = connection.model_copy(update={"name": self.name} if self.name else {})
        return self._connection

    @property
    def client(self) -> "WorkspaceClient":
        """The databricks-sdk client, opened at first use."""
        if self._client is None:
            from databricks.sdk import WorkspaceClient
            from databricks.sdk.config import Config

            to = self.connection
            with self._understood("connect"), _without_discovery_warning():
                config = Config(
                    host=to.host,
                    token=to.token.get_secret_value() if to.token else None,
                    client_id=to.client_id,
                    client_secret=to.client_secret.get_secret_value() if to.client_secret else None,
                    auth_type="pat" if to.token else "oauth-m2m",
                    http_timeout_seconds=30,
                    retry_timeout_seconds=self.retry_seconds,
                )
                self._client = WorkspaceClient(config=config)
        return cast("WorkspaceClient", self._client)

    def bearer_token(self) -> str:
        """Return a token that other clients of the same server may use now (OAuth tokens are fetched and renewed)."""
        header = self.ask("authenticate", self.client.config.authenticate)["Authorization"]
        return header.removeprefix("Bearer ")

    def default_schema(self) -> str:
        """Return a schema that exists, or "bronze" where there is none: DuckDB finds its own functions through one.

        It is also how an engine makes sure, before it starts, that the server answers, knows the token and has the
        catalog: engines themselves say so late and unclearly.

        Raises:
            CatalogUnavailable, CatalogDenied, TableMissing: it does not.
        """
        if self._any_schema is None:
            name = self.connection.name
            found = self.ask(f"list the schemas of {name}", lambda: [s.name for s in self.client.schemas.list(name)])
            self._any_schema = next((schema for schema in found if schema not in {None, "information_schema"}), None)
        return self._any_schema or "bronze"

    def ensure_schemas(self, names: tuple[str, ...]) -> list[str]:
        """Create the schemas that are missing; return their names.

        Raises:
            CatalogDenied, CatalogUnavailable: as for every call.
        """
        from databricks.sdk.errors import AlreadyExists

        catalog = self.connection.name
        there = {s.name for s in self.ask("list schemas", lambda: list(self.client.schemas.list(catalog)))}
        missing = [name for name in names if name not in there]
        for name in missing:
            try:
                self.ask("create a schema", lambda name=name: self.client.schemas.create(name, catalog))
            except CatalogError as error:
                if not isinstance(error.__cause__, AlreadyExists):
                    raise
        return missing

    def table(self, full_name: str) -> "TableInfo":
        """Return the catalog's entry of a table.

        Raises:
            TableMissing: there is none.
        """
        return self.ask(f"look up {full_name}", lambda: self.client.tables.get(full_name))

    def version(self, full_name: str) -> int:
        """Return the latest ratified version of a table, from the catalog's `delta/v1` loadTable.

        Raises:
            TableMissing: there is no such table.
        """
        return int(self._load(full_name)["latest-table-version"])

    def version_for_duckdb(self, declaration: TableDeclaration) -> int:
        """Return the latest ratified version of a table that DuckDB is about to write.

        Raises:
            UnsafeTable: DuckDB would write it wrong: the table has column mapping, or its columns are not the declared ones
                in the declared order (DuckDB inserts by position).
            TableMissing: there is no such table.
        """
        full_name = declaration.full_name(self.connection.name)
        loaded = self._load(full_name)
        metadata = loaded["metadata"]
        mode = metadata["properties"].get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise UnsafeTable(
                f"{full_name} has column mapping ({mode}): rows that DuckDB writes to it read as NULL in every engine. "
                f"Run ALTER TABLE {full_name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none') in Spark before "
                "DuckDB's first write, or drop the table and let it be created again."
            )
        columns = tuple(field["name"] for field in metadata["columns"]["fields"])
        if columns != declaration.column_names:
            raise UnsafeTable(
                f"{full_name} has columns {', '.join(columns)} but {', '.join(declaration.column_names)} are declared: "
                "DuckDB inserts by position. Alter the table or the declaration so that both agree."
            )
        return int(loaded["latest-table-version"])

    def _load(self, full_name: str) -> dict[str, Any]:
        """The catalog's `delta/v1` loadTable."""
        catalog, schema, table = full_name.split(".")
        path = f"{API}/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        get = cast("Callable[[str, str], dict[str, Any]]", self.client.api_client.do)  # pyright: ignore[reportUnknownMemberType]
        return self.ask(f"load {full_name}", lambda: get("GET", path))

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Return what a call of `client` returns; what it raises becomes one of our errors.

        Raises:
            CatalogDenied, CatalogUnavailable, CatalogBusy, TableMissing, CatalogError: each says what to do next.
        """
        with self._understood(what):
            return call()

    @contextmanager
    def _understood(self, what: str) -> Generator[None]:
        """Turn what databricks-sdk and requests raise into our errors, each with what to do next."""
        from databricks.sdk import errors
        from databricks.sdk.errors.base import DatabricksError
        from requests.exceptions import RequestException

        host = self.connection.host
        try:
            yield
        except (errors.Unauthenticated, errors.PermissionDenied) as error:
            raise CatalogDenied(
                f"The catalog at {host} refused to {what}: {error}. Check UNITY_TOKEN (or UNITY_CLIENT_ID and "
                "UNITY_CLIENT_SECRET) and the grants of the principal behind it."
            ) from error
        except errors.NotFound as error:
            raise TableMissing(f"The catalog at {host} could not {what}: {error}. Check the name.") from error
        except (errors.TooManyRequests, errors.TemporarilyUnavailable) as error:
            raise CatalogBusy(f"The catalog at {host} is too busy to {what}: {error}. Try again later.") from error
        except (RequestException, TimeoutError) as error:
            raise CatalogUnavailable(
                f"The catalog at {host} did not answer ({what}, asked for {self.retry_seconds} s): "
                f"{type(error).__name__}. Check that it runs (`ratify status`) and that UNITY_HOST is right."
            ) from error
        except DatabricksError as error:
            raise CatalogError(f"The catalog at {host} could not {what}: {error}") from error


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
