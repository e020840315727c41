"""Strategy `incremental` by DuckDB: whatever happens to the inputs and to a pass, the next one makes the table its query."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from ratify_lakehouse.components.row_flow import IN_QUARANTINE, ROW_FLOW
from ratify_lakehouse.components.sql_table_component import SqlTable
from ratify_lakehouse.components.strategies import attached_inputs, incremental_pass
from ratify_lakehouse.components.strategies.attached_inputs import AttachedInputs
from ratify_lakehouse.components.strategies.computed_rows_by_duckdb import RowsByDuckDB
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.engines.duckdb.feed_reading import read_net_changes
from tests.components.declared_pairs import declared
from tests.components.incremental_sequences import report, sequence
from tests.components.incremental_tables import killed, moved, without_pictures
from tests.components.sparkless import Sparkless
from tests.components.tables_by_duckdb import TablesByDuckDB
from tests.engines.lakehouse import Lakehouse
from tests.engines.live_tables import read_live

pytestmark = pytest.mark.server


def test_they_equal_their_queries(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch) -> None:
    report(sequence(sparkless, monkeypatch, "short", 6, 4, TablesByDuckDB))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_they_equal_their_queries_at_length(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    report(sequence(sparkless, monkeypatch, str(seed), 20, 5, TablesByDuckDB))


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
@pytest.mark.parametrize("seed", range(10))
def test_whatever_spark_does_to_the_inputs(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """MERGE, deletion vectors, more columns, TRUNCATE."""
    report(sequence(lake, monkeypatch, f"spark {seed}", 20, 3, TablesByDuckDB))


QUERY = "SELECT k, count(*) AS n, CAST(sum(v) AS BIGINT) AS total FROM bronze.{} WHERE v IS NULL OR v > -5 GROUP BY k"


class Totals:
    """A table of sums, with a quarantine, over one input that has a change data feed."""

    def __init__(self, lake: Sparkless, folder: Path) -> None:
        own = uuid4().hex[:10]
        self.lake, self.input, self.name = lake, f"input_{own}", f"totals_{own}"
        lake.catalog.ensure_schemas(("bronze", "gold"))
        lake.quick(
            f"CREATE TABLE ratify.bronze.{self.input} (id INT, k INT, v INT) USING DELTA "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        )
        self.insert("(1, 1, 1), (2, 1, 2), (3, 2, NULL), (4, NULL, 4)")
        rule = {"name": "few", "expect": "n < 4", "action": "quarantine"}
        attributes = {"engine": "duckdb", "strategy": "incremental", "keys": ["k"], "expectations": [rule]}
        self.table = declared(SqlTable, folder / "gold" / self.name, attributes, QUERY.format(self.input))

    def insert(self, values: str) -> None:
        self.lake.quick(f"INSERT INTO ratify.bronze.{self.input} VALUES {values}")

    def run(self, *, full_refresh: bool = False) -> Mapping[str, Any]:
        """One pass; returns what it says of the table."""
        results = self.table.results(self.lake.spark, self.lake.duckdb, full_refresh=full_refresh)
        made = [each for each in results if isinstance(each, dg.MaterializeResult)]
        return made[0].metadata or {}

    def checked(self, *, full_refresh: bool = False) -> Mapping[str, Any]:
        """One pass, after which the table equals its query."""
        said = self.run(full_refresh=full_refresh)
        expected = read_live(self.lake.duckdb, QUERY.format(self.input).replace("bronze.", "uc.bronze."))
        assert sorted(map(str, self.rows())) == sorted(str(row) for row in expected if row[1] < 4)
        assert sorted(row[0] for row in self.rows("_quarantine", "CAST(row ->> 'k' AS INTEGER)")) == sorted(
            row[0] for row in expected if row[1] >= 4
        )
        return said

    def rows(self, suffix: str = "", columns: str = "k, n, total") -> list[tuple[Any, ...]]:
        return read_live(self.lake.duckdb, f"SELECT {columns} FROM uc.gold.{self.name}{suffix}")

    @property
    def version(self) -> int:
        return self.lake.catalog.version(f"ratify.gold.{self.name}")


@pytest.fixture
def totals(sparkless: Sparkless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Totals:
    without_pictures(monkeypatch)
    table = Totals(sparkless, tmp_path)
    table.checked()
    return table


def test_only_the_groups_of_changed_rows_are_computed(totals: Totals) -> None:
    assert totals.checked()[COMMITS].data["versions"] == [], "nothing has changed"
    totals.insert("(5, 1, 10)")
    said = totals.checked()
    assert (said["strategy"], said["keys affected"], said["rows in"]) == ("incremental", 1, 1)
    assert (said["rows inserted"], said["rows updated"], said["rows deleted"]) == (0, 1, 0)
    assert said["rows changed in inputs"] == 1
    # A fourth row: the group goes to quarantine, and comes back.
    totals.insert("(6, 1, 10)")
    said = totals.checked()
    assert said["rows deleted"] == 1
    flow = {name: said[name] for name in (*ROW_FLOW, IN_QUARANTINE) if name in said}
    assert flow == {"rows in": 1, "rows out": 0, "rows quarantined": 1, "rows in quarantine": 1}
    totals.lake.quick(f"DELETE FROM ratify.bronze.{totals.input} WHERE id = 6")
    said = totals.checked()
    assert (said["rows inserted"], said["rows out"], said[IN_QUARANTINE]) == (1, 1, 0)


def test_a_table_and_its_quarantine_are_written_together_whichever_is_chosen(totals: Totals) -> None:
    """So the page of neither asks whether the other one may be materialized, too."""
    (asset,) = (each for each in totals.table.table_defs().assets or () if isinstance(each, dg.AssetsDefinition))
    graph = dg.Definitions(assets=[asset], resources=dict.fromkeys(("spark", "duckdb"), 0)).resolve_asset_graph()
    assert [graph.get(key).execution_set_entity_keys for key in sorted(asset.keys)] == [{key} for key in sorted(asset.keys)]
    resources = {"spark": totals.lake.spark, "duckdb": totals.lake.duckdb}
    for number, chosen in enumerate(sorted(asset.keys)):
        totals.insert(f"({70 + number}, 1, 10)")
        done = dg.materialize([asset], selection=[chosen], resources=resources)
        events = {event.asset_key: event.materialization for event in done.get_asset_materialization_events()}
        assert set(events) == asset.keys
        assert all("dagster/data_version" in event.tags for event in events.values())
        assert [check.check_name for check in done.get_asset_check_evaluations()] == ["few"]


def test_its_plan_says_what_the_next_run_computes(totals: Totals) -> None:
    def planned() -> tuple[str, str]:
        found = totals.table.plan(totals.lake.spark, totals.lake.duckdb)
        return found.computes, found.why

    assert planned() == ("nothing", "")
    totals.insert("(60, 1, 10)")
    assert planned() == ("changed rows", "")
    totals.lake.quick(f"DELETE FROM ratify.gold.{totals.name} WHERE k = 1")
    computes, why = planned()
    assert computes == "all rows"
    assert "DELETE, does not record" in why


def test_commits_that_change_no_row_are_recorded_in_the_end(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_pass, "VERSIONS_READ_AGAIN", 3)
    before = totals.version
    for number in range(10, 13):
        totals.insert(f"({number}, 1, -9)")
        said = totals.checked()
    assert totals.version == before + 1
    assert said["rows changed in inputs"] == 3
    assert totals.checked()["rows changed in inputs"] == 0


def test_an_input_that_moves_while_it_is_read_is_read_again(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    before = totals.version
    totals.insert("(20, 2, 7)")
    with moved(monkeypatch, AttachedInputs, "check_unmoved", lambda: totals.insert("(21, 2, 8)")):
        totals.checked()
    assert totals.version == before + 1


def test_of_two_passes_at_once_the_later_one_decides(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    def another() -> None:
        totals.insert("(31, 2, 8)")
        totals.run()

    totals.insert("(30, 2, 7)")
    with moved(monkeypatch, RowsByDuckDB, "_commit", another):
        totals.checked()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_killed_pass_is_made_good(totals: Totals, monkeypatch: pytest.MonkeyPatch, after: bool, calls: int) -> None:
    """Before and after the commit of the table, and that of its quarantine."""
    totals.insert("(40, 1, 7), (41, 1, 8)")
    with (
        killed(monkeypatch, RowsByDuckDB, "_commit", after=after, calls=calls),
        pytest.raises(BaseException, match="_commit"),
    ):
        totals.run()
    totals.checked()


def test_rows_that_others_change_in_the_table_are_computed_again(totals: Totals) -> None:
    totals.lake.quick(f"DELETE FROM ratify.gold.{totals.name} WHERE k = 1")
    assert "DELETE, does not record" in totals.checked()["computed in full because"]
    assert totals.checked()["strategy"] == "incremental"


def test_all_rows_are_computed_where_that_is_asked_for(totals: Totals) -> None:
    """A function that the query calls may be another one now: nothing in the catalog says so."""
    said = totals.checked(full_refresh=True)
    assert said["computed in full because"] == "a full refresh was asked for"
    assert (said["rows inserted"], said["rows updated"], said["rows deleted"]) == (0, 0, 0)
    totals.insert("(5, 1, 10)")
    assert totals.checked(full_refresh=True)["rows updated"] == 1
    totals.insert("(6, 2, 10)")
    assert totals.checked()["strategy"] == "incremental"


FAULTS: Mapping[str, Callable[[str], str]] = {
    "rows that are gone are no changes": lambda text: text.replace("IN ('delete', 'update_preimage')", "IN ('none')"),
    "new rows are no changes": lambda text: text.replace("IN ('insert', 'update_postimage')", "IN ('none')"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(totals: Totals, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def faulty(*arguments: Any) -> str:
        return FAULTS[fault](read_net_changes(*arguments))

    monkeypatch.setattr(attached_inputs, "read_net_changes", faulty)
    # A group that is gone, and one that is new.
    totals.lake.quick(f"DELETE FROM ratify.bronze.{totals.input} WHERE k = 2")
    totals.insert("(50, 9, 1)")
    with pytest.raises(AssertionError):
        totals.checked()
