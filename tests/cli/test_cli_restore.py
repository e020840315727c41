"""`ratify restore`: what it shows first, what it does, and what the checks and the pages of the assets say afterwards."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli import dagster_session, engine_session
from ratify_lakehouse.cli.engine_session import Engines
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.components.checks.acknowledged_commits import commit_acknowledged
from ratify_lakehouse.definitions import interventions, table_restore
from ratify_lakehouse.definitions.interventions import Consequences
from ratify_lakehouse.delta.restore_plan import planned_restore
from ratify_lakehouse.errors import CommitConflict
from tests.components.test_yaml_tables import GOLD, GOLD_SQL, SILVER, SILVER_SQL, Shop, failed_checks, project, shop
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake", "project", "shop"]

CHECKED_HISTORY = {"table_is_intact", "written_as_reported"}


def ratify(*words: str, exit_code: int = 0) -> str:
    answer = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert answer.exit_code == exit_code, (answer.output, answer.exception)
    return answer.stdout if exit_code == 0 else answer.stderr


def share_engines(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands have the engines of the test: to open a session of Spark takes as long as a few statements."""

    @contextmanager
    def opened() -> Iterator[Engines]:
        yield Engines(lake.catalog, lake.spark, lake.duckdb)

    monkeypatch.setattr(engine_session, "engines", opened)


