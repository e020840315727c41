"""The database's layout: made, taken over from the code that had no migrations, and refused when it is newer."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from embedded.catalog.store import database_schema, namespace_store
from embedded.catalog.store.catalog_database import Store
from embedded.catalog.store.migrations.versions import r0001_tables


def _open(path: Path) -> Store:
    return Store(path / "catalog.sqlite", "file:///lake")


def _before_migrations(path: Path) -> None:
    with sqlite3.connect(path / "catalog.sqlite") as old:
        for table in r0001_tables._LAYOUT:
            old.execute(f"CREATE TABLE {table}")
        old.execute("INSERT INTO metastore VALUES ('m')")
        old.execute("INSERT INTO catalogs VALUES ('c', 'ratify', NULL, '{}', 'file:///lake', 1, 1)")
        old.execute("PRAGMA user_version=1")


def test_a_fresh_database_is_what_the_code_declares(tmp_path: Path) -> None:
    store = _open(tmp_path)
    with store.read() as tx:
        context = MigrationContext.configure(tx)
        assert context.get_current_revision() == "0004"
        ours = [
            change for change in compare_metadata(context, database_schema.metadata) if change[1].name != "alembic_version"
        ]
        assert ours == []


def test_what_older_code_wrote_is_kept_and_belongs_to_the_admin(tmp_path: Path) -> None:
    _before_migrations(tmp_path)
    for _ in range(2):
        store = _open(tmp_path)
        with store.read() as tx:
            found = namespace_store.get_catalog(tx, "ratify")
        assert (store.metastore_id, found.id, found.owner) == ("m", "c", "admin")
        store.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    _before_migrations(tmp_path)
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
