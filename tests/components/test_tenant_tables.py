"""The table of each tenant has the rows of another table for which its predicate holds, wherever they move."""

from collections.abc import Iterator

import dagster as dg
import pytest

from ratify_lakehouse.components.feeds.tenant_tables_component import TenantTables, rows_of_tenants, tenants_of_rows
from ratify_lakehouse.components.table_asset import asset_key
from tests.components.begun_tables import begin
from tests.components.declared_followers import Followers
from tests.components.declared_projects import Project, causes, metadata
from tests.components.followed_table import FollowedTable
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


FEW, LETTERS = "    - {name: few, where: id < 3, owner: sales}\n", "    - {name: letters, where: v IS NOT NULL OR id = 9}\n"


class Tenants(Followers):
    """A table of which tenants have tables."""

    def __init__(self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance, seed: int = 0) -> None:
        self.followed = FollowedTable.created(lake, seed)
        super().__init__(lake, project, self.followed.table, instance)

    def of(self, *tenants: str, more: str = "") -> None:
        self.declare("TenantTables", "of", f"  tenants:\n{''.join(tenants)}{more}")

    def checks(self) -> dict[str, bool]:
        """Which of the checks of all tenants pass."""
        defs = dg.Definitions(asset_checks=self.project.tables.definitions.asset_checks, resources=self.resources)
        chosen = [key for key in self.project.tables.checks if key.name in ("exclusive", "complete")]
        job = dg.Definitions.merge(
            defs, dg.Definitions(jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(*chosen))])
        )
        done = job.resolve_job_def("checks").execute_in_process(instance=self.instance)
        return {check.check_name: check.passed for check in done.get_asset_check_evaluations()}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_each_tenant_has_its_rows(lake: Lakehouse, project: Project, instance: dg.DagsterInstance) -> None:
    tenants = Tenants(lake, project, instance)
    followed = tenants.followed
    followed.insert({1: "a", 2: "b", 3: None})
    tenants.of(FEW)
    (of_few,) = (each for each in project.tables.components.values() if isinstance(each, TenantTables))
    begin(lake, of_few.tables[0])
    assert tenants.rows("of_few") == [(1, "a"), (2, "b")]
    # One row moves to another tenant, one is deleted, one changes; a second tenant is filled from the start.
    tenants.of(FEW, LETTERS, more="  exclusive: true\n  complete: true\n")
    lake.run(
        f"MERGE INTO {followed.name} t USING (SELECT * FROM VALUES (1, 9, 'a'), (2, 2, NULL), (3, 2, 'c'), (4, 4, 'd') "
        "AS r(was, id, v)) AS s ON t.id = s.was WHEN MATCHED AND s.was = 2 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET id = s.id, v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    before = tenants.version("of_few")
    done = tenants.run()
    assert tenants.rows("of_few") == [(2, "c")]
    assert tenants.rows("of_letters") == [(2, "c"), (4, "d"), (9, "a")]
    assert tenants.version("of_few") == before + 1, "one commit a pass"
    shown = metadata(done, "gold", "of_few")
    assert "computed in full because" not in shown, shown
    assert shown["strategy"] == "incremental", shown
    # Row 2 is of both.
    assert tenants.checks() == {"exclusive": False, "complete": True}
    tenants.of("    - {name: few, where: region = 'north'}\n")
    (cause,) = causes(tenants.attempted()).values()
    assert "region" in cause
    assert tenants.rows("of_few") == [(2, "c")]


def test_a_predicate_that_is_null_is_of_no_tenant(lake: Lakehouse) -> None:
    rows = "(SELECT * FROM VALUES (1, 'a'), (2, NULL), (3, 'b') AS t(id, v))"
    (found,) = lake.run(tenants_of_rows(rows, ["v = 'a' -- first", "id < 2", "v = 'b'"]))
    assert found == {"rows": 3, "several": 1, "none": 1}
    assert rows_of_tenants("complete", found).description == "1 row of 3 belongs to no tenant."
    assert rows_of_tenants("exclusive", {"rows": 3, "several": 0, "none": 1}).passed


def test_each_table_has_its_owner_and_its_feed(lake: Lakehouse, project: Project, instance: dg.DagsterInstance) -> None:
    tenants = Tenants(lake, project, instance)
    tenants.of(FEW, LETTERS, more="  change_data_feed: true\n")
    tables = tenants.project.tables
    declared = [table for table in tables.declarations.values() if table.name.startswith("of_")]
    assert [(table.name, table.owner) for table in declared] == [("of_few", "sales"), ("of_letters", "data-platform")]
    assert {asset_key(table) for table in declared} <= set(tables.keys)
    assert all(table.properties["delta.enableChangeDataFeed"] == "true" for table in declared)


def check_history(lake: Lakehouse, project: Project, instance: dg.DagsterInstance, seed: int, passes: int) -> None:
    tenants = Tenants(lake, project, instance, seed)
    tenants.of(
        "    - {name: a, where: v = 'a'}\n",
        "    - {name: low, where: id < 30 AND (v IS NULL OR v <> 'a')}\n",
        "    - {name: 'null', where: v IS NULL}\n",
    )
    rows = tenants.followed
    rows.step()
    for _ in range(passes):
        rows.step()
        rows.step()
        tenants.run()
        every = rows.rows.items()
        assert dict(tenants.rows("of_a")) == {id_: v for id_, v in every if v == "a"}, seed
        assert dict(tenants.rows("of_low")) == {id_: v for id_, v in every if id_ < 30 and v != "a"}, seed
        assert dict(tenants.rows("of_null")) == {id_: v for id_, v in every if v is None}, seed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(15))
def test_each_tenant_has_its_rows_in_many_histories(
    lake: Lakehouse, project: Project, instance: dg.DagsterInstance, seed: int
) -> None:
    check_history(lake, project, instance, seed, passes=5)
