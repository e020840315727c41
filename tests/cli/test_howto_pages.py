"""How-to pages, word for word, on the tables of the tutorial, which DuckDB computes here.

tests/cli/test_accept.py has fix-a-refused-file.md.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands_in_project import CommandProject
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.page_reader import blocks, merged

pytestmark = pytest.mark.server

LANDED = ".ratify/landing/till"
HEADER = "Order ID,Customer Name,Amount (EUR),Placed At\n"
FIRST = f"{HEADER}1,Ann,2.50,2026-01-05 18:00\n2, Bob ,3.00,2026-01-05 18:20\n3,Cid,-1,2026-01-05 18:45\n"
PRODUCTS = """type: ratify_lakehouse.LandedFiles
attributes:
  description: Products, as they came
  pattern: products/*.csv
  columns: [{name: code, type: string}, {name: name, type: string}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[CommandProject]:
    """The project of the tutorial, whose tables exist."""
    with catalog_here(tmp_path / "catalog") as address, CommandProject(tmp_path / "my-lake", address) as project:
        for block in blocks("docs/tutorial.md"):
            if block.file and block.file.startswith("assets/"):
                by_duckdb = "SqlTable" in block.text
                text = merged(block.text, "attributes: {engine: duckdb}") if by_duckdb else block.text
                project.write(block.file, text)
        project.write(f"{LANDED}/monday.csv", FIRST)
        updated(project, "bronze.orders")
        yield project


def updated(project: CommandProject, table: str) -> dict[str, Any]:
    """Run a table and those that are computed from it; return the rows of each."""
    done = project.run(f"ratify run {table} --downstream --json")
    assert done.code == 0, done.err
    return {row["table"]: row["rows"] for row in json.loads(done.out)}


def rows(project: CommandProject, query: str) -> list[tuple[Any, ...]]:
    asked = project.run(f'ratify sql "{query}" --json')
    assert asked.code == 0, asked.err
    return [tuple(row.values()) for row in json.loads(asked.out)]


def test_a_row_in_quarantine_is_corrected(project: CommandProject) -> None:
    """The replay of a stream, which needs Spark, is left to the tests of the sample."""
    replays = [
        line for block in blocks("docs/howto/quarantine-and-replay.md") for line in block.commands if "replay" in line
    ]
    assert len(replays) == 2
    project.follow("docs/howto/quarantine-and-replay.md", elsewhere=replays)
    assert rows(project, "SELECT count(*) FROM silver.orders_quarantine") == [(0,)]
    assert rows(project, "SELECT * FROM gold.sales") == [("2026-01-05", 3, "6.50")]


@pytest.mark.long
def test_a_column_is_added(project: CommandProject) -> None:
    project.write("assets/bronze/products/defs.yaml", PRODUCTS)
    project.write(".ratify/landing/products/1.csv", "code,name\nA,Apple\n")
    assert updated(project, "bronze.products") == {"bronze.products": 1}
    project.follow("docs/howto/add-a-column.md")
    assert rows(project, "SELECT order_id, cents FROM silver.orders ORDER BY order_id") == [(1, 250), (2, 300)]
    project.write(".ratify/landing/products/2.csv", "code,name,colour\nB,Pear,green\n")
    assert updated(project, "bronze.products") == {"bronze.products": 2}
    assert rows(project, "SELECT code, colour FROM bronze.products ORDER BY code") == [("A", None), ("B", "green")]
    project.write(f"{LANDED}/tuesday.csv", f"{HEADER.strip()},Till\n4,Dee,4.00,2026-01-06 18:00,2\n")
    assert updated(project, "bronze.orders")["bronze.orders"] == 4
    assert rows(project, "SELECT till FROM bronze.orders WHERE order_id = 4") == [(2,)]


@pytest.mark.long
def test_a_column_is_renamed(project: CommandProject) -> None:
    project.follow("docs/howto/rename-a-column.md")
    assert rows(project, "SELECT orders, euros FROM gold.sales") == [(2, "5.50")]
    for table in ("bronze.till_orders", "bronze.declared_orders"):
        assert updated(project, table) == {table: 3}
        assert rows(project, f"SELECT number FROM {table} ORDER BY number") == [(1,), (2,), (3,)]


@pytest.mark.long
def test_a_day_is_computed_again(project: CommandProject) -> None:
    project.follow("docs/howto/reprocess-a-day.md")
    assert rows(project, "SELECT * FROM gold.sales") == [("2026-01-05", 2, "5.50")]
    wrong = project.run("ratify reprocess 2025-12-31")
    assert wrong.code == 1
    assert "2026-01-01" in wrong.err
