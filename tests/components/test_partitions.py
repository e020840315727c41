"""Tables with partitions: a run computes the chosen ones alone, or the stale ones; then they equal their query."""

import datetime as dt
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from components import sql_table_component
from components.sql_table import ValidatedQuery, resolve
from components.sql_table_component import PARTITIONS_TAG, STALE
from components.strategies.changed_rows import ChangedRows
from components.strategies.partition_checks import UP_TO_DATE
from components.strategies.partitioned_rows import IN_A_PARTITION
from components.strategies.pass_scope import DaysAgain
from components.strategies.table_partitions import TablePartitions
from resources.delta.computed_inputs import last_computed
from resources.errors import PartitionMissing
from resources.spark.spark_engine import Spark, WriteResult
from tests.components.test_yaml_tables import Project, causes, project
from tests.resources.lakehouse import Lakehouse

__all__ = ["project"]

DAYS = [f"2013-01-{day:02}" for day in range(1, 6)]
DAILY = "{column: day, daily: {start: 2013-01-01, end: 2013-01-06}}"
QUERIES = {
    "days": (
        "[day, k]",
        DAILY,
        """SELECT a.day, a.k, count(*) AS n, sum(a.v) AS total, max(b.w) AS w
        FROM bronze.a AS a LEFT JOIN bronze.b AS b ON a.k = b.k GROUP BY a.day, a.k""",
    ),
    "places": ("[place]", "{column: place, values: [EWR, JFK]}", "SELECT place, count(*) AS n FROM bronze.a GROUP BY place"),
    "totals": ("[day]", DAILY, "SELECT day, sum(total) AS total FROM gold.days GROUP BY day"),
}
DECLARED = {"days": "day BETWEEN '2013-01-01' AND '2013-01-05'", "places": "place IN ('EWR', 'JFK')", "totals": "true"}
"""Which rows of the queries belong to a partition."""

COLUMN = {"days": "day", "places": "place", "totals": "day"}


