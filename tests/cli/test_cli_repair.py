"""`ratify repair` and `ratify clean`: what they say, and what they do."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import dagster as dg
import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli.main import app
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions import table_cleaning
from ratify_lakehouse.delta.table_clean import RETENTION
from ratify_lakehouse.errors import TableMissing
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


def ratify(*words: str) -> str:
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.mark.stack
def test_repair(lake: Lakehouse) -> None:
    table = lake.create(pairs())
    name, log = f"bronze.{table.name}", lake.another_duckdb().log(lake.full(table))
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "day:[1]")
    assert json.loads(ratify("repair", name, "--json")) == []
    (loaded,) = log.files(log.refresh())
    lake.insert(table, "VALUES (2, 'b')")
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
    assert lake.stored(table) == []
    assert "(no rows)" in ratify("repair", name)


def with_an_old_file(lake: Lakehouse, table: TableDeclaration) -> Path:
    """Create a table with a file that its log does not name, ten days older than its newest."""
    lake.ensure(table)
    folder = lake.another_duckdb().log(lake.full(table)).storage.local
    assert folder
    left = folder / "left.parquet"
    left.write_bytes(b"PAR1")
    os.utime(left, (folder.stat().st_mtime - 864_000,) * 2)
    return left


@pytest.mark.stack
def test_clean(lake: Lakehouse) -> None:
    table = pairs()
    left, name = with_an_old_file(lake, table), f"bronze.{table.name}"
    planned = json.loads(ratify("clean", name, "--dry-run", "--json"))
    assert planned == [{"file": "left.parquet", "kind": "data file", "bytes": 4}]
    assert "1 file would be removed." in ratify("clean", name, "--dry-run")
    assert left.exists()
    assert "1 file removed." in ratify("clean", lake.full(table))
    assert not left.exists()
    assert "(no rows)" in ratify("clean", name)


@pytest.mark.stack
def test_clean_of_old_versions(lake: Lakehouse) -> None:
    table = pairs(properties={RETENTION: "interval 1 hour"})
    left, name = with_an_old_file(lake, table), f"bronze.{table.name}"
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    lake.run(f"DELETE FROM {lake.full(table)}")
    later = time.time() + 2 * 3600
    newest = left.with_name("newest")
    newest.touch()
    os.utime(newest, (later, later))
    with mock.patch.object(time, "time", return_value=later):
        planned = ratify("clean", name, "--old-versions", "--dry-run")
        assert "old version" in planned
        assert "could not be read any more" in planned
        assert "old version" not in ratify("clean", name, "--dry-run")
        assert "cannot be read any more" in ratify("clean", name, "--old-versions")
    assert lake.stored(table) == []


@pytest.mark.stack
def test_the_job_cleans_the_tables_that_it_can(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable, table, never_made = pairs(), pairs(), pairs()
    left = with_an_old_file(lake, table)
    (with_an_old_file(lake, unreadable).parent / "_delta_log" / f"{0:020d}.json").unlink()
    declared = {dg.AssetKey(made.name): made for made in (unreadable, never_made, table)}
    monkeypatch.setattr(table_cleaning, "declared_tables", lambda: SimpleNamespace(declarations=declared))
    duckdb = lake.another_duckdb()
    resources = {"catalog": lake.catalog, "duckdb": duckdb}
    ran = table_cleaning.clean_job.execute_in_process(resources=resources, raise_on_error=False)
    assert not ran.success
    (failed,) = ran.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data
    assert lake.full(unreadable) in str(failed.step_failure_data.user_failure_data.description)
    assert not left.exists()
    with pytest.raises(TableMissing):
        duckdb.log(lake.full(never_made)).refresh()
    del declared[dg.AssetKey(unreadable.name)]
    with_an_old_file(lake, table)
    assert table_cleaning.clean_job.execute_in_process(resources=resources).success
    assert not left.exists()
