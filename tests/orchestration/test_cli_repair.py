"""`ratify repair`: what it says, and what it does."""

import json

import pytest
from typer.testing import CliRunner

from orchestration.cli.main import app
from tests.resources.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


def ratify(*words: str) -> str:
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.mark.stack
def test_repair(lake: Lakehouse) -> None:
    table = pairs()
    lake.spark.ensure_table(table)
    name, log = f"bronze.{table.name}", lake.another_duckdb().log(lake.full(table))
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "day:[1]")
    assert json.loads(ratify("repair", name, "--json")) == []
    (loaded,) = log.files(log.refresh())
    lake.run(f"INSERT INTO {lake.full(table)} VALUES (2, 'b')")
    (inserted,) = [file for file in log.files(log.refresh()) if file.path != loaded.path]
    for file in (loaded, inserted):
        log.storage.remove(file.path)

    output = ratify("repair", name, "--dry-run")
    assert "2 files would be taken out." in output
    assert lake.version(table) == 2
    planned = json.loads(ratify("repair", lake.full(table), "--dry-run", "--json"))
    assert {row.pop("file") for row in planned} == {loaded.path, inserted.path}
    by_spark, ours = sorted(planned, key=lambda row: row.pop("written by"))
    assert by_spark == {"rows": 1, "version": 2, "rows come back": False}
    assert ours == {"rows": 1, "version": 1, "rows come back": True}

    output = ratify("repair", name)
    assert "2 files taken out in version 3." in output
    assert "Load again:\n  day:[1]\n" in output
    assert "Rows that no load brings back: 1." in output
    assert lake.rows(table) == []
    assert "(no rows)" in ratify("repair", name)
