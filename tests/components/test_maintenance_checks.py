"""The check `maintained_as_declared`: what makes it warn of missing maintenance, and what it shows."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.upkeep_check import MAINTAINED, maintenance_finding, upkeep_check
from ratify_lakehouse.components.maintenance_metadata import markdown_table
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.components.table_component import MaintainedTable
from ratify_lakehouse.delta import reader_lag
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from ratify_lakehouse.delta.maintenance_inspection import Inspection
from ratify_lakehouse.delta.maintenance_need import TableMaintenance, maintenance_need
from ratify_lakehouse.delta.maintenance_rules import GovernedTable, Manager, rules_of
from ratify_lakehouse.delta.reader_lag import ReaderLag
from ratify_lakehouse.delta.table_clean import RETENTION
from ratify_lakehouse.engines.spark.commit_conf import commit_conf
from tests.delta.test_maintenance_need import NONE
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "lake"]

ALL = frozenset({"compact", "clean", "clean_log"})
FAR = ReaderLag("c.s.reader", 7200)


def look(table: GovernedTable | None = None, **figures: Any) -> Inspection:
    found = replace(NONE, **figures)
    rules = rules_of(table or GovernedTable("c.s.t", Manager.EMBEDDED, ALL))
    return Inspection(rules, found, maintenance_need(found, TableMaintenance()))


def test_a_table_in_good_order_passes_with_its_figures() -> None:
    found = maintenance_finding(look(), 7200, FAR)
    assert found.passed
    assert {name: value for name, value in found.numbers.items() if name != "maintenance"} == {
        "files": 100, "MB": 12800.0, "small files": 0, "mergeable files": 0, "deleted rows": 0,
        "versions since checkpoint": 4, "unpublished commits": 0, "hours of the longest lag": 2.0, "hours of retention": 2.0,
    }  # fmt: skip
    lines = found.numbers["maintenance"].value.splitlines()
    assert lines[0] == "Managed by a catalog that says what it permits."
    assert lines[2] == "| operation | allowed | by, or instead | reason |"
    assert [line.split(" | ")[:2] for line in lines[4:]] == [
        [f"| {operation}", "yes"] for operation in ("checkpoint", "compact", "clean", "clean_log", "restore")
    ]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (look(mergeable_files=60), "60 of 100 files can become fewer (limit 50 and 20%). The job `maintenance` fixes this."),
        (look(deleted_rows=99_000, droppable_rows=99_000), "99,000 rows in its files are deleted, 9.0% (limit 10,000 and"),
        (look(since_checkpoint=200, unpublished=3), "200 versions since the last checkpoint (limit 100), 3 of them not"),
        (look(GovernedTable("c.s.t", Manager.EMBEDDED), mergeable_files=60), "Its catalog withholds this"),
        (look(GovernedTable("c.s.t", Manager.OPEN_SOURCE), mergeable_files=60), "Instead: rewrite rows in Spark"),
    ],
)
def test_it_warns_of_a_table_over_a_threshold(found: Inspection, text: str) -> None:
    assert not maintenance_finding(found, 0, None).passed
    assert text in maintenance_finding(found, 0, None).description


@pytest.mark.parametrize(("retention_s", "lag", "passed"), [(7199, FAR, False), (7200, FAR, True), (0, FAR, True)])
def test_it_warns_of_a_reader_that_is_behind_the_retention(retention_s: int, lag: ReaderLag, *, passed: bool) -> None:
    found = maintenance_finding(look(), retention_s, lag)
    assert found.passed == passed
    assert ("c.s.reader has not read a version that is 2.0 hours old" in found.description) == (not passed)


@pytest.mark.parametrize("manager", [Manager.DATABRICKS, Manager.EXTERNAL])
def test_it_leaves_others_to_their_tables(manager: Manager) -> None:
    found = maintenance_finding(look(GovernedTable("c.s.t", manager), mergeable_files=60), 1, FAR)
    assert (found.passed, found.description) == (True, f"Managed by {manager}.")


def test_a_cell_stays_in_its_row() -> None:
    assert markdown_table([{"a": "x|y\nz", "n": 1234}]) == "| a | n |\n| --- | --- |\n| x\\|y z | 1,234 |"
    assert markdown_table([]) == ""


@pytest.mark.stack
def test_of_tables(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Dagster runs it: missing, with few files, with many, and with a reader that is behind the retention."""
    reader, table = pairs(), pairs(properties={RETENTION: "interval 2 hours"})
    maintained = MaintainedTable(table, TableMaintenance(small_files=2), (reader,))

    def evaluated() -> dg.AssetCheckEvaluation:
        with dg.DagsterInstance.ephemeral() as instance:
            checks = dg.Definitions(asset_checks=[upkeep_check(maintained)], resources={"duckdb": lake.another_duckdb()})
            done = checks.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
            (found,) = done.get_asset_check_evaluations()
        assert (found.asset_key, found.check_name, found.blocking) == (asset_key(table), MAINTAINED, False)
        assert found.passed or found.severity is dg.AssetCheckSeverity.WARN
        return found

    assert (evaluated().passed, evaluated().description) == (True, "The table does not exist yet.")
    for each in (table, reader):
        lake.ensure(each)
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    assert evaluated().passed
    append(lake.duckdb, table, "SELECT 2::BIGINT, 'a'", "two")
    assert "2 of 2 files can become fewer" in (evaluated().description or "")
    table_id = lake.catalog.table(lake.full(table)).table_id or ""
    record = ComputedInputs("query", 0, {lake.full(table): InputVersion(table_id, 0)})
    with commit_conf(lake.spark.session, record.to_json(), None):
        lake.run(f"INSERT INTO {lake.full(reader)} VALUES (1, 'a')")
    assert "has not read a version" not in (evaluated().description or "")
    monkeypatch.setattr(reader_lag, "time", SimpleNamespace(time=lambda: time.time() + 3 * 3600))
    found = evaluated()
    assert f"{lake.full(reader)} has not read a version that is 3.0 hours old" in (found.description or "")
    assert (found.metadata["hours of the longest lag"].value, found.metadata["hours of retention"].value) == (3.0, 2.0)
