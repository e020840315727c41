"""A workspace whose SQL warehouse is the lakehouse's Spark, and syncs that it runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ratify_lakehouse.catalog import sql_warehouse
from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.components.syncs.sync_declaration import (
    SyncDeclaration,
    SyncEngine,
    SyncSource,
    SyncStrategy,
    whole_table,
)
from ratify_lakehouse.components.syncs.sync_pass import SyncResult
from ratify_lakehouse.components.syncs.warehouse_pass import WarehousePass
from ratify_lakehouse.errors import TableMissing
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from tests.catalog.spark_warehouse import spark_engine
from tests.catalog.workspace_server import (
    ADMIN_TOKEN,
    WAREHOUSE,
    FakeWorkspace,
    fake_workspace,
)
from tests.engines.lakehouse import Lakehouse


@dataclass
class Workspace:
    """A workspace whose warehouse is the lakehouse's Spark."""

    lake: Lakehouse
    fake: FakeWorkspace
    warehouse: SqlWarehouse

    def run(self, sync: SyncDeclaration) -> SyncResult:
        return WarehousePass(self.warehouse, self.lake.duckdb, sync).run()

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.lake.run(text)]

    def stored(self, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
        found = self.lake.quick(f"SELECT {columns} FROM ratify.bronze.{name}")
        return sorted((tuple(row.values()) for row in found), key=repr)

    def version(self, name: str) -> int:
        return self.lake.catalog.version(f"ratify.bronze.{name}")

    def staging(self) -> set[str]:
        """The staging tables that are still there, of those of this workspace: other tests have some, too."""
        used = set(re.findall(r"ratify_staging_\w+", "\n".join(self.fake.statements)))
        return {name for name in used if self._exists(name)}

    def _exists(self, name: str) -> bool:
        try:
            self.version(name)
        except TableMissing:
            return False
        return True

    def began(self, *words: str) -> list[str]:
        return [text for text in self.fake.statements if text.startswith(words)]


@pytest.fixture
def workspace(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setattr(sql_warehouse, "_FIRST_POLL_S", 0.01)
    lake.catalog.ensure_schemas(("bronze", "ops"))
    with fake_workspace() as fake:
        fake.engine = spark_engine(lake.spark.session)
        catalog = UnityCatalog(host=fake.url, token=ADMIN_TOKEN, name="ratify")
        yield Workspace(lake, fake, SqlWarehouse(catalog=catalog, warehouse_id=WAREHOUSE))


def names() -> tuple[str, str]:
    unique = uuid4().hex[:10]
    return f"from_{unique}", f"to_{unique}"


def declared(destination: str, strategy: SyncStrategy, source: SyncSource, *keys: str, **more: Any) -> SyncDeclaration:
    more = {"create_if_missing": True, "engine": SyncEngine.WAREHOUSE, **more}
    to = more.pop("to", TableName("bronze", destination))
    return SyncDeclaration(destination, source, to, strategy, keys, **more)


def table(name: str) -> SyncSource:
    return SyncSource(TableQuery.parsed(whole_table(TableName("bronze", name)), "databricks", "source"))


def csv(path: Path, *rows: tuple[str | None, ...]) -> SyncSource:
    """Each value is quoted, and NULL is empty."""
    lines = [",".join("" if each is None else '"' + each.replace('"', '""') + '"' for each in row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), newline="")
    return SyncSource(files=str(path), format="csv")