@pytest.fixture
def given(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The tables of the test are those of the project, and its Dagster instance is that of the command."""

    @contextmanager
    def instance() -> Iterator[dg.DagsterInstance]:
        yield shop.instance

    shop.project.shop()
    share_engines(shop.lake, monkeypatch)
    monkeypatch.setattr(interventions, "declared_tables", lambda: shop.project.tables)
    monkeypatch.setattr(dagster_session, "dagster_instance", instance)
    return shop


OWN_ENGINES = engine_session.engines
of_both_engines = pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.long)])


@pytest.fixture
def given_by(given: Shop, engine: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """As `given`, computed by DuckDB, in a tenth of the time; or by Spark, and each command opens its own engines."""
    if engine == "spark":
        monkeypatch.setattr(engine_session, "engines", OWN_ENGINES)
        return given
    by_file = "intermediate_columns: [_source_file, _source_row]\n  unique: {latest: [_source_file, _source_row]}"
    ordered = re.sub(r"intermediate_columns: .*\n  unique: .*", by_file, SILVER)
    for layer, declaration, sql in (
        ("silver", ordered, SILVER_SQL.replace("_landing", "_source_file")),
        ("gold", GOLD, GOLD_SQL),
    ):
        given.project.write(layer, "orders", declaration.replace("  keys:", "  engine: duckdb\n  keys:"), sql)
    return given


def observed(shop: Shop, table: str) -> dict[str, Any]:
    (record,) = shop.instance.fetch_observations(dg.AssetKey(["ratify", *table.split(".")]), limit=1).records
    assert record.asset_observation
    return {name: value.value for name, value in record.asset_observation.metadata.items()}


@pytest.mark.stack
@pytest.mark.long
def test_a_table_of_landed_files_is_restored(given: Shop) -> None:
    name = f"{given.project.schema('bronze')}.orders"
    silver, gold = (f"{given.project.schema(layer)}.orders" for layer in ("silver", "gold"))
    given.land("1.csv", "1,Ann,2.50,2026-01-01\n2,Bob,3.00,2026-01-01\n")
    assert failed_checks(given.run()) == set()
    given.land("2.csv", "3,Cid,9.00,2026-01-02\n")
    assert failed_checks(given.run()) == set()
    assert given.rows("gold", "orders, amount")[0][0] == 1

    planned = json.loads(ratify("restore", name, "--version", "1", "--dry-run", "--json"))
    (undone,) = planned["undone"]
    assert (undone["version"], undone["engine"], undone["operation"]) == (2, "DuckDB", "WRITE")
    assert (planned["removed"]["rows"], planned["added"]["rows"]) == (1, 0)
    assert planned["rows"] == {"before": 3, "after": 2}
    assert planned["its next run"] == "files that it has loaded are not loaded again"
    assert planned["readers"] == {silver: "its next run computes all rows"}
    assert (planned["run next"], planned["restored in"]) == ([silver, f"{silver}_quarantine", gold], None)
    assert len(planned["loads that are not loaded again"]) == 2

    printed = ratify("restore", name, "--version", "1", "--dry-run")
    assert "It would be restored to version 1 of" in printed
    assert "Streams of its rows end with an error" in printed
    assert f"Run next: {silver}" in printed
    assert given.lake.catalog.version(f"ratify.{name}") == 2

    printed = ratify("restore", name, "--version", "1", "--reason", "2.csv was of another shop")
    assert "in version 3." in printed
    assert [row[0] for row in given.rows("bronze", "order_id")] == [1, 2]
    seen = observed(given, name)
    assert (seen["restored to version"], seen["Delta version"], seen["rows removed"]) == (1, 3, 1)
    assert seen["reason"] == "2.csv was of another shop"
    # The checks accept it, and say why; the next run goes on, and what follows has the rows that are left.
    done = given.run()
    assert failed_checks(done) == set()
    intact = [each for each in done.get_asset_check_evaluations() if each.check_name == "table_is_intact"]
    shown = [str(each.metadata.get("acknowledged commits")) for each in intact if ".".join(each.asset_key.path[1:]) == name]
    assert "RESTORE: 2.csv was of another shop" in shown[0]
    assert [row[0] for row in given.rows("silver", "order_id")] == [1, 2]
    assert "there is nothing to restore" in ratify("restore", name, "--version", "1", "--reason", "again")


@pytest.mark.stack
@of_both_engines
def test_rows_by_key_and_a_run_in_progress(given_by: Shop, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, write = given_by, given_by.lake.run if engine == "spark" else given_by.lake.quick
    given.land("1.csv", "1,Ann,2.50,2026-01-01\n2,Bob,3.00,2026-01-01\n3,Cid,1.00,2026-01-02\n")
    given.run(checks=False)
    name, key = f"{given.project.schema('silver')}.orders", dg.AssetKey(["ratify", given.project.schema("silver"), "orders"])
    table = f"ratify.{name}"
    version = given.lake.catalog.version(table)
    write(f"UPDATE {table} SET amount = 7 WHERE order_id = 1")
    write(f"DELETE FROM {table} WHERE order_id = 2")
    words = ("restore", name, "--version", str(version))
    planned = json.loads(ratify(*words, "--dry-run", "--json"))
    assert planned["by key"] == {"gone": 0, "back": 1, "other": 1}
    assert "its next run makes it equal to its query again" in ratify(*words, "--dry-run")

    monkeypatch.setattr(interventions, "targeted_by_runs", lambda _: {key: "a run"})
    message = ratify(*words, "--reason", "by mistake", exit_code=1)
    assert "TableInUse" in message
    assert "Run a run is in progress and targets" in message
    assert given.lake.catalog.version(table) == version + 2
    monkeypatch.setattr(table_restore, "MOST_ROWS", 1)
    assert json.loads(ratify(*words, "--dry-run", "--json"))["by key"] is None


@pytest.mark.stack
def test_another_writer_commits_after_the_preview(lake: Lakehouse) -> None:
    table = lake.create(pairs(), "VALUES (1, 'a')")
    lake.insert(table, "VALUES (1, 'a')")
    plan = planned_restore(lake.another_duckdb().log(lake.full(table)), 1)
    append(lake.duckdb, table, "SELECT 2::BIGINT, 'b'", "three")
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(CommitConflict, match="was at version 2, and is at 3"):
        table_restore.restore_table(lake.spark, instance, plan, Consequences(None, "", {}, ()), "why")
    assert len(lake.stored(table)) == 3
    delete = f"DELETE FROM {lake.full(table)} WHERE id = 5"
    assert commit_acknowledged(lake.spark, lake.full(table), lambda: lake.run(delete), "why", 3) is None


def test_what_is_asked_for_wrongly() -> None:
    for words in ((), ("--version", "1", "--time", "2026-01-01")):
        assert "give a version or a time" in ratify("restore", "bronze.t", *words, "--dry-run", exit_code=2)
    assert "give the reason" in ratify("restore", "bronze.t", "--version", "1", exit_code=2)
    message = ratify("restore", "bronze.t", "--time", "yesterday", "--dry-run", exit_code=2)
    assert "not a time such as 2026-01-31T10:00" in message