class Partitioned:
    """Two inputs, and three tables with partitions that are made of them, one of another one."""

    def __init__(self, lake: Lakehouse, project: Project, instance: dg.DagsterInstance, seed: int = 1) -> None:
        self.lake, self.project, self.instance = lake, project, instance
        self.chance = random.Random(seed)  # noqa: S311 changes, not keys
        self.bronze, self.gold = project.schema("bronze"), project.schema("gold")
        lake.spark.catalog.ensure_schemas((self.bronze, self.gold))
        create = "CREATE TABLE {}.{} ({}) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'none', {})"
        feed = "'delta.enableChangeDataFeed' = 'true'"
        lake.run(create.format(self.bronze, "a", "id INT, day DATE, k INT, place STRING, v INT", feed))
        lake.run(create.format(self.bronze, "b", "k INT, w INT", "'ratify.owner' = 'tests'"))
        for name in QUERIES:
            self.declare(name)

    def sql(self, text: str) -> str:
        return text.replace("bronze.", f"{self.bronze}.").replace("gold.", f"{self.gold}.")

    def declare(self, name: str, text: str = "") -> None:
        keys, partitions, query = QUERIES[name]
        external = f"[{self.bronze}.a, {self.bronze}.b]"
        attributes = f"description: D, keys: {keys}, strategy: partition, partitions: {partitions}, external: {external}"
        declared = f"type: components.SqlTable\nattributes: {{{attributes}}}\n"
        self.project.write("gold", name, declared, self.sql(text or query))

    def only(self, *names: str) -> None:
        for other in set(QUERIES) - {*names}:
            shutil.rmtree(self.project.root / self.gold / other)

    def run(
        self, *chosen: str, tables: Sequence[str] = (), checks: bool = False, stale: bool = False
    ) -> dg.ExecuteInProcessResult:
        """Run without chosen partitions, or with the ones from the first to the last, or with the stale ones of these."""
        declared = self.project.tables.definitions
        given = dg.Definitions(
            assets=declared.assets,
            asset_checks=declared.asset_checks if checks else None,
            resources={"spark": self.lake.spark, "duckdb": self.lake.duckdb},
        )
        tags = (
            {
                "dagster/asset_partition_range_start": chosen[0],
                "dagster/asset_partition_range_end": chosen[-1],
            }
            if chosen
            else {}
        )
        tags |= {PARTITIONS_TAG: STALE} if stale else {}
        keys = [dg.AssetKey(["ratify", self.gold, name]) for name in tables]
        return given.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=keys or None, tags=tags
        )

    def rows(self, sql: str) -> list[str]:
        return sorted(str(tuple(row.values())) for row in self.lake.spark.rows(self.lake.spark.sql(self.sql(sql))))

    def insert(self, *rows: str) -> None:
        self.lake.run(f"INSERT INTO {self.bronze}.a VALUES {', '.join(rows)}")

    def change(self) -> None:
        """One random change of an input."""
        value = self.chance.randint
        day = f"DATE '2013-01-{value(1, 7):02}'"
        place = self.chance.choice(("'EWR'", "'JFK'", "'LGA'", "NULL"))
        statements = [
            f"INSERT INTO bronze.a VALUES ({value(1, 30)}, {day}, {value(0, 3)}, {place}, {value(-9, 9)})",
            f"INSERT INTO bronze.a VALUES ({value(1, 30)}, NULL, {value(0, 3)}, {place}, {value(-9, 9)})",
            f"UPDATE bronze.a SET v = v + 1, day = {day} WHERE id % 5 = {value(0, 4)}",
            f"UPDATE bronze.a SET place = {place} WHERE id % 5 = {value(0, 4)}",
            f"DELETE FROM bronze.a WHERE id % 7 = {value(0, 6)}",
            f"RESTORE TABLE bronze.a TO VERSION AS OF {value(0, self.version('bronze.a') or 0)}",
            f"INSERT INTO bronze.b VALUES ({value(0, 3)}, {value(0, 9)})",
            f"DELETE FROM bronze.b WHERE k = {value(0, 3)}",
        ]
        self.lake.run(self.sql(self.chance.choice(statements)))

    def version(self, name: str) -> int | None:
        full_name = f"ratify.{self.sql(name)}"
        return self.lake.catalog.version(full_name) if self.lake.spark.session.catalog.tableExists(full_name) else None

    def stored(self, name: str, where: str = "true") -> list[str]:
        return self.rows(f"SELECT * FROM gold.{name} WHERE {where}") if self.version(f"gold.{name}") is not None else []

    def expected(self, name: str, where: str = "true") -> list[str]:
        return self.rows(f"SELECT * FROM ({QUERIES[name][2]}) WHERE {DECLARED[name]} AND {where}")

    def check(self) -> dict[str, Any]:
        """Run without chosen partitions, compare each table with its query, and return what the run said of them."""
        before = {name: (self.version(f"gold.{name}"), self.stored(name)) for name in QUERIES}
        found = dict[str, Any]()
        # As the sensors do it.
        for done in (self.run(tables=["days", "places"]), self.run(DAYS[0], DAYS[-1], tables=["totals"], stale=True)):
            assert done.success, causes(done)
            found |= said(done)
        for name, (version, stored) in before.items():
            expected = self.expected(name)
            assert self.stored(name) == expected, name
            now = self.version(f"gold.{name}")
            assert now is not None
            if version is not None:
                assert now - version == int(stored != expected), name
        return found

    def choose(self, name: str, chosen: Sequence[str]) -> None:
        """Run with chosen partitions: these equal the query, all others are as before, in at most one version."""
        of = f"{COLUMN[name]} IN ({', '.join(map(repr, chosen))})"
        others, version, stored = self.stored(name, f"NOT {of}"), self.version(f"gold.{name}"), self.stored(name, of)
        done = self.run(*chosen, tables=[name])
        assert done.success, causes(done)
        assert self.stored(name, f"NOT {of}") == others
        expected = self.expected(name, of)
        assert self.stored(name, of) == expected
        now = self.version(f"gold.{name}")
        assert now is not None
        if version is not None:
            assert now - version == int(stored != expected)
        assert reported(done, name) == list(chosen)


