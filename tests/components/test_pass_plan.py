"""Before a run it is said what it computes, and why: by the code version of the asset, by the plan, and by its log."""

import re
from dataclasses import replace

import dagster as dg
import pytest

from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.strategies.pass_plan import PassPlan
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion
from tests.components.changed_tables import Tables, only
from tests.components.declared_projects import SILVER, SILVER_SQL, Project


def code_versions(project: Project) -> dict[str, str | None]:
    assets = [asset for asset in project.tables.definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    specs = [spec for asset in assets for spec in asset.specs]
    return {spec.key.path[-1]: spec.code_version for spec in specs if spec.key.path[1].startswith("silver")}


def test_other_code_is_another_code_version(project: Project) -> None:
    project.write("silver", "orders", SILVER, SILVER_SQL)
    first = code_versions(project)
    assert set(first) == {"orders", "orders_quarantine"}
    assert None not in first.values()
    assert code_versions(project) == first
    project.write("silver", "orders", SILVER, SILVER_SQL.replace("SELECT order_id,", "SELECT order_id, 'EUR' AS currency,"))
    other = code_versions(project)
    project.write("silver", "orders", SILVER.replace("amount > 0", "amount > 1"), SILVER_SQL)
    assert len({first["orders"], other["orders"], code_versions(project)["orders"]}) == 3


def test_files_may_have_been_redelivered_where_only_the_ledger_has_another_version() -> None:
    last = ComputedInputs("q", 3, {"c.bronze.a": InputVersion("id", 5, 7), "c.silver.b": InputVersion("other", 2)})
    for a, computes in (
        (InputVersion("id", 5, 7), "nothing"),
        (InputVersion("id", 5, 8), "rows of redelivered files, if any"),
        (InputVersion("id", 6, 8), "changed rows"),
        (InputVersion("another", 5, 7), "changed rows"),
    ):
        found = PassPlan.of(replace(last, inputs={**last.inputs, "c.bronze.a": a}), last)
        assert (found.computes, found.why) == (computes, "")


def planned(tables: Tables) -> PassPlan:
    table = tables.project.tables.components[f"{tables.project.schema('gold')}.totals"]
    assert isinstance(table, SqlTable)
    return table.plan(tables.lake.spark, tables.lake.duckdb)


@pytest.mark.stack
def test_a_plan_says_what_the_next_run_computes(filled: Tables) -> None:
    only(filled, "totals")
    name = f"ratify.{filled.bronze}.a"
    assert planned(filled) == PassPlan("all rows", "the table is new", {name: (None, 1)})
    filled.check()
    assert planned(filled) == PassPlan("nothing", "", {name: (1, 1)})
    filled.lake.quick(f"INSERT INTO {filled.bronze}.a VALUES (7, 1, 70)")
    assert planned(filled) == PassPlan("changed rows", "", {name: (1, 2)})
    key, text = filled.queries["totals"]
    filled.queries["totals"] = key, text.replace("v > -5", "v > -6")
    filled.declare("totals")
    assert planned(filled) == PassPlan("all rows", "its query or declaration has changed", {name: (None, 2)})
    done = filled.run()
    logged = filled.instance.all_logs(done.run_id)
    said = [event.user_message for event in logged if re.search("^All rows of .* are computed", event.user_message)]
    schema = filled.project.schema("gold")
    assert said == [f"All rows of {schema}.totals are computed, because its query or declaration has changed."]
    assert planned(filled).computes == "nothing"
