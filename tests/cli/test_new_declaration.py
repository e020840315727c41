"""`ratify ingest` for a table that nobody has declared: its declaration is written from the files, and they are loaded."""

import gzip
import importlib
import json
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from ratify_lakehouse.cli.new_declaration import CannotDeclare, declared_from
from ratify_lakehouse.components.yaml_tables import DeclaredTables
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.landing.named_files import NamedFiles
from tests.cli.ratify_command import invoke


@pytest.fixture
def declarations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which tables are declared."""
    folder = tmp_path / "assets"
    monkeypatch.setattr(project_tables, "folder", lambda: folder)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    return folder


@pytest.mark.stack
@pytest.mark.usefixtures("stack")
def test_a_table_is_declared_created_and_loaded(home: Path, declarations: Path, tmp_path: Path) -> None:
    files, table = tmp_path / "files", f"bronze.orders_{uuid4().hex[:8]}"
    files.mkdir()
    (files / "1.csv").write_text("Order ID;Amount (EUR)\n1;2.5\n2;3\n")
    (files / "2.csv").write_text("Order ID;Amount (EUR)\n3;4\n")
    asked = invoke(home, "ingest", str(files), "--table", table, "--writers", "1", "--json")
    assert asked.returncode == 0, asked.stderr
    report = json.loads(asked.stdout)
    assert (report["loaded"], report["rows"]) == (2, 3)
    declaration = declarations / table.replace(".", "/") / "defs.yaml"
    assert f"{table} was not declared; it is now" in asked.stderr
    assert declaration.read_text() in asked.stderr
    assert yaml.safe_load(declaration.read_text()) == {
        "type": "ratify_lakehouse.LandedFiles",
        "attributes": {
            "description": "Rows of files such as 1.csv, as they came",
            "pattern": f"{table.partition('.')[2]}/*.csv",
            "csv": {"delimiter": ";"},
        },
    }
    query = f"SELECT order_id, amount_eur FROM {table} ORDER BY 1"
    rows = json.loads(invoke(home, "sql", query, "--engine", "duckdb", "--json").stdout)
    assert [tuple(row.values()) for row in rows] == [(1, 2.5), (2, 3.0), (3, 4.0)]


@pytest.mark.parametrize(
    ("table", "file", "content", "reason"),
    [
        ("orders", "1.csv", "a\n1\n", "'orders' is not a table name: write its schema and name"),
        ("bronze.or-ders", "1.csv", "a\n1\n", "is not a table name"),
        ("bronze.orders", "1.txt", "a\n1\n", "format"),
        ("bronze.orders", "1.csv", "", "cannot be declared from"),
        ("bronze.orders", "1.parquet", "no parquet", "cannot be declared from"),
        ("information_schema.orders", "1.csv", "a\n1\n", "that schema is the catalog's own"),
    ],
)
def test_what_cannot_be_declared_leaves_nothing_and_says_why(
    declarations: Path, tmp_path: Path, table: str, file: str, content: str, reason: str
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(CannotDeclare, match=reason):
        declared_from(table, NamedFiles().named(str(tmp_path / file)))
    assert not declarations.exists()


def test_a_table_of_another_kind_is_not_overwritten(declarations: Path, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n")
    other = declarations / "silver" / "orders" / "defs.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("type: ratify_lakehouse.SqlTable\n")
    with pytest.raises(CannotDeclare, match="not as a table of landed files"):
        declared_from("silver.orders", NamedFiles().named(str(tmp_path / "1.csv")))
    assert other.read_text() == "type: ratify_lakehouse.SqlTable\n"


def test_dagster_reads_the_declaration(declarations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "orders.jsonl.gz", "wb") as file:
        file.write(b'{"a": 1}\n')
    source, _ = declared_from("bronze.orders", NamedFiles().named(str(tmp_path / "orders.jsonl.gz")))
    assert source.pattern == "orders/*.jsonl.gz"
    (declarations / "__init__.py").touch()
    package = declarations.rename(tmp_path / f"tables_{uuid4().hex}")
    monkeypatch.syspath_prepend(str(tmp_path))
    (read,) = DeclaredTables(importlib.import_module(package.name)).sources
    assert (read.table_name, read.pattern, read.digest) == ("bronze.orders", source.pattern, source.digest)
