"""`ratify undrop` and `ratify purge`: a dropped table is as before, or gone for good."""

import datetime as dt
import json

import pytest

from ratify_lakehouse.catalog import dropped_tables
from ratify_lakehouse.catalog.dropped_tables import DroppedTable
from ratify_lakehouse.catalog.sql_warehouse import SqlWarehouse
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.errors import CatalogRejected
from ratify_lakehouse.settings import Settings
from tests.cli.test_cli_restore import ratify
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


def listed(name: str) -> list[dict[str, str]]:
    return [row for row in json.loads(ratify("undrop", "--json")) if row["table"] == name]


def created(lake: Lakehouse) -> tuple[TableDeclaration, str]:
    """A new table, and its full name."""
    table = lake.create(pairs())
    return table, lake.full(table)


@pytest.mark.stack
def test_a_dropped_table_comes_back_as_it_was(lake: Lakehouse) -> None:
    table, name = created(lake)
    append(lake.duckdb, table, "SELECT * FROM (VALUES (1, 'a'), (2, 'b'))", "ab")
    lake.run(f"UPDATE {name} SET v = 'c' WHERE id = 2")
    # Not published yet: the version is a staged commit that only the catalog knows.
    append(lake.duckdb, table, "SELECT 3, 'd'", "d")
    history = [(row["version"], row["operation"]) for row in lake.run(f"DESCRIBE HISTORY {name}")]
    lake.drop(table)
    (row,) = listed(name)
    assert row["files until (UTC)"] > row["dropped at (UTC)"]

    lake.create(table)
    assert "already exists" in ratify("undrop", name, exit_code=1)
    lake.drop(table)
    assert len(listed(name)) == 2

    assert f"{name} is back" in ratify("undrop", name, "--id", row["id"])
    assert [(each["version"], each["operation"]) for each in lake.run(f"DESCRIBE HISTORY {name}")] == history
    assert lake.stored(table) == [(1, "a"), (2, "c"), (3, "d")]
    append(lake.duckdb, table, "SELECT 4, 'e'", "e")
    with lake.another_duckdb().session() as session:
        rows = session.rows(f"SELECT id FROM uc.{table.table_name} ORDER BY id")
    assert rows == [(1,), (2,), (3,), (4,)]
    assert [each["id"] != row["id"] for each in listed(name)] == [True], "the other one is still there"


@pytest.mark.stack
def test_a_purged_table_is_gone(lake: Lakehouse) -> None:
    table, name = created(lake)
    append(lake.duckdb, table, "SELECT 1, 'a'", "a")
    folder = lake.folder(name)
    lake.drop(table)
    assert any(folder.iterdir())
    assert "Aborted" in ratify("purge", name, exit_code=1)
    assert any(folder.iterdir())
    assert "its files are deleted" in ratify("purge", name, "--yes")
    assert not folder.exists()
    assert "has no dropped table" in ratify("undrop", name, exit_code=1)


def test_a_server_without_undrop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnityCatalog, "request", lambda *_: {"endpoints": ["GET /v1/other"]})
    catalog = UnityCatalog(host="http://127.0.0.1:9", name="main", token="t")
    with pytest.raises(CatalogRejected, match="has no undrop"):
        dropped_tables.dropped_tables(catalog, "main.sales")


def test_databricks_does_it_by_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was never run on a workspace: the statements, and how the rows are read."""
    now, said = dt.datetime(2026, 1, 31, tzinfo=dt.UTC), list[str]()
    rows = [
        {"tableName": "orders", "tableId": str(day), "owner": "etl", "deletedAt": now + dt.timedelta(days=day)}
        for day in (1, 2)
    ]
    monkeypatch.setattr(SqlWarehouse, "rows", lambda _, text: said.append(text) or rows)
    monkeypatch.setattr(SqlWarehouse, "run", lambda _, texts: said.extend(texts))
    monkeypatch.setenv("UNITY_WAREHOUSE_ID", "w")
    assert Settings().unity_warehouse_id == "w"
    catalog = UnityCatalog(host="http://127.0.0.1:9", name="main", token="t")
    last = dropped_tables.dropped_table(catalog, "main.sales.Orders")
    assert last == DroppedTable("main.sales.orders", "2", "etl", now + dt.timedelta(days=2))
    dropped_tables.undrop(catalog, last)
    assert said == ["SHOW TABLES DROPPED IN `main`.`sales`", "UNDROP TABLE WITH ID '2'"]
    with pytest.raises(CatalogRejected, match="not on request"):
        dropped_tables.delete_dropped(catalog, last)
