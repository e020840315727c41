"""`ratify sql`: a statement, or a file of one, and the column that queries of landed files may read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli import sql_command
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.components.landing_order import with_landing
from ratify_lakehouse.ingest.file_source import LOAD_COLUMNS
from tests.cli.conftest import LoadTarget
from tests.cli.ratify_command import invoke


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that an engine gets."""
    asked = list[str]()
    for engine in ("_spark_rows", "_duckdb_rows"):
        monkeypatch.setattr(sql_command, engine, lambda query: asked.append(query) or [{"v": "[red]x[/red]"}])
    return asked


def test_a_project_without_spark_asks_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("_spark_rows", "_duckdb_rows"):
        monkeypatch.setattr(sql_command, engine, lambda query, engine=engine: [{"asked": engine}])
    for remote, words, engine in (
        ("", [], "spark"),
        ("none", [], "duckdb"),
        ("none", ["--engine", "spark"], "spark"),
        ("", ["--engine", "duckdb"], "duckdb"),
    ):
        answer = CliRunner().invoke(app, ["sql", "SELECT 1", "--json", *words], env={"SPARK_REMOTE": remote})
        assert f"_{engine}_rows" in answer.stdout
    refused = CliRunner().invoke(app, ["sql", "SELECT _landing FROM a.b"], env={"SPARK_REMOTE": "none", "COLUMNS": "200"})
    assert (refused.exit_code, "this project runs without it" in refused.stderr) == (2, True)


def test_a_file_or_a_statement(tmp_path: Path, asked: list[str]) -> None:
    (file := tmp_path / "größte.sql").write_text("-- 'ü'\nSELECT 1;\n", encoding="utf-8")
    for query in (str(file), "SELECT * FROM bronze.sql", "SELECT 1"):
        answer = CliRunner().invoke(app, ["sql", query, "--engine", "duckdb"])
        assert (answer.exit_code, "[red]x[/red]" in answer.stdout) == (0, True)
    assert asked == [file.read_text(encoding="utf-8"), "SELECT * FROM bronze.sql", "SELECT 1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["gone.sql"], "there is no file gone.sql"), (["SELECT _landing FROM a.b", "--engine", "duckdb"], "only Spark knows")],
)
def test_what_cannot_be_run_is_refused_before_an_engine_starts(asked: list[str], words: list[str], said: str) -> None:
    answer = CliRunner().invoke(app, ["sql", *words], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert (answer.exit_code, said in answer.stderr, asked) == (2, True, [])


class CatalogOfTables:
    """A catalog with the ledger, a table of landed files, and another."""

    connection = SimpleNamespace(name="ratify")

    def table(self, full_name: str) -> Any:
        columns = ["id", *(column.name for column in LOAD_COLUMNS)] if full_name != "ratify.silver.orders" else ["id"]
        return SimpleNamespace(columns=[SimpleNamespace(name=name) for name in columns], table_id="1234")


def test_tables_of_landed_files_have_the_column_of_their_landing() -> None:
    spark: Any = SimpleNamespace(catalog=CatalogOfTables(), sql_name=lambda _: "ratify.ops.landed_files")
    text = with_landing(spark, "SELECT id, _landing.version FROM bronze.orders JOIN silver.orders AS s USING (id)")
    assert text.startswith("SELECT id, _landing.version FROM (\n")
    assert "FROM ratify.bronze.orders" in text
    assert "'1234'" in text
    assert text.endswith(") AS orders JOIN ratify.silver.orders AS s USING (id)")


@pytest.mark.server
def test_without_spark_duckdb_runs_a_statement_also_one_that_drops_a_table(target: LoadTarget, tmp_path: Path) -> None:
    def answer(query: str) -> tuple[int, str]:
        done = invoke(tmp_path, "sql", query, "--json", SPARK_REMOTE="none", **target.environment)
        return done.returncode, done.stdout + done.stderr

    assert answer("SELECT count(*) AS n FROM bronze.products") == (0, '[\n  {\n    "n": 0\n  }\n]\n')
    assert answer("drop table bronze.products;") == (0, "[]\n")
    assert answer("DROP TABLE IF EXISTS bronze.products") == (0, "[]\n")
    code, said = answer("DROP TABLE uc.bronze.products")
    assert (code, "could not drop ratify.bronze.products" in said) == (1, True)
