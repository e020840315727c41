"""`ratify care`: what it shows, and what it does."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli import care_command
from orchestration.cli.main import app
from resources.delta.maintenance_rules import MaintainedTable, Manager, rules_of
from tests.orchestration.test_cli_repair import ratify
from tests.resources.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]


@pytest.mark.stack
def test_care(lake: Lakehouse) -> None:
    table = pairs(properties={"delta.enableRowTracking": "false"})
    lake.spark.ensure_table(table)
    name = f"bronze.{table.name}"
    for load in range(3):
        append(lake.duckdb, table, f"SELECT {load}::BIGINT, 'a'", f"load {load}")
    shown: dict[str, Any] = json.loads(ratify("care", name, "--json"))
    assert (shown["table"], shown["managed by"]) == (lake.full(table), "a catalog that says what it permits")
    figures = shown["figures"]
    assert figures.pop("bytes") > 0
    assert figures == {
        "version": 3, "files": 3, "small files": 3, "deletion vectors": 0, "deleted rows": 0, "log versions": 4,
        "since checkpoint": 4, "unpublished": 0,
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
    assert lake.rows(table) == [(0, "a"), (1, "a"), (2, "a")]


def test_every_operation_is_a_row() -> None:
    rows = care_command._operations(rules_of(MaintainedTable("c.s.t", Manager.EXTERNAL)))
    assert [row["operation"] for row in rows] == ["checkpoint", "compact", "clean", "clean_log", "restore"]
    assert rows[1]["by, or instead"] == "OPTIMIZE c.s.t in Spark"
