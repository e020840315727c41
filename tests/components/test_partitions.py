"""Tables with partitions: a run computes the chosen ones alone, or the stale ones; then they equal their query."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.sql_table import resolve
from ratify_lakehouse.components.strategies import partition_pass
from ratify_lakehouse.components.strategies.changed_rows import ChangedRows
from ratify_lakehouse.components.strategies.partition_checks import COMPLETE
from ratify_lakehouse.components.strategies.pass_scope import DaysAgain
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.strategies.table_passes import materialize_partitions
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.computed_inputs import last_computed
from ratify_lakehouse.engines.spark.merge_statements import TableChanges
from ratify_lakehouse.errors import PartitionMissing, QueryMismatch
from tests.components.declared_projects import Project, causes
from tests.components.incremental_tables import moved
from tests.components.partitioned_tables import DAILY, DAYS, QUERIES, Partitioned, evaluated, reported, said
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.server

_LONG = pytest.param("spark", marks=[pytest.mark.stack, pytest.mark.long])
BY_BOTH = pytest.mark.parametrize("partitioned", ["duckdb", _LONG], indirect=True)
WITH_CHECKS = pytest.mark.parametrize("partitioned", [pytest.param("spark", marks=pytest.mark.stack)], indirect=True)
"""Spark counts the rows of a version."""

BY_SPARK = pytest.mark.parametrize("partitioned", [_LONG], indirect=True)
"""Of Spark alone; without it, a test's tables are made by DuckDB."""


@pytest.fixture
def partitioned(request: pytest.FixtureRequest, project: Project) -> Iterator[Partitioned]:
    engine: str = getattr(request, "param", "duckdb")
    if engine == "spark":
        request.getfixturevalue("quick_creation")
        request.getfixturevalue("no_previews")
    lake: Lakehouse | Sparkless = request.getfixturevalue("lake" if engine == "spark" else "sparkless")
    with dg.DagsterInstance.ephemeral() as instance:
        tables = Partitioned(lake, project, instance, engine)
        tables.insert(
            "(1, DATE '2013-01-01', 1, 'EWR', 1)",
            "(2, DATE '2013-01-02', 1, 'JFK', 2)",
            "(3, DATE '2013-01-02', 2, 'LGA', 3)",
            "(4, DATE '2013-01-07', 1, 'EWR', 4)",
            "(5, NULL, 1, NULL, 5)",
        )
        lake.quick(f"INSERT INTO {tables.bronze}.b VALUES (1, 10)")
        yield tables


@BY_BOTH
def test_they_equal_their_queries(partitioned: Partitioned) -> None:
    found = partitioned.check()
    assert found["days"]["computed in full because"] == "the table is new"
    assert found["days"]["rows in no partition"] == 2
    partitioned.insert("(6, DATE '2013-01-04', 3, 'EWR', 6)")
    # A chosen partition, one of a table downstream, and what a run without a choice makes of the rest.
    partitioned.choose("days", DAYS[1:4])
    partitioned.lake.quick(f"UPDATE {partitioned.bronze}.a SET v = 9 WHERE id = 1")
    partitioned.choose("totals", DAYS[:1])
    found = partitioned.check()
    assert {name: each["strategy"] for name, each in found.items()} == dict.fromkeys(QUERIES, "partition")
    assert {name: each["partitions"] for name, each in found.items()} == {
        "days": "2013-01-01",
        "places": "EWR",
        "totals": "2013-01-01, 2013-01-04",
    }


@BY_BOTH
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 10))
def test_they_equal_their_queries_at_length(partitioned: Partitioned, seed: int) -> None:
    partitioned.chance.seed(seed)
    if seed % 2:
        partitioned.check()
    for _ in range(15):
        for _ in range(partitioned.chance.randint(0, 3)):
            partitioned.change()
        if partitioned.chance.random() < 0.6:
            name = partitioned.chance.choice(("days", "places"))
            keys = DAYS if name == "days" else ["EWR", "JFK"]
            first = partitioned.chance.randrange(len(keys))
            partitioned.choose(name, keys[first : partitioned.chance.randint(first, len(keys) - 1) + 1])
        else:
            partitioned.check()


