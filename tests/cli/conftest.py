"""A catalog with the tables that files are loaded into, made without Spark; processes find it by their environment."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from tests.cli.products_project import PRODUCTS, write_project
from tests.cli.ratify_command import invoke
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import CatalogAddress
from tests.engines.declared_tables import create_declared
from tests.engines.live_tables import read_live


@dataclass(frozen=True)
class LoadTarget:
    """A running server with the empty tables `bronze.products` and `ops.landed_files`."""

    server: CatalogAddress
    project: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of a process whose project declares `bronze.products`, and nothing else."""
        return {"UNITY_HOST": self.server.url, "UNITY_TOKEN": self.server.token, "PYTHONPATH": str(self.project)}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        catalog = UnityCatalog(host=self.server.url, token=self.server.token)
        with closing(DuckDB(catalog=catalog)) as duckdb:
            return read_live(duckdb, sql)

    def names(self) -> dict[str, int]:
        """How often each name is in bronze.products."""
        return dict(self.rows("SELECT name, count(*) FROM uc.bronze.products GROUP BY name ORDER BY name"))

    def ledger(self) -> dict[str, tuple[str, int]]:
        """Status and rows by file name; a file that is entered twice is an error."""
        found = self.rows("SELECT parse_filename(path), status, rows FROM uc.ops.landed_files")
        assert len({name for name, _, _ in found}) == len(found)
        return {name: (status, rows) for name, status, rows in found}


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadTarget]:
    write_project(project := tmp_path / "project")
    # The same in this process.
    monkeypatch.setattr(project_tables, "declared_tables", lambda: SimpleNamespace(sources=[PRODUCTS]))
    with catalog_here(tmp_path) as server:
        with server.client() as admin:
            create_declared(admin, PRODUCTS.table, LANDED_FILES)
        yield LoadTarget(server, project)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Generator[CatalogAddress]:
    """A Unity Catalog server of another owner: of which only the URL and the token are known."""
    with catalog_here(tmp_path, catalog="main") as server:
        yield server


@pytest.fixture
def new_home(tmp_path: Path) -> Generator[Path]:
    """A home without state; nothing runs in it afterwards."""
    home = tmp_path / "home"
    home.mkdir()
    yield home
    invoke(home, "down")
