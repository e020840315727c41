"""A catalog in this process, whose principals and grants a test chooses, with a lakehouse for each test."""

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sqlalchemy import Connection
from starlette.applications import Starlette

from ratify_lakehouse.embedded.catalog import table_creation
from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.api_models import CreateCatalog, CreateSchema
from ratify_lakehouse.embedded.catalog.api_views import staging_response
from ratify_lakehouse.embedded.catalog.catalog_app import create_app
from ratify_lakehouse.embedded.catalog.delta_models import CreateDeltaTable
from ratify_lakehouse.embedded.catalog.store import dropped_store, grant_store, namespace_store, principal_store, table_store
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from tests.embedded.catalog.harness import API, create_body

ADMIN_TOKEN = "admin-token"
_COUNTER = itertools.count()


@dataclass
class Lake:
    """Catalog `c<n>` with the schema `s` and the managed table `t`, all of the principal `owner`.

    `dropped_id` is the id of a table `gone` of the owner that was dropped. `lost_id`, if asked for, is that of one whose
    schema `r` was dropped, too, and created again by `caller`; the files are below `lost_root`. `mine` and `theirs` are
    staging tables in it: of `caller`, and of the owner.
    """

    catalog: str
    table_id: str
    dropped_id: str
    mine: dict[str, str]
    theirs: dict[str, str]
    ids: dict[str, str]
    lost_id: str = ""

    @property
    def lost_root(self) -> str:
        return f"file:///lost/{self.catalog}"

    @property
    def delta(self) -> str:
        return f"/delta/v1/catalogs/{self.catalog}/schemas/s"

    @property
    def table(self) -> str:
        return f"{self.catalog}.s.t"


@dataclass
class LocalCatalog:
    """The application in this process, a token for each principal, and a lakehouse on request."""

    store: Store
    app: Starlette
    tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path) -> "LocalCatalog":
        store = Store(path / "catalog.sqlite", path.as_uri())
        return cls(store, create_app(store, ADMIN_TOKEN), {"admin": ADMIN_TOKEN})

    def principal(self, name: str, seconds: int = 600) -> str:
        """Create a principal with a token."""
        with self.store.write() as tx:
            principal_store.create_principal(tx, name)
            _, self.tokens[name] = principal_store.issue(tx, name, "token", seconds)
        return name

    def call(self, who: str | None, method: str, path: str, **request: object) -> httpx.Response:
        """Ask as a principal, or without a token; paths of the Unity Catalog API go without their prefix."""
        headers = {"Authorization": f"Bearer {self.tokens.get(who, who)}"} if who else {}
        return self.request(method, path if path.startswith("/api") else API + path, headers=headers, **request)

    def request(self, method: str, path: str, **request: object) -> httpx.Response:
        """Send a request as it is."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://local", trust_env=False) as client:
                return await client.request(method, path, **request)

        return asyncio.run(ask())

    def _table(self, tx: Connection, schema: namespace_store.Schema, name: str, owner: str) -> table_store.Table:
        staging = staging_response(table_creation.create_staging_table(tx, schema, name, owner), None)
        body = CreateDeltaTable.model_validate(create_body(name, staging))
        return table_creation.create_delta_table(tx, schema, body, owner)

    def _lost(self, tx: Connection, lake: Lake, owner: str, caller: str) -> str:
        first = CreateSchema(name="r", catalog_name=lake.catalog, storage_root=lake.lost_root)
        table = self._table(tx, namespace_store.create_schema(tx, first, owner), "t", owner)
        namespace_store.delete_schema(tx, lake.catalog, "r", force=True)
        namespace_store.create_schema(tx, CreateSchema(name="R", catalog_name=lake.catalog), caller)
        return table.id

    def lake(self, owner: str, caller: str, given: dict[str, Privilege] | None = None, *, lost: bool = False) -> Lake:
        """A new lake, in one transaction; `given` is what `caller` is granted on its `catalog`, `schema` or `table`."""
        name = f"c{next(_COUNTER)}"
        with self.store.write() as tx:
            catalog = namespace_store.create_catalog(tx, CreateCatalog(name=name), self.store.default_root, owner)
            schema = namespace_store.create_schema(tx, CreateSchema(name="s", catalog_name=name), owner)
            table, gone = (self._table(tx, schema, name, owner) for name in ("t", "gone"))
            dropped_store.drop_table(tx, gone)
            mine, theirs = (
                staging_response(table_creation.create_staging_table(tx, schema, "new", who), None)
                for who in (caller, owner)
            )
            ids = {
                "metastore": grant_store.METASTORE,
                "catalog": catalog.id,
                "schema": schema.id,
                "table": table.id,
            }
            for kind, privileges in (given or {}).items():
                grant_store.grant(tx, ids[kind], caller, privileges)
            lake = Lake(name, table.id, gone.id, mine, theirs, ids)
            lake.lost_id = self._lost(tx, lake, owner, caller) if lost else ""
        return lake