def test_what_was_never_computed_is_not_forgotten(partitioned: Partitioned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the next run, of another partition, is killed before its commit."""
    partitioned.only("days")
    partitioned.run(DAYS[1])
    assert partitioned.rows("SELECT day, n FROM gold.days") == ["(datetime.date(2013, 1, 2), 1)"] * 2
    partitioned.insert("(7, DATE '2013-01-02', 1, 'EWR', 7)")
    partitioned.dies_at_its_commit(monkeypatch, committed=False)
    done = partitioned.run()
    assert reported(done, "days") == DAYS[:2]
    assert partitioned.stored("days") == partitioned.expected("days")


@WITH_CHECKS
def test_late_rows_make_their_partition_stale(partitioned: Partitioned) -> None:
    """A run reports the partitions that it computed, and the checks say which ones are stale, and which rows have none."""
    partitioned.only("days")
    partitioned.begin("days")
    partitioned.insert("(7, DATE '2013-01-02', 1, 'EWR', 7)", "(8, DATE '2013-01-02', 2, 'EWR', 8)")
    stale = partitioned.up_to_date("days")
    assert not stale.passed
    assert f"2013-01-02 is stale: 2 changed rows of {partitioned.bronze}.a since version 1." in stale.description
    done = partitioned.run(checks=True)
    (complete,) = [check for check in evaluated(done).values() if not check.passed]
    # The late rows are computed; those without a partition are nowhere, which is more than a warning.
    assert (complete.severity, complete.metadata["stale partitions"].value) == (dg.AssetCheckSeverity.ERROR, 0)
    assert complete.description == (
        "2 rows of the query belong to no partition, so not to the table: "
        "1 without a day, 1 with a day from 2013-01-07 to 2013-01-07."
    )
    assert reported(done, "days") == DAYS[1:2]
    assert partitioned.component("days").plan(partitioned.lake.spark, partitioned.lake.duckdb).computes == "nothing"


UNKNOWN = "The next run without chosen partitions computes all of them: a run computed"


def test_chosen_partitions_leave_it_unknown_how_the_others_are(partitioned: Partitioned) -> None:
    """Somebody else has written to the table."""
    partitioned.only("days")
    partitioned.begin("days")
    partitioned.lake.quick(partitioned.sql("DELETE FROM gold.days WHERE day = '2013-01-02'"))
    partitioned.insert(f"(10, DATE '{DAYS[0]}', 1, 'EWR', 1)")
    assert partitioned.run(DAYS[0]).success
    checked = partitioned.up_to_date("days")
    assert not checked.passed
    assert UNKNOWN in checked.description


def test_until_all_partitions_are_computed_it_stays_unknown_how_they_are(partitioned: Partitioned) -> None:
    partitioned.only("days")
    # As the test before leaves it.
    partitioned.begin("days", "day <> '2013-01-02'", rest_known=False)
    partitioned.insert(f"(11, DATE '{DAYS[0]}', 1, 'EWR', 1)")
    assert partitioned.run(DAYS[0]).success
    checked = partitioned.up_to_date("days")
    assert not checked.passed
    assert UNKNOWN in checked.description
    assert partitioned.run().success
    assert partitioned.up_to_date("days").passed
    assert partitioned.stored("days") == partitioned.expected("days")


def test_a_run_of_all_partitions_takes_away_rows_that_belong_to_none(partitioned: Partitioned) -> None:
    """As one without chosen partitions does, after somebody else has written to the table."""
    partitioned.only("days")
    partitioned.begin("days")
    partitioned.lake.quick(partitioned.sql("INSERT INTO gold.days VALUES (DATE '2012-12-31', 1, 1, 1, 1)"))
    assert partitioned.run(DAYS[0], DAYS[-1]).success
    assert partitioned.up_to_date("days").passed
    assert partitioned.rows("SELECT day FROM gold.days WHERE day < '2013-01-01'") == []
    assert partitioned.stored("days") == partitioned.expected("days")


@WITH_CHECKS
@pytest.mark.long
def test_what_a_record_has_no_room_for_is_computed_again(partitioned: Partitioned, monkeypatch: pytest.MonkeyPatch) -> None:
    partitioned.only("days")
    assert partitioned.run().success
    monkeypatch.setattr(partition_pass, "_MOST_RECORDED", 2)
    for number, day in enumerate(DAYS[:2]):
        partitioned.insert(f"({20 + number}, DATE '{day}', 1, 'EWR', 1)")
        assert partitioned.run(day).success
    partitioned.insert(f"(22, DATE '{DAYS[2]}', 1, 'EWR', 1)")
    checked = evaluated(partitioned.run(DAYS[2], checks=True))[COMPLETE]
    assert "not known to be up to date, and computed by the next run without chosen ones: 2013-01-01" in str(
        checked.description
    )
    again = evaluated(partitioned.run(checks=True))[COMPLETE]
    assert again.metadata["partitions not known to be up to date"].value == 0
    assert partitioned.stored("days") == partitioned.expected("days")


def test_a_changed_query_leaves_what_was_not_chosen_to_the_next_run(partitioned: Partitioned) -> None:
    partitioned.only("days")
    assert partitioned.run().success
    partitioned.declare("days", QUERIES["days"][2].replace("count(*) AS n", "count(*) AS n, min(a.v) AS least"))
    done = partitioned.run(DAYS[0])
    assert done.success, causes(done)
    assert partitioned.rows("SELECT least FROM gold.days ORDER BY day") == ["(1,)", "(None,)", "(None,)"]
    done = partitioned.run()
    # Those chosen, too: from which query and inputs the others were, was not known.
    assert reported(done, "days") == DAYS[:2]
    assert partitioned.rows("SELECT least FROM gold.days") == ["(1,)", "(2,)", "(3,)"]


@WITH_CHECKS
@pytest.mark.long
def test_that_all_were_computed_is_recorded_though_no_row_differs(partitioned: Partitioned) -> None:
    partitioned.only("days")
    assert partitioned.run().success
    name = f"{partitioned.bronze}.a"
    partitioned.lake.quick(f"CREATE TABLE {name}_again USING DELTA AS SELECT * FROM {name}")
    partitioned.lake.quick(f"DROP TABLE {name}")
    partitioned.lake.quick(f"CREATE TABLE {name} USING DELTA AS SELECT * FROM {name}_again")
    found = said(partitioned.run())["days"]
    assert found["computed in full because"] == f"{name} was dropped and created again since"
    assert partitioned.version("gold.days") == 2
    done = partitioned.run(checks=True)
    assert "computed in full because" not in said(done)["days"]
    assert evaluated(done)[COMPLETE].metadata["stale partitions"].value == 0


@pytest.mark.long
@pytest.mark.stack
@BY_SPARK
def test_where_it_cannot_be_computed_which_are_stale_all_are(partitioned: Partitioned) -> None:
    """The query leaves out a row whose value is not a day; to find the stale partitions, Spark reads that value."""
    partitioned.lake.quick(partitioned.sql("DELETE FROM bronze.a"))
    partitioned.insert("(1, NULL, 1, '2013-01-01', 1)")
    numbered = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY v) AS number FROM bronze.a"
    text = f"SELECT CAST(a.place AS DATE) AS day, a.id AS k, a.v FROM ({numbered}) AS a WHERE a.number = 1"
    partitioned.declare("days", text)
    partitioned.only("days")
    assert partitioned.run().success
    partitioned.insert("(1, NULL, 2, 'no day', 2)", "(3, NULL, 1, '2013-01-02', 3)")
    found = said(partitioned.run())["days"]
    assert found["computed in full because"].startswith(
        "the keys that changes affect cannot be computed: [CAST_INVALID_INPUT]"
    )
    assert partitioned.rows("SELECT v FROM gold.days") == ["(1,)", "(3,)"]
    assert "computed in full because" not in said(partitioned.run())["days"]


# `test_what_was_never_computed_is_not_forgotten` has the short form.
@BY_BOTH
@pytest.mark.parametrize("committed", [False, True])
def test_a_killed_run_is_made_good(partitioned: Partitioned, committed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    partitioned.only("days")
    partitioned.begin("days")
    partitioned.insert("(7, DATE '2013-01-02', 1, 'EWR', 7)")
    partitioned.dies_at_its_commit(monkeypatch, committed=committed)
    done = partitioned.run()
    assert reported(done, "days") == ([] if committed else DAYS[1:2])
    assert partitioned.stored("days") == partitioned.expected("days")


@BY_BOTH
def test_of_two_runs_at_once_the_later_one_begins_again(partitioned: Partitioned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has chosen another partition: the record of the one must not undo that of the other."""
    partitioned.only("days")
    assert partitioned.run().success

    def another() -> None:
        partitioned.insert("(8, DATE '2013-01-02', 1, 'JFK', 80)", "(9, DATE '2013-01-03', 1, 'JFK', 90)")
        component = partitioned.component("days")
        assert component.partitioned
        with partitioned.session() as session:
            passes = materialize_partitions(
                partitioned.lake.spark, component.table, component.partitioned, DAYS[1:2], session
            )
            assert list(passes)

    partitioned.insert("(7, DATE '2013-01-01', 1, 'EWR', 70)")
    with moved(monkeypatch, *partitioned.commit, another):
        done = partitioned.run(DAYS[0])
    assert done.success, causes(done)
    assert partitioned.version("gold.days") == 3
    assert reported(partitioned.run(), "days") == DAYS[2:3]
    assert partitioned.stored("days") == partitioned.expected("days")


@pytest.mark.long
@pytest.mark.stack
@BY_SPARK
def test_rows_of_a_day_are_computed_again_whatever_the_record_says(partitioned: Partitioned) -> None:
    """Of the strategy incremental: those of the keys that have the day, in the query or in the table."""
    partitioned.only("days")
    folder = partitioned.project.root / partitioned.gold / "days" / "defs.yaml"
    declared = folder.read_text().replace("strategy: partition", "strategy: incremental, day: day")
    folder.write_text(declared.replace(f"partitions: {DAILY}, ", ""))
    assert partitioned.run().success
    (table,), spark = partitioned.project.tables.sql_tables, partitioned.lake.spark
    name, day = f"ratify.{partitioned.gold}.days", dt.date(2013, 1, 2)
    # A commit that has a record, and is wrong all the same.
    record = replace(last_computed(spark.recent_commits(name, 30)), after=spark.catalog.version(name))
    wrong = "SELECT day AS ratify_key_day, k AS ratify_key_k, * EXCEPT (n), CAST(99 AS BIGINT) AS n, true AS ratify_present"
    declaration = resolve(ChangedRows(spark, table.table), table.table).declaration
    rows = spark.sql(f"{wrong} FROM {name} WHERE day < '2013-01-03'")
    spark.merge_changes(declaration, TableChanges(rows), record.to_json(), record.after)
    again, made = DaysAgain("day", day, day), list[dg.MaterializeResult[Any]]()

    @dg.op
    def compute_again() -> None:
        made.extend(each for each in table.results(spark, None, None, again) if isinstance(each, dg.MaterializeResult))

    job = dg.GraphDefinition(name="compute_again_job", node_defs=[compute_again]).to_job()
    assert job.execute_in_process(instance=partitioned.instance).success
    assert [(each.metadata or {})["keys affected"] for each in made] == [2]
    assert partitioned.stored("days", "day = '2013-01-02'") == partitioned.expected("days", "day = '2013-01-02'")
    assert partitioned.rows("SELECT n FROM gold.days WHERE day = '2013-01-01'") == ["(99,)"]


def test_what_cannot_be_a_partition_is_named_and_nothing_is_written(partitioned: Partitioned) -> None:
    partitioned.only("days")
    partitioned.declare("days", QUERIES["days"][2].replace("SELECT a.day,", "SELECT CAST(a.day AS STRING) AS day,"))
    assert "write CAST(day AS DATE) AS day in the query" in causes(partitioned.run())["days"]
    assert partitioned.version("gold.days") is None


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    days = TablePartitions("day", dt.date(2013, 1, 1), dt.date(2014, 1, 1))
    with pytest.raises(PartitionMissing, match=r"2014-01-01 is not a partition of gold.days.*: 2013-01-01 to 2013-12-31"):
        days.check(["2013-01-01", "2014-01-01"], "gold.days")
    with pytest.raises(PartitionMissing, match=r"LGA is not a partition of gold.places.*: EWR, JFK"):
        TablePartitions("place", values=("EWR", "JFK")).check(["LGA"], "gold.places")


def test_today_is_a_partition_until_the_end_that_is_declared() -> None:
    today = dt.datetime.now(dt.UTC).date()
    assert TablePartitions("day", dt.date(2026, 1, 1)).keys[-1] == today.isoformat()
    for days, last in ((-1, -2), (0, -1), (1, 0), (2, 0), (30, 0)):
        end = today + dt.timedelta(days)
        assert TablePartitions("day", dt.date(2026, 1, 1), end).keys[-1] == (today + dt.timedelta(last)).isoformat()


def test_a_listed_number_is_written_as_spark_does() -> None:
    """Otherwise changed rows of its partition would not be known as its own."""
    table = TableDeclaration(
        layer="gold",
        name="months",
        columns=(Column("month", "int"),),
        comment="Of a test",
        writer=Engine.SPARK,
        operations=frozenset({"MERGE"}),
        keys=("month",),
    )
    TablePartitions("month", values=("0", "-1", "10")).check_type(table)
    for value in ("08", " 5", "+5", "EWR"):
        with pytest.raises(
            QueryMismatch, match=f"gold.months: {re.escape(repr(value))}, listed as a partition of month, is"
        ):
            TablePartitions("month", values=("7", value)).check_type(table)
