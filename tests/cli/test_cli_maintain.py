"""`ratify maintain`: what it shows, and what it does."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli import maintain_command, maintenance_run
from ratify_lakehouse.cli.main import app
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.definitions import table_maintenance
from ratify_lakehouse.delta.maintenance_need import TableMaintenance
from ratify_lakehouse.delta.maintenance_rules import GovernedTable, Manager, rules_of
from tests.cli.test_cli_repair import ratify
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


@pytest.mark.stack
def test_maintenance(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={"delta.enableRowTracking": "false"}))
    name = f"bronze.{table.name}"
    for load in range(3):
        append(lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
    shown: dict[str, Any] = json.loads(ratify("maintain", name, "--json"))
    assert (shown["table"], shown["managed by"]) == (lake.full(table), "a catalog that says what it permits")
    figures = shown["figures"]
    assert figures.pop("bytes") > 0
    assert figures == {
        "version": 3, "files": 3, "rows": 3, "small files": 3, "mergeable files": 3, "deletion vectors": 0,
        "deleted rows": 0, "droppable rows": 0, "log versions": 4, "since checkpoint": 4, "unpublished": 0,
    }  # fmt: skip
    assert [(row["operation"], row["allowed"]) for row in shown["operations"]] == [
        ("checkpoint", True),
        ("compact", True),
        ("clean", True),
        ("clean_log", True),
        ("restore", True),
    ]
    assert shown["operations"][1]["by, or instead"] == f"`ratify maintain {lake.full(table)} --compact`"
    assert f"{lake.full(table)}, managed by a catalog" in ratify("maintain", name)
    assert "3 files are 1 now; no row changed." in ratify("maintain", name, "--compact", "--sort", "v, id")
    assert json.loads(ratify("maintain", name, "--compact", "--json")) == []
    refused = CliRunner().invoke(app, ["maintain", name, "--compact", "--sort", "nothing"])
    assert refused.exit_code == 1
    assert "has no column nothing to sort by: use id, v." in " ".join(refused.stderr.split())
    assert lake.stored(table) == [(0, "a"), (1, "a"), (2, "a")]


@pytest.mark.stack
def test_all_tables_by_need(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = TableMaintenance(small_files=2)
    thresholds = [TableMaintenance(), eager, TableMaintenance(small_files=2, enabled=False), eager, eager]
    few, many, never, broken, missing = tables = [pairs() for _ in thresholds]
    for table in (few, many, never, broken):
        lake.create(table)
        for load in range(1 + (table is many) + 2 * (table is never)):
            append(lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
    (lake.folder(lake.full(broken)) / "_delta_log" / f"{0:020d}.json").unlink()
    declared = {
        asset_key(table): MaintainedTable(table, maintenance) for table, maintenance in zip(tables, thresholds, strict=True)
    }
    for module in (maintenance_run, table_maintenance):
        monkeypatch.setattr(module, "declared_tables", lambda: SimpleNamespace(maintained=declared))

    rows = {row.pop("table"): row for row in json.loads(ratify("maintain", "--json"))}
    assert list(rows) == [table.table_name for table in (broken, never, many, few, missing)]
    assert rows[broken.table_name]["why"].startswith("LogUnreadable: ")
    assert rows[missing.table_name]["why"] == "it does not exist yet"
    assert rows[many.table_name].pop("MB") > 0
    assert rows[many.table_name] == {
        "files": 2, "small files": 2, "mergeable files": 2, "deleted rows": 0, "versions since checkpoint": 3,
        "due": "compact", "why": "2 of 2 files can become fewer (limit 2 and 20%)",
    }  # fmt: skip
    assert rows[never.table_name]["why"].endswith("; its maintenance is switched off")
    assert (rows[few.table_name]["due"], rows[few.table_name]["why"]) == ("", "")
    assert "maintain --due` does it now." in " ".join(ratify("maintain").split())

    done = CliRunner().invoke(app, ["maintain", "--due", "--json"])
    assert done.exit_code == 1
    assert f"Not maintained, for the reasons above: {lake.full(broken)}." in " ".join(done.stderr.split())
    assert {row["table"]: row["outcome"] for row in json.loads(done.stdout)} == {
        few.table_name: "not due",
        many.table_name: "maintained",
    }
    assert [lake.version(table) for table in (few, many, never)] == [1, 3, 3]
    del declared[asset_key(broken)]
    (row,) = json.loads(ratify("maintain", many.table_name, "--due", "--json"))
    assert (row["outcome"], row["files before"], row["files after"]) == ("not due", 1, 1)
    refused = CliRunner().invoke(app, ["maintain", "bronze.nothing", "--due"])
    assert refused.exit_code == 1
    assert "the project declares no such table" in refused.stderr
    assert CliRunner().invoke(app, ["maintain", "--compact"]).exit_code == 2


def test_every_operation_is_a_row() -> None:
    rows = maintain_command._operations(rules_of(GovernedTable("c.s.t", Manager.EXTERNAL)))
    assert [row["operation"] for row in rows] == ["checkpoint", "compact", "clean", "clean_log", "restore"]
    assert rows[1]["by, or instead"] == "OPTIMIZE c.s.t in Spark"
