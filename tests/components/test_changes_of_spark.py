"""Strategy `incremental` by Spark where it cannot go by the changes: what it alone reads, writes or says.

`test_changes_bad_input.py` has what both engines do.
"""

import json
from contextlib import closing
from dataclasses import replace

import dagster as dg
import pytest

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation
from ratify_lakehouse.components.strategies.query_inputs import QueryInputs
from ratify_lakehouse.components.strategies.table_passes import materialize_changes
from ratify_lakehouse.engines.duckdb.layout_migration import migrate
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.sql.table_query import TableName
from ratify_lakehouse.table_layout import Layout
from tests.components.begun_tables import no_rows, planned
from tests.components.incremental_tables import declared_query, without_pictures
from tests.components.one_input import RECODED, TOTALS, OneInput
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


def test_where_the_changed_rows_cannot_be_computed_all_are(lake: Lakehouse) -> None:
    """The query leaves out rows whose value is no number; where only some keys are asked for, Spark reads these values.

    The value is in Spark's error, which must not be taken for what Spark or the catalog says when it does not answer.
    """
    shop = OneInput(lake, feed=True)
    shop.quick("CREATE TABLE b (v INT, w INT) USING DELTA")
    shop.quick("INSERT INTO b VALUES (10, 1)")
    joined = f"FROM {shop.schema}.a AS a JOIN {shop.schema}.b AS b ON a.v = b.v WHERE b.w = 1"
    table = declared_query(shop.schema, "t", f"SELECT coalesce(CAST(a.k AS INT), 0) AS n, b.w {joined}", ["n"])
    shop.begun(table, no_rows(2))
    shop.quick("INSERT INTO a VALUES ('7', 10), ('UNAVAILABLE, HTTP 403', 11)")
    reason, versions = shop.made(table)
    assert reason.startswith("the rows that changes affect cannot be computed: [CAST_INVALID_INPUT]")
    assert versions == 1
    assert shop.goes_on(table) == "nothing"


