"""Mistakes in declarations of syncs, named with their file, line and field; and syncs of another tool that are imported."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from ratify_lakehouse.components.syncs.sync_import import imported
from ratify_lakehouse.errors import InvalidDeclaration
from tests.components.test_declaration_mistakes import BRONZE, Mistakes, load, mistakes

__all__ = ["mistakes"]

SYNC = """type: ratify_lakehouse.Sync
attributes:
  description: Orders
  source: {table: bronze.orders}
  destination: {table: crm.orders, create_if_missing: true}
  strategy: merge
  keys: [id]
"""

BY_WAREHOUSE = SYNC + "  engine: warehouse\n"
BY_DUCKDB = SYNC.replace("merge", "append").replace("  keys: [id]\n", "") + "  engine: duckdb\n"
LEGACY = BY_WAREHOUSE.replace("crm.", "hive_metastore.crm.")


@pytest.mark.parametrize(
    ("declaration", "place", "reason"),
    [
        (SYNC.replace("merge", "upsert"), "line 6, strategy", "not 'upsert'"),
        (SYNC.replace("strategy", "strategie"), "defs.yaml:6", "strategie"),
        (SYNC.replace("orders}", "order}"), "line 4, source", "Did you mean bronze.orders?"),
        (SYNC.replace("{table: bronze.orders}", "{table: orders}"), "line 4, source.table", "is not a table name"),
        (SYNC.replace("{table: bronze.orders}", "{}"), "line 4, source", "give one of table, sql and file"),
        (SYNC.replace("{table: bronze.orders}", "{file: x.txt}"), "line 4, source.file", "does not tell its format"),
        (SYNC.replace("{table: bronze.orders}", "{sql: x.sql}"), "line 4, source.sql", "x.sql does not exist"),
        (SYNC.replace("crm.orders", "bronze.orders"), "line 5, destination.table", "made by an asset of the project"),
        (SYNC.replace("crm.", "hive_metastore.crm."), "line 5, destination.table", "set `engine: warehouse`"),
        (LEGACY, "line 5, destination.create_if_missing", "a sync creates none"),
        (BY_WAREHOUSE.replace("warehouse", "snowflake"), "line 8, engine", "not 'snowflake'"),
        (BY_DUCKDB + "  batch: 10\n", "line 8, batch", "only the engine warehouse"),
        (BY_DUCKDB.replace("{table: bronze.orders}", "{sql: ../orders.sql}"), "line 4, source.engine", "`engine: duckdb`"),
        (BY_WAREHOUSE.replace("merge", "scd2"), "line 6, strategy", "has no strategy scd2"),
        (
            BY_WAREHOUSE.replace("merge", "cdc") + "  events: {operation: op, sequence_by: seq}\n",
            "line 6, strategy",
            "no strategy cdc",
        ),
        (BY_WAREHOUSE.replace("merge", "mirror") + "  delete: {tracked: true}\n", "line 9, delete", "has no `tracked`"),
        (BY_WAREHOUSE + "  on_error: skip\n", "line 9, on_error", "has no dead letters"),
        (BY_WAREHOUSE + "  batch: 0\n", "defs.yaml:9", "batch"),
        (SYNC + "  batch: 10\n", "line 8, batch", "only the engine warehouse"),
        (SYNC.replace("  keys: [id]\n", ""), "keys", "name at least one column"),
        (SYNC.replace("[id]", "[id, ID]"), "line 7, keys", "named twice"),
        (SYNC.replace("merge", "append"), "line 7, keys", "does not find rows by keys"),
        (SYNC.replace("merge", "cdc"), "events", "needs to know which columns make a row an event"),
        (SYNC + "  delete: {tracked: true}\n", "line 8, delete", "only the strategy mirror"),
        (SYNC + "  delete: {max_fraction: 2}\n", "defs.yaml:8", "max_fraction"),
        (SYNC + "  history: {updated_at: at}\n", "line 8, history", "only the strategy scd2"),
        (
            SYNC.replace("merge", "scd2") + "  unique: {latest: [at]}\n",
            "line 8, unique",
            "only the strategy merge or mirror",
        ),
        (SYNC + "  columns: [{name: a, cast: money}]\n", "line 8, columns[0].cast", "type 'money'"),
        (SYNC + "  columns: [{name: a b}]\n", "line 8, columns[0].name", "not a plain identifier"),
        (SYNC + "  schedule: every day\n", "line 8, schedule", "not a cron expression"),
    ],
)
def test_in_a_sync(mistakes: Mistakes, declaration: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("syncs/orders", declaration)
    (mistakes.root / "syncs" / "orders.sql").write_text("SELECT * FROM bronze.orders")
    error = mistakes.error()
    assert f"syncs/orders/defs.yaml, {place}" in error or (place in error and "syncs/orders" in error)
    assert reason in error


@pytest.mark.parametrize("strategy", ["mirror", "full"])
def test_two_syncs_that_own_the_same_rows(mistakes: Mistakes, strategy: str) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("syncs/orders", SYNC)
    other = SYNC.replace("merge", strategy).replace("  keys: [id]\n", "" if strategy == "full" else "  keys: [id]\n")
    mistakes.write("syncs/returns", other)
    error = mistakes.error()
    assert "returns deletes all rows that its own source does not have" in error
    assert "line 6, strategy" in error


def test_a_sync_has_a_folder_of_its_own(mistakes: Mistakes) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("gold/orders", SYNC)
    assert "move it there" in mistakes.error()


def test_a_sync_is_an_asset_downstream_of_its_source(mistakes: Mistakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIFY_TIME_ZONE", "Europe/Berlin")
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("syncs/orders", SYNC)
    mistakes.write("syncs/nightly", SYNC.replace("crm.orders", "crm.nightly") + "  schedule: 0 6 * * *\n")
    defs = mistakes.tables().definitions
    assets = [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)]
    specs = {spec.key.to_user_string(): spec for each in assets for spec in each.specs}
    for name, automated in (("orders", True), ("nightly", False)):
        spec = specs[f"syncs/{name}"]
        assert [dep.asset_key.path[1:] for dep in spec.deps] == [["bronze", "orders"]]
        assert (spec.group_name, bool(spec.automation_condition)) == ("syncs", automated)
    schedules = [each for each in defs.schedules or () if isinstance(each, dg.ScheduleDefinition)]
    found = [(each.name, each.cron_schedule, each.execution_timezone) for each in schedules]
    assert found == [("sync_nightly", "0 6 * * *", "Europe/Berlin")]


DRT = """name: active users
description: Users of the last month
model: ref('active_users')
destination:
  type: databricks
  host_env: DATABRICKS_HOST
  http_path_env: DATABRICKS_HTTP_PATH
  token_env: DATABRICKS_TOKEN
  catalog: main
  schema: analytics
  table: active_users
  mode: merge
  upsert_key: [user_id, region]
