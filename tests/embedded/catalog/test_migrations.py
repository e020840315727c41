"""The database's layout: created, left alone when a migration fails, and refused when it is newer."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from embedded.catalog.store import database_schema
from embedded.catalog.store.catalog_database import Store


def _open(path: Path) -> Store:
    return Store(path / "catalog.sqlite", "file:///lake")


def test_a_fresh_database_is_what_the_code_declares(tmp_path: Path) -> None:
    store = _open(tmp_path)
    with store.read() as tx:
        context = MigrationContext.configure(tx)
        assert context.get_current_revision() == "0002"
        ours = [
            change for change in compare_metadata(context, database_schema.metadata) if change[1].name != "alembic_version"
        ]
        assert ours == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.sqlite") as old:
        old.execute("CREATE TABLE grants (in_the_way)")
        before = list(old.execute("SELECT name, sql FROM sqlite_master ORDER BY name"))
    with pytest.raises(Exception, match="grants"):
        _open(tmp_path)
    with sqlite3.connect(tmp_path / "catalog.sqlite") as old:
        assert list(old.execute("SELECT name, sql FROM sqlite_master ORDER BY name")) == before


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    _open(tmp_path).close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ValueError, match=r"newer version of the catalog.*9999"):
        _open(tmp_path)