@pytest.mark.long
def test_a_column_that_is_widened_changes_every_row(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    shop.run("ALTER TABLE a SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    table = shop.table("SELECT k, xxhash64(max(v)) AS hash")
    shop.made(table)
    shop.run("ALTER TABLE a ADD COLUMNS (more INT)")
    assert shop.made(table) == ("", 0)
    shop.run("ALTER TABLE a ALTER COLUMN v TYPE BIGINT")
    assert shop.made(table) == ("its query or declaration has changed", 1)


@pytest.mark.long
def test_a_column_that_is_widened_changes_every_row_though_it_is_not_named(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    shop.run("ALTER TABLE a SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    table = declared_query(shop.schema, "t", f"SELECT k, xxhash64(*) AS hash FROM {shop.schema}.a", ["k"])
    shop.made(table)
    shop.run("ALTER TABLE a ALTER COLUMN v TYPE BIGINT")
    assert shop.made(table) == ("its query or declaration has changed", 1)


@pytest.mark.long
def test_a_column_that_is_dropped_and_added_again_has_no_value_of_before(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    shop.run("ALTER TABLE a SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    table = declared_query(shop.schema, "t", f"SELECT v, count(*) AS n FROM {shop.schema}.a GROUP BY v", ["v"])
    shop.made(table)
    shop.run("ALTER TABLE a DROP COLUMN v")
    shop.run("ALTER TABLE a ADD COLUMNS (v INT)")
    assert shop.made(table) == ("", 1)
    shop.run("UPDATE a SET v = 7")
    assert shop.made(table) == ("", 1)


@pytest.mark.long
def test_a_restore_that_gives_columns_their_old_names_is_compared(lake: Lakehouse) -> None:
    """It writes no file, so that the feed has no row."""
    shop = OneInput(lake, feed=True)
    shop.run("ALTER TABLE a SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    shop.run("ALTER TABLE a ADD COLUMNS (w INT)")
    shop.run("UPDATE a SET w = v * 10")
    before = lake.catalog.version(f"ratify.{shop.schema}.a")
    for old, new in (("v", "other"), ("w", "v"), ("other", "w")):
        shop.run(f"ALTER TABLE a RENAME COLUMN {old} TO {new}")
    table = declared_query(shop.schema, "t", f"SELECT v, sum(w) AS total FROM {shop.schema}.a GROUP BY v", ["v"])
    shop.made(table)
    shop.run(f"RESTORE TABLE a TO VERSION AS OF {before}")
    assert shop.made(table) == ("", 1)


@pytest.mark.long
@pytest.mark.parametrize("key", ["k", "concat(k, 'x')"])
def test_keys_that_are_no_utf8(lake: Lakehouse, key: str) -> None:
    """Of a column of the input or not; Spark's client cannot read them."""
    shop = OneInput(lake, feed=True)
    text = f"SELECT {key} AS k, sum(v) AS total FROM {shop.schema}.a GROUP BY 1"
    table = declared_query(shop.schema, "t", text, ["k"])

    def made() -> tuple[str, list[tuple[str, int]]]:
        (result,) = [each for each in materialize_changes(lake.spark, table) if isinstance(each, dg.MaterializeResult)]
        rows = lake.run(f"SELECT hex(k) AS k, total FROM {shop.schema}.t WHERE NOT is_valid_utf8(k) ORDER BY k")
        full = (result.metadata or {}).get("computed in full because", "")
        return full, [(row["k"], row["total"]) for row in rows]

    shop.run("INSERT INTO a VALUES (CAST(X'FF' AS STRING), 1), (CAST(X'FE' AS STRING), 2)")
    end = "" if key == "k" else "78"
    assert made() == ("the table is new", [("FE" + end, 2), ("FF" + end, 1)])
    shop.run("INSERT INTO a VALUES (CAST(X'FF' AS STRING), 5), ('it\\'s', 1)")
    assert made() == ("", [("FE" + end, 2), ("FF" + end, 6)])
    shop.run("DELETE FROM a WHERE v = 2")
    assert made() == ("", [("FF" + end, 6)])


@pytest.mark.parametrize(
    ("corrected", "reason", "left"),
    [
        pytest.param(
            500,
            "its quarantine has rows as JSON, in which a changed key, which is not UTF-8, is not exact",
            [600, 700],
            marks=pytest.mark.long,
        ),
        # Of other keys, only these are computed.
        (700, "", [500, 600]),
    ],
)
def test_a_row_in_quarantine_leaves_it_once_it_is_corrected_though_keys_are_no_utf8(
    lake: Lakehouse, corrected: int, reason: str, left: list[int]
) -> None:
    """The quarantine has rows as JSON, which is UTF-8."""
    shop = OneInput(lake, feed=True)
    rule = Expectation("is_small", "total < 100", Action.QUARANTINE)
    text = f"SELECT k, sum(v) AS total FROM {shop.schema}.a GROUP BY k"
    table = declared_query(shop.schema, "t", text, ["k"], (rule,))
    shop.run("INSERT INTO a VALUES (CAST(X'FF' AS STRING), 500), (CAST(X'FE' AS STRING), 600), ('ok', 700)")
    rows = ", ".join(
        f"('hash of {total}', 'is_small', '{json.dumps({'k': key, 'total': total}, ensure_ascii=False)}', 1)"
        for key, total in (("\ufffd", 500), ("\ufffd", 600), ("ok", 700))
    )
    shop.begun(table, "VALUES ('{rows}', 1), ('it''s', 2), ('{', 3), (NULL, 4)", f"VALUES {rows}")
    # Other keys change, too: one with braces, and NULL.
    shop.run(
        f"MERGE INTO a AS t USING (SELECT 1) ON v = {corrected} OR k = '{{rows}}' OR k IS NULL "
        f"WHEN MATCHED AND v = {corrected} THEN UPDATE SET v = 5 WHEN MATCHED THEN DELETE"
    )
    result, _ = [each for each in materialize_changes(lake.spark, table) if isinstance(each, dg.MaterializeResult)]
    assert (result.metadata or {}).get("computed in full because", "") == reason
    quarantined = lake.quick(f"SELECT row FROM {shop.schema}.t_quarantine")
    assert sorted(int(json.loads(row["row"])["total"]) for row in quarantined) == left
    stored = lake.run(f"SELECT k, total FROM {shop.schema}.t WHERE is_valid_utf8(k) OR k IS NULL")
    correct = {("ok", 5)} if corrected == 700 else set[tuple[str, int]]()
    assert {(row["k"], row["total"]) for row in stored} == {("it's", 2), ("{", 3), *correct}


def test_columns_in_another_order_change_every_row(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    table = declared_query(shop.schema, "t", f"SELECT k, xxhash64(*) AS hash FROM {shop.schema}.a", ["k"])
    # No row has the hash that Spark computes.
    shop.begun(table, "VALUES ('{', 1)")
    shop.run("ALTER TABLE a ALTER COLUMN v FIRST")
    assert planned(lake, table).why == "its query or declaration has changed"


@pytest.mark.long
def test_a_table_of_columns_in_another_order_is_computed(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    table = declared_query(shop.schema, "t", f"SELECT k, xxhash64(*) AS hash FROM {shop.schema}.a", ["k"])
    shop.begun(table, "VALUES ('{', 1)")
    shop.run("ALTER TABLE a ALTER COLUMN v FIRST")
    assert shop.made(table) == ("its query or declaration has changed", 1)


@pytest.mark.long
def test_keys_with_the_names_of_columns_in_them(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    key = "sha2(to_json(struct(K, Twice, V AS Number)), 256)"
    text = f"SELECT 2 * v AS Twice, {key} AS key, k, v FROM {shop.schema}.a"
    table = declared_query(shop.schema, "t", text, ["key"])
    assert shop.made(table) == ("the table is new", 1)
    shop.quick("INSERT INTO a VALUES ('new', 9)")
    shop.run("DELETE FROM a WHERE v = 1")
    assert shop.made(table) == ("", 1)


@pytest.mark.long
def test_an_input_that_is_divided_otherwise(lake: Lakehouse) -> None:
    """Of rows that were written before, Delta's feed has NULL in what became a partition: here in the key."""
    shop = OneInput(lake, feed=True)
    table, full_name = shop.table(TOTALS), f"ratify.{shop.schema}.a"
    shop.made(table)
    shop.quick("INSERT INTO a VALUES ('new', 9)")
    with closing(lake.another_duckdb()) as duckdb, duckdb.session() as session:
        assert migrate(session, duckdb.catalog, duckdb.log(full_name), full_name, Layout(("k",)))
    assert shop.made(table) == ("", 1)
    shop.run("DELETE FROM a WHERE k = 'new'")
    assert shop.made(table) == ("", 1)


def test_an_input_is_read_at_one_version_however_it_is_named(lake: Lakehouse) -> None:
    shop = OneInput(lake, feed=True)
    table = shop.table(TOTALS)
    inputs = QueryInputs(lake.spark, table.query)
    first = inputs.relation(TableName(shop.schema, "a"), ["k", "v"])
    shop.quick("INSERT INTO a VALUES ('x', 9)")
    assert first.endswith("VERSION AS OF 1")
    for name in (TableName(shop.schema, "A"), TableName(shop.schema, "a", "ratify")):
        assert inputs.relation(name, ["k", "v"]).endswith("VERSION AS OF 1")


def test_spark_is_asked_for_the_types_of_a_query_of_which_the_table_has_no_record(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table lacks a column that only the expectations use; its type is not needed."""
    shop = OneInput(lake, feed=True)
    table, recoded = (
        replace(shop.table(f"{select}, max(v) AS most"), intermediate=("most",)) for select in (TOTALS, RECODED)
    )
    shop.begun(table, no_rows(2))
    asked, types = list[str](), Spark.types
    monkeypatch.setattr(Spark, "types", lambda spark, text: asked.append(text) or types(spark, text))
    shop.quick("INSERT INTO a VALUES ('x', 9)")
    assert planned(lake, table).why == ""
    assert not asked
    assert planned(lake, recoded).why == "its query or declaration has changed"
    assert len(asked) == 1
