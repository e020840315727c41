"""What is read from a query: its tables, its columns, and where they come from."""

import pytest
from sqlglot.errors import SqlglotError

from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.column_origins import origins
from ratify_lakehouse.sql.query_parts import nondeterministic
from ratify_lakehouse.sql.row_wise_inputs import row_wise_inputs
from ratify_lakehouse.sql.table_query import TableName, TableQuery, syntax_tree

QUERY = """-- silver.comment is no table
WITH late AS (SELECT * FROM silver.orders AS f WHERE f.delay > (SELECT max(m) FROM gold.bounds))
SELECT late.id, b.name, r'\\d silver.text' AS t, count(*) AS n
FROM late JOIN `bronze`.`products` AS b ON late.dest = b.code
WHERE late.id IN (SELECT id FROM other.gold.ids)
GROUP BY ALL"""


def parsed(text: str) -> TableQuery:
    return TableQuery.parsed(text, "databricks", "gold/late/late.sql")


def test_tables_and_columns() -> None:
    query = parsed(QUERY)
    names = [("silver", "orders"), ("gold", "bounds"), ("bronze", "products"), ("gold", "ids", "other")]
    assert query.inputs == tuple(TableName(*name) for name in names)
    assert query.columns == ("id", "name", "t", "n")


def test_only_the_tables_are_replaced() -> None:
    named = parsed(QUERY).resolved(lambda name: f"<{name}>")
    assert named == (
        QUERY.replace("silver.orders AS f", "<silver.orders> AS f")
        .replace("FROM gold.bounds", "FROM <gold.bounds>")
        .replace("`bronze`.`products`", "<bronze.products>")
        .replace("other.gold.ids", "<other.gold.ids>")
    )
    # A query in its place has the name by which the text knows the table's columns.
    nested = parsed(QUERY).resolved(lambda name: f"(SELECT * FROM {name})")
    assert nested == (
        QUERY.replace("silver.orders AS f", "(SELECT * FROM silver.orders) AS f")
        .replace("FROM gold.bounds", "FROM (SELECT * FROM gold.bounds) AS bounds")
        .replace("`bronze`.`products`", "(SELECT * FROM bronze.products)")
        .replace("other.gold.ids", "(SELECT * FROM other.gold.ids) AS ids")
    )


def test_where_columns_come_from() -> None:
    known = {
        "silver.orders": ["id", "delay", "dest"],
        "gold.bounds": ["m"],
        "bronze.products": ["code", "name"],
        "gold.ids": ["id"],
    }
    assert parsed(QUERY).lineage(known) == {
        "id": ("silver.orders.id",),
        "name": ("bronze.products.name",),
        "t": (),
        "n": (),
    }
    union = "SELECT coalesce(a, b) AS x FROM silver.one UNION ALL SELECT c FROM silver.two"
    assert parsed(union).lineage({}) == {"x": ("silver.one.a", "silver.one.b", "silver.two.c")}
    joined = "WITH t AS (SELECT *, a + b AS s FROM silver.one) SELECT s, two.c FROM t JOIN silver.two USING (a)"
    found = parsed(joined).lineage({"silver.one": ["a", "b"], "silver.two": ["a", "c"]})
    assert found == {"s": ("silver.one.a", "silver.one.b"), "c": ("silver.two.c",)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT a FRM silver.b", r"late.sql, line 1, column \d+: .*FRM"),
        ("SELECT a\nFROM silver.b\nWHERE", "line 3"),
        ("SELECT 'a", "not SQL that can be parsed"),
        ("SELECT 1; SELECT 2", "one SELECT statement"),
        ("DELETE FROM silver.b", "one SELECT statement"),
        ("-- nothing", "one SELECT statement"),
        ("", "one SELECT statement"),
        ("SELECT *\nFROM orders", r"line 2: name the table 'orders' with its schema"),
        ("WITH a AS (SELECT 1 AS x) SELECT * FROM a JOIN b USING (x)", "name the table 'b'"),
    ],
)
def test_what_is_no_query_over_tables_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=reason):
        parsed(text)


def test_functions_are_no_tables() -> None:
    assert parsed("SELECT id FROM range(10)").inputs == ()
    exploded = parsed("SELECT o.id, item FROM silver.orders AS o LATERAL VIEW explode(o.items) AS item")
    assert exploded.inputs == (TableName("silver", "orders"),)


def test_a_text_is_parsed_once_and_its_tree_stays_as_it_is() -> None:
    query, known = parsed(QUERY), {"silver.orders": ["id", "delay", "dest"]}
    tree = syntax_tree(query.text, query.dialect)
    before = tree.sql()
    query.lineage(known)
    nondeterministic(query)
    origins(query, known)
    row_wise_inputs(query)
    assert syntax_tree(QUERY, "databricks") is tree
    assert tree.sql() == before
    with pytest.raises(SqlglotError):
        syntax_tree("", "duckdb")
