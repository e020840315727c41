"""Tables whose query DuckDB computes: the same tables as by Spark, validated and reconciled in the same way."""

from collections.abc import Mapping

import dagster as dg
import pytest

from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.errors import InvalidDeclaration
from tests.components.declared_projects import Project, Shop, causes, failed_checks, metadata

HISTORY_CHECKS = {"table_is_intact", "written_as_reported"}
BRONZE = "type: ratify_lakehouse.LandedFiles\nattributes: {description: Orders as they came, pattern: shop/*.csv}\n"
SILVER = """
type: ratify_lakehouse.SqlTable
attributes:
  description: Orders, one row each
  engine: ENGINE
  keys: [order_id]
  intermediate_columns: [landed_as]
  unique: {latest: [_source_file, _source_row]}
  columns:
    - {name: amount, type: "decimal(10,2)", description: In euros}
    - {name: customer, pii: true}
  expectations:
    - {name: amount_is_positive, expect: amount > 0, action: quarantine}
    - {name: day_is_known, expect: day IS NOT NULL, action: quarantine}
    - {name: customer_is_given, expect: customer <> ''}
    - {name: not_a_test, expect: "customer IS NULL OR customer <> 'test'", action: drop}
"""
SQL = """
SELECT order_id, trim(customer_name) AS customer, CAST(amount_eur AS DECIMAL(10, 2)) AS amount,
  TRY_CAST(placed_at AS DATE) AS day, placed_at AS landed_as, _source_file, _source_row
FROM bronze.orders
"""
GOLD = """
type: ratify_lakehouse.SqlTable
attributes: {description: What was sold on a day, engine: ENGINE, keys: [day]}
"""
GOLD_SQL = "SELECT day, count(*) AS orders, sum(amount) AS amount, max(customer) AS last FROM silver.SOURCE GROUP BY day"
COLUMNS = "order_id, customer, CAST(amount AS STRING), CAST(day AS STRING), _source_file, _source_row"
DAYS = "CAST(day AS STRING), orders, CAST(amount AS STRING), last"


LANDINGS = {
    "1.csv": "1,Ann,2.50,2026-01-01\n2, Bob ,3,2026-01-01\n3,Cid,-1,2026-01-02\n4,,4,2026-01-02\n5,test,1,2026-01-02\n",
    # Corrections, a row without a day, and the same order twice.
    "2.csv": "2,Bob,3.50,2026-01-03\n3,Cid,1,2026-01-02\n6,Eve,6,\n7,Flo,7,2026-01-04\n7,Flo,8,2026-01-04\n",
}


def write(project: Project, engine: str) -> None:
    project.write("silver", engine, SILVER.replace("ENGINE", engine), SQL)
    sql = GOLD_SQL.replace("SOURCE", engine)
    # DuckDB sums decimals as DECIMAL(38,2), Spark as DECIMAL(20,2).
    project.write(
        "gold", engine, GOLD.replace("ENGINE", engine), sql.replace("sum(amount)", "CAST(sum(amount) AS DECIMAL(20, 2))")
    )


def results(done: dg.ExecuteInProcessResult, table: str) -> dict[str, tuple[bool, object]]:
    """Of the expectations, with how many rows fail them."""
    checks = (check for check in done.get_asset_check_evaluations() if check.asset_key.path[-1] == table)
    return {
        check.check_name: (check.passed, check.metadata["failed"].value) for check in checks if "failed" in check.metadata
    }


