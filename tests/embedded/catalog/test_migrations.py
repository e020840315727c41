"""The database's layout: created, left alone when a migration fails, and refused when it is newer."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from ratify_lakehouse.embedded.catalog.store import database_schema
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from ratify_lakehouse.embedded.catalog.store.migrations import migrate

_GRANTED = """[{"principal": "ann", "privilege": "SELECT"}, {"principal": "bob", "privilege": "SELECT"}]"""
_DROPPED = (
    "INSERT INTO principals VALUES ('ann', 'a', 10), ('bob', 'b', 30)",
    "INSERT INTO catalogs VALUES ('c1', 'c', 'c', NULL, '{}', 'file:///r', 'admin', 1, 1)",
    "INSERT INTO schemas VALUES ('s1', 'c1', 's', 's', NULL, '{}', NULL, 'admin', 1, 1)",
    (
        "INSERT INTO dropped_tables VALUES"
        f" ('1', 's1', 'c', 's', 't', 'file:///r/1', 'ann', 20, '{{\"id\": 1, \"owner\": \"ann\"}}', '[]', '{_GRANTED}'),"
        f" ('2', 's0', 'c', 'r', 't', 'file:///r/2', 'bob', 20, '{{\"id\": 2, \"owner\": \"bob\"}}', '[]', '{_GRANTED}')"
    ),
)


def _open(path: Path) -> Store:
    return Store(path / "catalog.sqlite", "file:///lake")


def test_a_fresh_database_is_what_the_code_declares(tmp_path: Path) -> None:
    store = _open(tmp_path)
    with store.read() as tx:
        context = MigrationContext.configure(tx)
        assert context.get_current_revision() == "0003"
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


def test_dropped_tables_of_the_second_layout_are_of_the_same_principals_by_their_ids(tmp_path: Path) -> None:
    """`ann` is the same since the drop; another `bob` was created after it."""
    engine = create_engine(f"sqlite:///{tmp_path}/catalog.sqlite")
    with engine.begin() as tx:
        migrate(tx, "0002")
        for statement in _DROPPED:
            tx.exec_driver_sql(statement)
    engine.dispose()
    with _open(tmp_path).read() as tx:
        chosen = "SELECT id, catalog_id, owner, table_row FROM dropped_tables ORDER BY id"
        assert [tuple(row) for row in tx.exec_driver_sql(chosen)] == [
            ("1", "c1", "ann", '{"id":1}'),
            ("2", "", "admin", '{"id":2}'),
        ]
        held = "SELECT table_id, principal, privilege FROM dropped_grants ORDER BY table_id"
        assert [tuple(row) for row in tx.exec_driver_sql(held)] == [("1", "ann", "SELECT"), ("2", "ann", "SELECT")]
