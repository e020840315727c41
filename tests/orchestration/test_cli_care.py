"""`ratify care`: what it shows, and what it does."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from components.table_asset import asset_key
from components.table_component import CaredTable
from orchestration import table_care
from orchestration.cli import care_command, care_run
from orchestration.cli.main import app
from resources.delta.care_need import TableCare
from resources.delta.maintenance_rules import MaintainedTable, Manager, rules_of
from tests.orchestration.test_cli_repair import ratify
from tests.resources.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


@pytest.mark.stack
def test_care(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={"delta.enableRowTracking": "false"}))
    name = f"bronze.{table.name}"
    for load in range(3):
        append(lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
    shown: dict[str, Any] = json.loads(ratify("care", name, "--json"))
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
    assert shown["operations"][1]["by, or instead"] == f"`ratify care {lake.full(table)} --compact`"
    assert f"{lake.full(table)}, managed by a catalog" in ratify("care", name)
    assert "3 files are 1 now; no row changed." in ratify("care", name, "--compact", "--sort", "v, id")
    assert json.loads(ratify("care", name, "--compact", "--json")) == []
    refused = CliRunner().invoke(app, ["care", name, "--compact", "--sort", "nothing"])
    assert refused.exit_code == 1
    assert "has no column nothing to sort by: use id, v." in " ".join(refused.stderr.split())
    assert lake.stored(table) == [(0, "a"), (1, "a"), (2, "a")]


@pytest.mark.stack
def test_all_tables_by_need(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = TableCare(small_files=2)
    cares = [TableCare(), eager, TableCare(small_files=2, enabled=False), eager, eager]
    few, many, never, broken, missing = tables = [pairs() for _ in cares]
    for table in (few, many, never, broken):
        lake.create(table)
        for load in range(1 + (table is many) + 2 * (table is never)):
            append(lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
    (lake.folder(lake.full(broken)) / "_delta_log" / f"{0:020d}.json").unlink()
    declared = {asset_key(table): CaredTable(table, care) for table, care in zip(tables, cares, strict=True)}
    for module in (care_run, table_care):
        monkeypatch.setattr(module, "declared_tables", lambda: SimpleNamespace(cared=declared))

    rows = {row.pop("table"): row for row in json.loads(ratify("care", "--json"))}
    assert list(rows) == [table.table_name for table in (broken, never, many, few, missing)]
    assert rows[broken.table_name]["why"].startswith("LogUnreadable: ")
    assert rows[missing.table_name]["why"] == "nothing has made it yet"
    assert rows[many.table_name].pop("MB") > 0
    assert rows[many.table_name] == {
        "files": 2, "small files": 2, "mergeable files": 2, "deleted rows": 0, "versions since checkpoint": 3,
        "due": "compact", "why": "2 of 2 files can become fewer (limit 2 and 20%)",
    }  # fmt: skip
    assert rows[never.table_name]["why"].endswith("; its care is switched off")
    assert (rows[few.table_name]["due"], rows[few.table_name]["why"]) == ("", "")
    assert "care --due` does it now." in ratify("care")

    done = CliRunner().invoke(app, ["care", "--due", "--json"])
    assert done.exit_code == 1
    assert f"Not cared for, for the reasons above: {lake.full(broken)}." in " ".join(done.stderr.split())
    assert {row["table"]: row["care"] for row in json.loads(done.stdout)} == {
        few.table_name: "not due",
        many.table_name: "cared for",
    }
    assert [lake.version(table) for table in (few, many, never)] == [1, 3, 3]
    del declared[asset_key(broken)]
    (row,) = json.loads(ratify("care", many.table_name, "--due", "--json"))
    assert (row["care"], row["files before"], row["files after"]) == ("not due", 1, 1)
    refused = CliRunner().invoke(app, ["care", "bronze.nothing", "--due"])
    assert refused.exit_code == 1
    assert "the project declares no such table" in refused.stderr
    assert CliRunner().invoke(app, ["care", "--compact"]).exit_code == 2


def test_every_operation_is_a_row() -> None:
    rows = care_command._operations(rules_of(MaintainedTable("c.s.t", Manager.EXTERNAL)))
    assert [row["operation"] for row in rows] == ["checkpoint", "compact", "clean", "clean_log", "restore"]
    assert rows[1]["by, or instead"] == "OPTIMIZE c.s.t in Spark"
