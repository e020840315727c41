"""`reconcile` and `freshness`: the rows of a table against those of its input, from files to checks, by both engines."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.checks.row_reconciliation import InputRows, rows_reconciled
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.sql.table_query import TableName
from tests.components.declared_projects import Project, Shop, failed_checks, metadata
from tests.engines.lakehouse import Lakehouse

BRONZE = """type: ratify_lakehouse.LandedFiles
attributes:
  description: Orders of the shop, as they came
  pattern: shop/*.csv
  freshness: {}
  columns: [{name: order_id, type: string}, {name: amount, type: string}]
"""
SILVER = """type: ratify_lakehouse.SqlTable
attributes:
  engine: ENGINE
  description: Orders of the shop, one row each
  freshness: {}
  keys: [id]
  intermediate_columns: [landed]
  unique: {latest: [_landing, _source_row]}
  reconcile: {input: SCHEMA.orders, row_id: [_source_file, _source_row], key: [order_id]}
  columns: [{name: id, type: bigint}]
  expectations:
    - {name: amount_is_positive, expect: amount > 0, action: quarantine}
"""
SQL = """SELECT struct(order_id, amount) AS landed, try_cast(order_id AS BIGINT) AS id,
  try_cast(amount AS INT) AS amount, _source_file, _source_row, _landing
FROM bronze.orders
"""
LOST = f"{SQL} WHERE amount <> '7'"


def write(project: Project, silver_sql: str = SQL, engine: str = "spark") -> None:
    declaration = SILVER.replace("SCHEMA", project.schema("bronze")).replace("ENGINE", engine)
    if engine == "duckdb":
        # It does not know in which order files have landed.
        silver_sql, declaration = silver_sql.replace(", _landing", ""), declaration.replace("_landing, ", "")
        silver_sql = silver_sql.replace("struct(order_id, amount)", "struct_pack(order_id := order_id, amount := amount)")
    project.write("bronze", "orders", BRONZE)
    project.write("silver", "orders", declaration, silver_sql)


@pytest.fixture
def reconciled(shop: Shop, quick_creation: None) -> Shop:
    write(shop.project)
    return shop


def land(shop: Shop, name: str, *rows: str) -> None:
    (shop.landing / "shop" / name).write_text("\n".join(["order_id,amount", *rows, ""]))


def found(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    assert done.success, [event for event in done.all_events if event.is_failure]
    return {check.check_name: check for check in done.get_asset_check_evaluations()}


@pytest.mark.stack
def test_every_row_of_the_input_is_accounted_for(reconciled: Shop) -> None:
    land(reconciled, "1.csv", "1,5", "2,-1", "1,6", "3,x")
    checks = found(done := reconciled.run())
    check = checks["rows_reconciled"]
    assert check.passed
    assert check.blocking
    counts = {name: check.metadata[name].value for name in ("input", "output", "quarantine", "duplicates")}
    assert counts == {"input": 4, "output": 1, "quarantine": 2, "duplicates": 1}
    assert failed_checks(done) == {"amount_is_positive"}
    assert reconciled.rows("silver", "id, amount, _source_row") == [(1, 6, 3)]
    quarantine = reconciled.rows("silver", "_source_row, _source_file, rule, row", "orders_quarantine")
    assert [row[:3] for row in quarantine] == [
        (2, "shop/1.csv", "amount_is_positive"),
        (4, "shop/1.csv", "amount_is_positive"),
    ]
    assert json.loads(quarantine[1][3])["landed"] == {"order_id": "3", "amount": "x"}
    columns = {
        column.name: column for column in metadata(done, "silver", "orders_quarantine")["dagster/column_schema"].columns
    }
    assert [(column.name, column.type) for column in columns.values()] == [
        ("_source_file", "string"),
        ("_source_row", "bigint"),
        ("rule", "string"),
        ("row", "string"),
    ]
    assert checks["table_is_intact"].passed


# `test_every_row_of_the_input_is_accounted_for` has a table of Spark: DuckDB counts its rows, too.
@pytest.mark.stack
@pytest.mark.parametrize(
    ("engine", "sql", "number", "rows"),
    [
        # A query that loses a row, one that takes two rows for one, and one that gives a row twice.
        ("duckdb", LOST, "unaccounted", 1),
        pytest.param("spark", LOST, "unaccounted", 1, marks=pytest.mark.long),
        pytest.param(
            *("spark", SQL.replace("try_cast(order_id AS BIGINT)", "CAST(1 AS BIGINT)"), "unaccounted", 2),
            marks=pytest.mark.long,
        ),
        # `test_the_counts_of_relations` has the short forms of these.
        pytest.param(
            "spark",
            f"{SQL} UNION ALL {SQL.replace('try_cast(order_id AS BIGINT)', 'try_cast(order_id AS BIGINT) + 10')}",
            "doubled",
            3,
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_query_that_loses_or_doubles_rows_is_found(
    reconciled: Shop, engine: str, sql: str, number: str, rows: int
) -> None:
    write(reconciled.project, sql, engine)
    land(reconciled, "1.csv", "1,5", "2,6", "3,7")
    done = reconciled.run()
    (check,) = [each for each in done.get_asset_check_evaluations() if each.check_name == "rows_reconciled"]
    # It blocks what is downstream, so the run fails.
    assert not done.success
    assert (check.passed, check.metadata[number].value) == (False, rows)


@pytest.mark.stack
@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.long)])
def test_a_row_that_is_quarantined_twice_is_an_error_that_names_it(reconciled: Shop, engine: str) -> None:
    write(reconciled.project, f"{SQL} UNION ALL {SQL}", engine)
    land(reconciled, "1.csv", "1,-5")
    done = reconciled.run()
    assert not done.success
    errors = [event.step_failure_data.error for event in done.all_events if event.is_step_failure]
    texts = "".join(error.to_string() for error in errors if error)
    assert (
        "several rows of the query have the same _source_file, _source_row: _source_file='shop/1.csv', _source_row=1"
        in texts
    )
    assert "Name under `reconcile` as row_id the columns" in texts


def test_a_table_with_freshness_is_checked_for_new_data(reconciled_project: Project) -> None:
    declared = reconciled_project.tables
    keys = {(key.asset_key.path[1].partition("_")[0], key.name) for key in declared.checks}
    assert {("bronze", "data_is_fresh"), ("silver", "data_is_fresh"), ("silver", "rows_reconciled")} <= keys
    reconciled_project.write("bronze", "orders", BRONZE.replace("  freshness: {}\n", ""))
    keys = {(key.asset_key.path[1].partition("_")[0], key.name) for key in reconciled_project.tables.checks}
    assert ("bronze", "data_is_fresh") not in keys
    assert ("silver", "data_is_fresh") in keys


@pytest.fixture
def reconciled_project(project: Project) -> Project:
    write(project)
    return project


@pytest.fixture
def duckdb(lake: Lakehouse) -> Iterator[DuckDB]:
    engine = lake.another_duckdb()
    yield engine
    engine.close()


@pytest.mark.stack
def test_the_counts_of_relations(duckdb: DuckDB, tmp_path: Path) -> None:
    """Without a quarantine, with one column as a row id, and with keys that are NULL."""
    rows = InputRows(TableName("bronze", "orders"), ("n",), ("k",))

    def counts(given: str, output: str, quarantine: str = "") -> tuple[bool, dict[str, int]]:
        relations = [f"(SELECT * FROM (VALUES {values}) AS t(n, k))" for values in (given, output)]
        quarantined = f"(SELECT * FROM (VALUES {quarantine}) AS t(n, k))" if quarantine else ""
        with duckdb.session() as session:
            numbers = rows.counts(session, *relations, quarantined)
        return rows_reconciled(numbers).passed, numbers

    passed, numbers = counts("(1, 'a'), (2, 'a'), (3, NULL)", "(2, 'x'), (3, NULL)")
    assert passed
    assert numbers == {
        "input": 3,
        "output": 2,
        "quarantine": 0,
        "duplicates": 1,
        "unaccounted": 0,
        "orphans": 0,
        "doubled": 0,
    }
    # A row without a key is nobody's duplicate.
    passed, numbers = counts("(1, NULL), (2, NULL)", "(1, NULL)")
    assert (passed, numbers["unaccounted"], numbers["doubled"]) == (False, 1, 0)
    passed, numbers = counts("(1, 'a')", "(1, 'a')", "(1, 'a')")
    assert (passed, numbers["doubled"]) == (False, 1)
    passed, numbers = counts("(1, 'a'), (2, 'a')", "(1, 'a'), (2, 'b')")
    assert (passed, numbers["doubled"]) == (False, 1)
    passed, numbers = counts("(1, 'a')", "(1, 'a'), (9, 'b')")
    assert (passed, numbers["orphans"]) == (False, 1)
