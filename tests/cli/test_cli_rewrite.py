"""`ratify delete` and `ratify replace`: what they show, what they do in one commit, and what they refuse without effect."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.definitions import interventions, table_rewrite
from ratify_lakehouse.definitions.interventions import Consequences
from ratify_lakehouse.definitions.table_rewrite import ConditionalRewrite
from ratify_lakehouse.errors import UnsafeTable
from tests.cli.test_cli_restore import given, given_by, observed, of_both_engines, ratify, share_engines
from tests.components.test_yaml_tables import Shop, failed_checks, project, shop
from tests.engines.lakehouse import Lakehouse, append, engines, lake, pairs

__all__ = ["engines", "given", "given_by", "lake", "project", "shop"]

UNKNOWN = Consequences(None, "", {}, ())


@pytest.fixture
def table(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> TableDeclaration:
    share_engines(lake, monkeypatch)
    return lake.create(pairs(), "VALUES (1, 'a'), (2, 'bbbbb'), (3, NULL), (4, 'd')")


@pytest.mark.stack
@of_both_engines
def test_rows_of_declared_tables(given_by: Shop, tmp_path: Path) -> None:
    given = given_by
    given.land("1.csv", "1,Ann,2.50,2026-01-01\n2,Bob,3.00,2026-01-01\n3,Cid,1.00,2026-01-02\n")
    assert given.run(checks=False).success
    bronze, silver = (f"{given.project.schema(layer)}.orders" for layer in ("bronze", "silver"))
    query = tmp_path / "fixed.sql"
    query.write_text(
        f"SELECT * EXCEPT (amount), CAST(amount * 2 AS DECIMAL(10,2)) AS amount FROM {silver} WHERE order_id > 1;\n"
    )
    planned = json.loads(ratify("replace", silver, "--where", "order_id > 1", "--by", str(query), "--dry-run", "--json"))
    assert (planned["rows"], planned["removed"], planned["brought"]) == ({"before": 3, "after": 3}, 2, 2)
    assert planned["by key"] == {"gone": 0, "back": 0, "other": 2}
    # Personal data is not shown.
    assert sorted(row["order_id"] for row in planned["some that go"]) == [2, 3]
    assert not any("customer" in row for row in (*planned["some that go"], *planned["some that come"]))
    assert "makes it equal to its query again" in planned["its next run"]

    printed = ratify("delete", bronze, "--where", "order_id = 2", "--dry-run")
    assert "1 row would go." in printed
    assert f"Run next: {silver}" in printed
    assert given.lake.catalog.version(f"ratify.{bronze}") == 1
    assert "1 row went in version 2." in ratify("delete", bronze, "--where", "order_id = 2", "--reason", "request 17")
    seen = observed(given, bronze)
    assert (seen["condition"], seen["rows removed"], seen["reason"]) == ("order_id = 2", 1, "request 17")
    done = given.run()
    assert failed_checks(done) == set()
    assert [row[0] for row in given.rows("silver", "order_id")] == [1, 3]
    assert "there is nothing to do" in ratify("delete", bronze, "--where", "order_id = 2", "--reason", "again")


@pytest.mark.stack
def test_a_condition_that_sql_would_pass_on_in_part(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_engines(lake, monkeypatch)
    flag = Column("flag", "boolean")
    table = lake.create(
        pairs(columns=(*pairs().columns, flag)),
        "VALUES (1, 'a', false), (2, 'bbbbb', false), (3, NULL, false), (4, 'd', true)",
    )
    query = tmp_path / "fixed.sql"
    query.write_text(f"SELECT id + 10 AS id, CAST(NULL AS STRING) AS v, id > 5 AS flag FROM {lake.full(table)} WHERE id < 3")
    where = "v IS NULL OR length(v) > 3"
    printed = ratify("replace", table.table_name, "--where", where, "--by", str(query), "--reason", "{wrong}")
    assert "2 rows went, 2 came in their place in version 2." in printed
    assert lake.stored(table) == [(1, "a", False), (4, "d", True), (11, None, False), (12, None, False)]
    (commit,) = lake.spark.history(lake.full(table), 1)
    assert (commit.operation, commit.record["acknowledged"]) == ("WRITE", "{wrong}")
    # A column in brackets is a condition, and no alias of the table.
    assert "1 row went" in ratify("delete", table.table_name, "--where", "(flag) -- only these", "--reason", "a test")
    assert [row[0] for row in lake.stored(table)] == [1, 11, 12]


@pytest.mark.long
@pytest.mark.stack
def test_a_condition_on_a_column_that_was_added_and_that_spark_filled(lake: Lakehouse, table: TableDeclaration) -> None:
    lake.run(f"ALTER TABLE {lake.full(table)} ADD COLUMN flag BOOLEAN")
    lake.run(f"UPDATE {lake.full(table)} SET flag = id = 4")
    assert "1 row went" in ratify("delete", table.table_name, "--where", "(flag) -- only these", "--reason", "a test")
    assert [row[0] for row in lake.stored(table)] == [1, 2, 3]


@pytest.mark.stack
def test_what_is_refused_changes_nothing(lake: Lakehouse, table: TableDeclaration, tmp_path: Path) -> None:
    query, name, before = tmp_path / "new.sql", table.table_name, lake.stored(table)

    def refused(*words: str, sql: str = "") -> str:
        query.write_text(sql)
        by = ("--by", str(query)) if sql else ()
        return ratify("replace" if sql else "delete", name, *words, *by, "--reason", "a test", exit_code=1)

    assert "All 4 rows" in refused("--where", "id > 0")
    assert "All 4 rows" in refused("--where", "id = 1) OR (true")
    assert "Subqueries are not supported" in refused("--where", "id IN (SELECT 1)")
    assert "deterministic" in refused("--where", "rand() < 0.5")
    assert "`nope` cannot be resolved" in refused("--where", "nope = 1")
    assert "returns other columns" in refused("--where", "id = 1", sql="SELECT 1 AS id, 'x' AS v, 3 AS more")
    assert "2 of 2 rows of the query do not match" in refused(
        "--where", "id = 1", sql="SELECT * FROM VALUES (2L, 'x'), (NULL, 'y') AS t(id, v)"
    )
    assert "no number" in refused("--where", "id = 1", sql="SELECT 1L AS id, CAST(raise_error('no number') AS STRING) AS v")
    missing = ratify("replace", name, "--where", "id = 1", "--by", str(tmp_path / "no.sql"), "--dry-run", exit_code=1)
    assert "does not exist" in missing
    lake.alter(table, {"delta.appendOnly": "true"})
    assert "only allows appends" in refused("--where", "id = 1")
    assert (lake.version(table), lake.stored(table)) == (2, before)


@pytest.mark.stack
def test_another_writer_commits_in_between(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, looks = table_rewrite.planned_change, list[int]()

    def look(*arguments: Any) -> Any:
        change = planned(*arguments)
        looks.append(change.matched)
        if len(looks) == 1:
            append(lake.duckdb, table, "SELECT 5::BIGINT, 'a'", "two")
        return change

    monkeypatch.setattr(table_rewrite, "planned_change", look)
    with dg.DagsterInstance.ephemeral() as instance:
        rewrite = ConditionalRewrite(lake.full(table), "v = 'a'")
        log = lake.another_duckdb().log(lake.full(table))
        change, commit = rewrite.done(lake.spark, log, instance, UNKNOWN, "why")
        assert (looks, change.matched, commit and commit.version) == ([1, 2], 2, 3)
        assert [row[0] for row in lake.stored(table)] == [2, 3, 4]
        with pytest.raises(UnsafeTable, match="All 3 rows"):
            rewrite.__class__(lake.full(table), "true").planned(lake.spark, log, UNKNOWN)
        everything = ConditionalRewrite(lake.full(table), "true", every_row=True)
        assert everything.planned(lake.spark, log, UNKNOWN).rows_after == 0
    assert interventions.consequences(lake.full(table), restored=False) == UNKNOWN


@pytest.mark.long
@pytest.mark.stack
def test_all_rows_go_where_that_is_meant(lake: Lakehouse, table: TableDeclaration) -> None:
    log = lake.another_duckdb().log(lake.full(table))
    with dg.DagsterInstance.ephemeral() as instance:
        everything = ConditionalRewrite(lake.full(table), "true", every_row=True)
        _, commit = everything.done(lake.spark, log, instance, UNKNOWN, "why")
    assert (commit and commit.version, lake.stored(table)) == (2, [])


def test_what_is_asked_for_wrongly() -> None:
    assert "give the reason" in ratify("delete", "bronze.t", "--where", "true", exit_code=2)
    assert "`true` with --all" in ratify("delete", "bronze.t", "--where", " ", "--dry-run", exit_code=2)