sync:
  mode: mirror
  batch_size: 500
  on_error: skip
"""


def test_a_sync_of_another_tool_is_imported(tmp_path: Path, mistakes: Mistakes) -> None:
    file = tmp_path / "users.yml"
    file.write_text(DRT)
    made = imported(file)
    assert made.name == "active_users"
    declaration = yaml.safe_load(made.files["defs.yaml"])
    assert declaration["attributes"] == {
        "description": "Users of the last month",
        "source": {"table": "gold.active_users"},
        "destination": {"table": "main.analytics.active_users"},
        "strategy": "mirror",
        "keys": ["user_id", "region"],
        "on_error": "skip",
    }
    notes = "\n".join(made.notes)
    for said in ("UNITY_HOST", "UNITY_TOKEN", "sync.batch_size was left out", "in one commit", "ref('active_users')"):
        assert said in notes
    mistakes.write("gold/active_users", BRONZE.replace("LandedFiles", "LandedFiles"))
    mistakes.write("syncs/active_users", made.files["defs.yaml"])
    load(mistakes.tables())


def test_a_sync_into_the_legacy_metastore_is_run_by_a_warehouse(tmp_path: Path, mistakes: Mistakes) -> None:
    (file := tmp_path / "users.yml").write_text(
        DRT.replace("catalog: main", "catalog: hive_metastore").replace("skip", "fail")
    )
    made = imported(file)
    attributes = yaml.safe_load(made.files["defs.yaml"])["attributes"]
    assert attributes["engine"] == "warehouse"
    assert attributes["destination"] == {"table": "hive_metastore.analytics.active_users"}
    assert "`engine: warehouse` was set" in "\n".join(made.notes)
    mistakes.write("gold/active_users", BRONZE)
    mistakes.write("syncs/active_users", made.files["defs.yaml"])
    load(mistakes.tables())


def test_a_query_of_another_tool_becomes_a_file(tmp_path: Path) -> None:
    file = tmp_path / "scores.yml"
    file.write_text(DRT.replace("ref('active_users')", "SELECT * FROM gold.scores").replace("  mode: mirror\n", ""))
    made = imported(file, "scores")
    assert made.files["scores.sql"] == "SELECT * FROM gold.scores\n"
    assert "strategy: merge" in made.files["defs.yaml"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DRT.replace("type: databricks", "type: snowflake"), "destination.type: 'snowflake'"),
        (DRT.replace("mode: merge", "mode: swap"), "destination.mode: 'swap'"),
        (DRT.replace("  upsert_key: [user_id, region]\n", ""), "destination.upsert_key"),
        (DRT.replace("  table: active_users\n", ""), "needs a schema and a table"),
        (DRT + "  colour: red\n", "sync.colour"),
        ("- 1\n", "no keys here"),
        ("a: [\n", "not YAML"),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "users.yml"
    file.write_text(text)
    with pytest.raises(InvalidDeclaration, match=r"users\.yml") as refused:
        imported(file)
    assert reason in str(refused.value)