def said(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    made = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return {
        each.asset_key.path[2]: {name: value.value for name, value in each.metadata.items()}
        for each in made
        if "strategy" in each.metadata
    }


def reported(done: dg.ExecuteInProcessResult, name: str) -> list[str]:
    """The partitions of a table that a run reports."""
    made = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return sorted(each.partition for each in made if each.asset_key.path[2] == name and each.partition)


@pytest.fixture
def partitioned(lake: Lakehouse, project: Project) -> Iterator[Partitioned]:
    with dg.DagsterInstance.ephemeral() as instance:
        tables = Partitioned(lake, project, instance)
        tables.insert(
            "(1, DATE '2013-01-01', 1, 'EWR', 1)",
            "(2, DATE '2013-01-02', 1, 'JFK', 2)",
            "(3, DATE '2013-01-02', 2, 'LGA', 3)",
            "(4, DATE '2013-01-07', 1, 'EWR', 4)",
            "(5, NULL, 1, NULL, 5)",
        )
        lake.run(f"INSERT INTO {tables.bronze}.b VALUES (1, 10)")
        yield tables


@pytest.mark.stack
def test_they_equal_their_queries(partitioned: Partitioned) -> None:
    found = partitioned.check()
    assert found["days"]["computed in full because"] == "the table is new"
    assert found["days"]["rows in no partition"] == 2
    partitioned.insert("(6, DATE '2013-01-04', 3, 'EWR', 6)")
    # A chosen partition, one of a table downstream, and what a run without a choice makes of the rest.
    partitioned.choose("days", DAYS[1:4])
    partitioned.lake.run(f"UPDATE {partitioned.bronze}.a SET v = 9 WHERE id = 1")
    partitioned.choose("totals", DAYS[:1])
    found = partitioned.check()
    assert {name: each["strategy"] for name, each in found.items()} == dict.fromkeys(QUERIES, "partition")
    assert {name: each["partitions"] for name, each in found.items()} == {
        "days": "2013-01-01",
        "places": "EWR",
        "totals": "2013-01-01, 2013-01-04",
    }


@pytest.mark.stack
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


@pytest.mark.stack
def test_late_rows_make_their_partition_stale(partitioned: Partitioned) -> None:
    """A run reports the partitions that it computed, and the checks say which ones are stale, and which rows have none."""
    partitioned.only("days")
    # A part of it first: what was never computed is not forgotten.
    partitioned.run(DAYS[1])
    assert partitioned.rows("SELECT day, n FROM gold.days") == ["(datetime.date(2013, 1, 2), 1)"] * 2
    done = partitioned.run()
    assert reported(done, "days") == DAYS[:1]
    assert partitioned.stored("days") == partitioned.expected("days")
    partitioned.insert("(7, DATE '2013-01-02', 1, 'EWR', 7)", "(8, DATE '2013-01-02', 2, 'EWR', 8)")
    checks = evaluated(partitioned.run(DAYS[0], checks=True))
    stale = checks[UP_TO_DATE]
    assert not stale.passed
    assert f"2013-01-02 is stale: 2 changed rows of {partitioned.bronze}.a since version 1." in str(stale.description)
    outside = checks[IN_A_PARTITION]
    assert not outside.passed
    assert outside.description == (
        "Of the query 2 rows in no partition, nor in the table: 1 without a day, 1 with a day from 2013-01-07 to 2013-01-07."
    )
    done = partitioned.run(checks=True)
    assert reported(done, "days") == DAYS[1:2]
    assert evaluated(done)[UP_TO_DATE].passed
    assert {name for name, check in evaluated(done).items() if not check.passed} == {IN_A_PARTITION}
    assert reported(partitioned.run(), "days") == []


def evaluated(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    assert done.success, causes(done)
    return {check.check_name: check for check in done.get_asset_check_evaluations()}


@pytest.mark.stack
def test_a_changed_query_leaves_what_was_not_chosen_to_the_next_run(partitioned: Partitioned) -> None:
    partitioned.only("days")
    assert partitioned.run().success
    partitioned.declare("days", QUERIES["days"][2].replace("count(*) AS n", "count(*) AS n, min(a.v) AS least"))
    done = partitioned.run(DAYS[0])
    assert done.success, causes(done)
    assert partitioned.rows("SELECT least FROM gold.days ORDER BY day") == ["(1,)", "(None,)", "(None,)"]
    done = partitioned.run()
    assert reported(done, "days") == DAYS[1:2]
    assert partitioned.rows("SELECT least FROM gold.days") == ["(1,)", "(2,)", "(3,)"]


@pytest.mark.stack
@pytest.mark.parametrize("committed", [False, True])
def test_a_killed_run_is_made_good(partitioned: Partitioned, committed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    partitioned.only("days")
    assert partitioned.run().success
    merge = Spark.merge_changes

    def dying(*arguments: Any) -> WriteResult:
        if committed:
            merge(*arguments)
        raise KeyboardInterrupt("killed")

    partitioned.insert("(7, DATE '2013-01-02', 1, 'EWR', 7)")
    monkeypatch.setattr(Spark, "merge_changes", dying)
    assert not partitioned.run(*DAYS[1:3]).success
    monkeypatch.setattr(Spark, "merge_changes", merge)
    assert partitioned.version("gold.days") == 1 + committed
    done = partitioned.run()
    assert reported(done, "days") == ([] if committed else DAYS[1:2])
    assert partitioned.stored("days") == partitioned.expected("days")


@pytest.mark.stack
def test_of_two_runs_at_once_the_later_one_begins_again(partitioned: Partitioned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has chosen another partition: the record of the one must not undo that of the other."""
    partitioned.only("days")
    assert partitioned.run().success
    merge, passes_of = Spark.merge_changes, sql_table_component.materialize_partitions
    seen = list[tuple[Spark, ValidatedQuery, TablePartitions]]()

    def seeing(spark: Spark, table: ValidatedQuery, partitions: TablePartitions, chosen: Sequence[str]) -> Iterator[Any]:
        seen.append((spark, table, partitions))
        yield from passes_of(spark, table, partitions, chosen)

    def after_another(*arguments: Any) -> WriteResult:
        monkeypatch.setattr(Spark, "merge_changes", merge)
        partitioned.insert("(8, DATE '2013-01-02', 1, 'JFK', 80)", "(9, DATE '2013-01-03', 1, 'JFK', 90)")
        assert list(passes_of(*seen[0], DAYS[1:2]))
        return merge(*arguments)

    monkeypatch.setattr(sql_table_component, "materialize_partitions", seeing)
    monkeypatch.setattr(Spark, "merge_changes", after_another)
    partitioned.insert("(7, DATE '2013-01-01', 1, 'EWR', 70)")
    done = partitioned.run(DAYS[0])
    assert done.success, causes(done)
    assert partitioned.version("gold.days") == 3
    assert reported(partitioned.run(), "days") == DAYS[2:3]
    assert partitioned.stored("days") == partitioned.expected("days")


@pytest.mark.stack
def test_rows_of_a_day_are_computed_again_whatever_the_record_says(partitioned: Partitioned) -> None:
    """Of the strategy changes: those of the keys that have the day, in the query or in the table."""
    partitioned.only("days")
    folder = partitioned.project.root / partitioned.gold / "days" / "defs.yaml"
    declared = folder.read_text().replace("strategy: partition", "strategy: changes, day: day")
    folder.write_text(declared.replace(f"partitions: {DAILY}, ", ""))
    assert partitioned.run().success
    (table,) = partitioned.project.tables.sql_tables
    spark, name = partitioned.lake.spark, f"ratify.{partitioned.gold}.days"
    # A commit that has a record, and is wrong all the same.
    version = spark.catalog.version(name)
    record = replace(last_computed(spark.recent_commits(name, 30)), after=version).to_json()
    wrong = "SELECT day AS ratify_key_day, k AS ratify_key_k, * EXCEPT (n), CAST(99 AS BIGINT) AS n, true AS ratify_present"
    declaration = resolve(ChangedRows(spark, table.table), table.table).declaration
    spark.merge_changes(declaration, spark.sql(f"{wrong} FROM {name} WHERE day < '2013-01-03'"), record, version)
    again = DaysAgain("day", dt.date(2013, 1, 2), dt.date(2013, 1, 2))
    (made,) = [each for each in table.results(spark, None, None, again) if isinstance(each, dg.MaterializeResult)]
    assert (made.metadata or {})["keys affected"] == 2
    assert partitioned.stored("days", "day = '2013-01-02'") == partitioned.expected("days", "day = '2013-01-02'")
    assert partitioned.rows("SELECT n FROM gold.days WHERE day = '2013-01-01'") == ["(99,)"]


@pytest.mark.stack
def test_what_cannot_be_a_partition_is_named_and_nothing_is_written(partitioned: Partitioned) -> None:
    partitioned.only("days")
    partitioned.declare("days", QUERIES["days"][2].replace("SELECT a.day,", "SELECT CAST(a.day AS STRING) AS day,"))
    assert "write CAST(day AS DATE) AS day in the query" in causes(partitioned.run())["days"]
    assert partitioned.version("gold.days") is None


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    days = TablePartitions("day", dt.date(2013, 1, 1), dt.date(2014, 1, 1))
    with pytest.raises(PartitionMissing, match=r"2014-01-01 is no partition of gold.days.*: 2013-01-01 to 2013-12-31"):
        days.check(["2013-01-01", "2014-01-01"], "gold.days")
    with pytest.raises(PartitionMissing, match=r"LGA is no partition of gold.places.*: EWR, JFK"):
        TablePartitions("place", values=("EWR", "JFK")).check(["LGA"], "gold.places")


def test_today_is_a_partition_where_no_end_is_declared() -> None:
    assert TablePartitions("day", dt.date(2026, 1, 1)).keys[-1] == dt.datetime.now(dt.UTC).date().isoformat()