def shown_examples(done: dg.ExecuteInProcessResult, table: str) -> list[Mapping[str, object]]:
    """Of the expectations, the rows that are shown as failing them."""
    checks = [check for check in done.get_asset_check_evaluations() if check.asset_key.path[-1] == table]
    tables = [check.metadata["examples"] for check in checks if "examples" in check.metadata]
    return [record.data for table in tables if isinstance(table, dg.TableMetadataValue) for record in table.records]


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
def test_duckdb_makes_the_tables_that_spark_makes(shop: Shop) -> None:
    """Rows, quarantine, expectations, types and lineage of both engines are equal."""
    shop.project.write("bronze", "orders", BRONZE)
    for engine in ("spark", "duckdb"):
        write(shop.project, engine)
    for name, text in LANDINGS.items():
        shop.land(name, text)
    done = shop.run()
    assert done.success, causes(done)
    assert not failed_checks(done) & HISTORY_CHECKS
    assert results(done, "spark") == results(done, "duckdb")
    for engine in ("spark", "duckdb"):
        examples = shown_examples(done, engine)
        assert not [text for text in ("'customer'", "landed_as", "Cid") if text in str(examples)], "it is personal"
        assert 3 in [example["order_id"] for example in examples]
    for layer, columns in (("silver", COLUMNS), ("gold", DAYS)):
        assert shop.rows(layer, columns, "duckdb") == shop.rows(layer, columns, "spark") != []
    kept = "row, rule, rows, row_hash"
    by_spark, by_duckdb = (shop.rows("silver", kept, f"{engine}_quarantine") for engine in ("spark", "duckdb"))
    assert [row[1:3] for row in by_duckdb] == [row[1:3] for row in by_spark]
    assert len({row[3] for row in by_duckdb}) == len(by_duckdb)
    spark, duckdb = (metadata(done, "silver", engine) for engine in ("spark", "duckdb"))
    assert duckdb["dagster/column_schema"] == spark["dagster/column_schema"]
    assert duckdb["dagster/column_lineage"] == spark["dagster/column_lineage"]
    shown = [sorted(str(row.data) for row in found["preview"].records) for found in (spark, duckdb)]
    assert shown[0] == shown[1]
    assert (duckdb["engine"], duckdb["rows added"]) == ("DuckDB", spark["rows added"])
    assert [found[COMMITS]["versions"] for found in (spark, duckdb)] == [[0, 1], [0, 1]]
    assert duckdb["last commit"].endswith(": WRITE by DuckDB")


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
def test_duckdb_commits_what_differs(shop: Shop) -> None:
    """After each landing; `test_only_what_differs_is_committed` is the same by Spark."""
    shop.project.write("bronze", "orders", BRONZE)
    write(shop.project, "duckdb")
    first = [(1, "2.50"), (2, "3.00"), (4, "4.00")]
    last = [(1, "2.50"), (2, "3.50"), (3, "1.00"), (4, "4.00"), (7, "8.00")]
    days = [("2026-01-01", 2, "5.50"), ("2026-01-02", 1, "4.00")]
    last_days = [("2026-01-01", 1, "2.50"), ("2026-01-02", 2, "5.00"), ("2026-01-03", 1, "3.50"), ("2026-01-04", 1, "8.00")]
    for number, (name, text, silver, gold, quarantined, changed) in enumerate(
        (
            ("1.csv", LANDINGS["1.csv"], first, days, ["amount_is_positive"], True),
            ("2.csv", LANDINGS["2.csv"], last, last_days, ["amount_is_positive", "day_is_known"], True),
            ("3.csv", "", last, last_days, ["amount_is_positive", "day_is_known"], False),
        )
    ):
        shop.land(name, text)
        done = shop.run(checks=number == 1)
        assert done.success, causes(done)
        assert not failed_checks(done) & HISTORY_CHECKS
        assert shop.rows("silver", "order_id, CAST(amount AS STRING)", "duckdb") == silver
        shown = "CAST(day AS STRING), orders, CAST(amount AS STRING)"
        assert shop.rows("gold", shown, "duckdb") == gold
        assert [rule for (rule,) in shop.rows("silver", "rule", "duckdb_quarantine")] == quarantined
        for layer in ("silver", "gold"):
            found = metadata(done, layer, "duckdb")
            assert bool(found[COMMITS]["versions"]) == changed
            assert found["last commit"].endswith(": WRITE by DuckDB")
    assert shop.rows("silver", "order_id, CAST(amount AS STRING)", "duckdb")[-1] == (7, "8.00")


@pytest.mark.stack
def test_nothing_is_written_where_the_query_does_not_fit(shop: Shop) -> None:
    shop.project.write("bronze", "orders", BRONZE)
    shop.land("1.csv", "1,Ann,2.50,2026-01-01\n1,Ann,3.50,2026-01-01\n")
    cases = {
        "several": (
            "SELECT order_id AS id, customer_name FROM bronze.orders",
            "several rows of the query have the same id: id=1. Name",
        ),
        "personal": (
            "SELECT order_id AS id, customer_name AS amount FROM bronze.orders",
            "several rows of the query have the same id: id=…. Name",
        ),
        "span": ("SELECT 1 AS id, INTERVAL 1 DAY AS n FROM bronze.orders", "Column n of the query is INTERVAL in DuckDB"),
        "huge": (
            "SELECT 1 AS id, sum(order_id + 9223372036854775806) AS n FROM bronze.orders",
            "out of range for the destination type INT64",
        ),
        "other": (
            "SELECT 1 AS id, 'x' AS amount FROM bronze.orders",
            "its declared type is bigint, but the query returns string",
        ),
        "failing": (
            "SELECT 1 AS id, 0 AS amount FROM bronze.orders LIMIT 1",
            "of 1 row, 1 fails amount_is_positive. Correct the source",
        ),
    }
    for name, (sql, _) in cases.items():
        marked = {"other": "name: amount, type: bigint", "personal": "name: id, subject: order"}.get(name)
        columns = f"columns: [{{{marked}}}], " if marked else ""
        rule = "expectations: [{name: amount_is_positive, expect: amount > 0, action: fail}], " if name == "failing" else ""
        attributes = f"{{description: D, engine: duckdb, {columns}{rule}keys: [id]}}"
        shop.project.write("silver", name, f"type: ratify_lakehouse.SqlTable\nattributes: {attributes}\n", sql)
    found = causes(shop.run(checks=False))
    assert {name: message in found[name] for name, (_, message) in cases.items()} == dict.fromkeys(cases, True), found
    # Not even the schema of the tables was made.
    # Only the schema of the input has to be made.
    assert shop.lake.catalog.ensure_schemas((shop.project.schema("bronze"), shop.project.schema("silver"))) == [
        shop.project.schema("silver")
    ]


def test_what_only_spark_knows_is_named(project: Project) -> None:
    project.write("silver", "t", GOLD.replace("ENGINE", "duckdb"), "SELECT 1 AS day, _landing FROM bronze.orders")
    with pytest.raises(Exception) as error:  # noqa: PT011 Dagster wraps it
        _ = project.tables.definitions
    cause: BaseException | None = error.value
    while cause and not isinstance(cause, InvalidDeclaration):
        cause = cause.__cause__
    assert "t/defs.yaml, line 3, engine: the query reads _landing, which only Spark knows" in str(cause)
