"""Every name in every statement is quoted: reserved words are names, and so is what else a source may call its columns."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pytest
import sqlglot

from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB, SPARK, RuleDialect
from ratify_lakehouse.components.sql_table import ValidatedQuery, split_rows
from ratify_lakehouse.components.strategies.rows_of_keys import differing, no_changes, quarantined_of_keys, stored_of_keys
from ratify_lakehouse.components.strategies.table_partitions import TablePartitions
from ratify_lakehouse.components.syncs.compared_rows import sample_sql
from ratify_lakehouse.components.syncs.converted_rows import ERRORS, ConvertedColumn, conversion_sql
from ratify_lakehouse.components.syncs.sync_declaration import whole_table
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.engines.spark import merge_statements as merges
from ratify_lakehouse.engines.spark.key_ranges import KeyRanges
from ratify_lakehouse.engines.spark.partition_guard import guarded_value
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.row_history import RowHistory, wanted_history
from ratify_lakehouse.sql.table_query import TableName, TableQuery
from ratify_lakehouse.table_layout import Layout
from tests.process_duckdb import cursor

NAMES = ["order", "end", "at", "table", "select", "null", "true", "case", "current_date", "user", "left", "desc", "values"]
ODD = ["a b", 'a"b', "a`b", "a'b", "größe", "{rows}", "a.b", "1st"]
"""Names of a source's columns, beside `NAMES`: no table that is declared has such a column."""

KEY, TIME = "zz_key", "zz_time"
TABLE = TableDeclaration(
    "zz_schema",
    "zz_table",
    (Column(KEY, "string"), Column("zz_value", "int"), Column(TIME, "date")),
    "Of a test",
    Engine.SPARK,
    frozenset({"MERGE"}),
    keys=(KEY,),
    layout=Layout((TIME,)),
)
HISTORY = RowHistory((KEY,), TIME)


def expectations(dialect: RuleDialect, key: str, latest: str) -> Expectations:
    rule = Expectation("is_given", "1 = 1", Action.QUARANTINE)
    return Expectations((rule,), (key,), unique=Unique("one", (key,), (latest,)), dialect=dialect, personal=(latest,))


def statements() -> Mapping[str, str]:
    rules = expectations(SPARK, KEY, TIME)
    query = TableQuery.parsed(f"SELECT 1 AS {KEY}, 2 AS zz_value, 3 AS {TIME}", "databricks", "q")
    validated = ValidatedQuery(TABLE, query, rules)
    types = TABLE.column_types
    partitions = TablePartitions(TIME, values=("2026-01-01",))
    converted = [ConvertedColumn(name, type_, name, "string", partition=name == TIME) for name, type_ in types.items()]
    name = "lake.s.t"
    accepted, quarantined = split_rows(validated, types)
    return {
        "ddl": TABLE.ddl("lake"),
        "more columns": TABLE.ddl_for_missing("lake", []) or "",
        "layout": TableDeclaration(
            "s", "t", TABLE.columns, "", Engine.SPARK, frozenset(), layout=Layout(cluster_by=(KEY,))
        ).ddl("lake"),
        "merge": merges.merge_sql(TABLE, name, "v"),
        "fill": merges.fill_sql(TABLE, name, "v"),
        "insert missing": merges.insert_missing_sql(name, "v", TIME),
        "merge changes": merges.changes_merge_sql(TABLE, name, "v", "true"),
        "marked insert": merges.marked_insert_sql(TABLE, name, "v", "m"),
        "insert": merges.insert_sql(TABLE, name, "v"),
        "overwrite": merges.insert_sql(TABLE, name, "v", overwrite=True),
        "validated": rules.validated("SELECT 1"),
        "accepted": accepted.replace("{rows}", "v"),
        "quarantined": quarantined.replace("{rows}", "v"),
        "stored": stored_of_keys(TABLE.keys, "t", lambda side: f"{side}.x = 1"),
        "no changes": no_changes(TABLE, "t"),
        "differing": differing(TABLE, "v", "(SELECT 1)"),
        "quarantine of keys": quarantined_of_keys(TABLE, "q"),
        "ranges": KeyRanges.query({KEY: "string"}, "v"),
        "history": wanted_history(HISTORY, list(types), "stored", "rows", "now()"),
        "partition": guarded_value("t", TIME, "date", [KEY]),
        "partitions": partitions.values_of(["2026-01-01"], "date", SPARK),
        "outside": f"SELECT * FROM q WHERE {partitions.outside('q', 'date', SPARK)}",
        "converted": conversion_sql(SPARK, converted, TABLE.keys, "rows", dict.fromkeys(types, "string")),
        "sample": sample_sql(TABLE, keyed=True).replace("{changes}", "v"),
    }


@pytest.mark.parametrize("name", statements())
def test_the_names_of_a_statement_of_spark(name: str) -> None:
    text = statements()[name]
    bare = [
        token.text
        for token in sqlglot.tokenize(text, dialect="databricks")
        if "zz_" in token.text
        and token.token_type.name not in ("IDENTIFIER", "STRING")
        and token.text not in ("zz_schema", "zz_table")
    ]
    assert bare == []
    assert KEY in text or TIME in text


@pytest.mark.parametrize("name", [*NAMES, *ODD])
def test_a_name_in_the_expectations_of_duckdb(name: str) -> None:
    rules = expectations(DUCKDB, name, f"{name} too")
    with cursor() as con:
        con.execute(f"CREATE TEMP TABLE t ({identifier(name)} INT, {identifier(f'{name} too')} INT)")
        con.execute("INSERT INTO t VALUES (1, 1), (1, 2), (2, 1)")
        con.execute(f"CREATE TEMP TABLE v AS {rules.validated('FROM t')}")
        assert con.execute("SELECT count(*) FROM v WHERE decided_by = 'one'").fetchall() == [(1,)]
        assert con.execute(rules.counted("v")).fetchall()[0][0] == 3


@pytest.mark.parametrize("name", [*NAMES, *ODD])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_name_in_the_statements_of_a_sync_by_duckdb(name: str, keyed: bool) -> None:
    column = ConvertedColumn("x" if name in ODD else name, "int", name, "string", partition=True)
    table = TableDeclaration("s", "t", (Column(column.name, "int"),), "", Engine.SPARK, frozenset(), keys=(column.name,))
    with cursor() as con:
        con.execute(f"CREATE TEMP TABLE s ({identifier(name)} VARCHAR); INSERT INTO s VALUES ('1'), ('x')")
        con.execute(f"CREATE TEMP TABLE c AS {conversion_sql(DUCKDB, [column], table.keys, 's', {name: 'string'})}")
        assert con.execute(f"SELECT len({ERRORS}) FROM c ORDER BY 1").fetchall() == [(0,), (1,)]
        key = f"{identifier(column.name)} AS {identifier(f'ratify_key_{column.name}')}"
        con.execute(f"CREATE TEMP TABLE d AS SELECT *, {key}, true AS ratify_present, false AS ratify_found FROM c")
        sample = sample_sql(table, keyed=keyed, sql=DUCKDB).replace("{changes}", "d")
        assert {row[0] for row in con.execute(sample).fetchall()} == {"insert"}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_table(name: str) -> None:
    for table in (TableName("s", name), TableName(name, "t"), TableName(name, name, name)):
        assert TableQuery.parsed(whole_table(table), "databricks", "source").inputs == (table,)
    with duckdb.connect() as con:
        con.execute(f"ATTACH ':memory:' AS uc; CREATE SCHEMA uc.{identifier(name)}")
        con.execute(f"CREATE TABLE {attached(f'{name}.{name}')} AS SELECT 1 AS one")
        assert con.execute(f"FROM {attached(f'{name}.{name}')}").fetchall() == [(1,)]


def test_one_place_names_the_tables_of_the_catalog_for_duckdb() -> None:
    root = Path(__file__).parents[2]
    files: Sequence[Path] = [path for path in (root / "ratify_lakehouse").rglob("*.py") if path.parent.name != "proof"]
    found = [file.name for file in files if re.search(r"\{ALIAS\}\.\{", file.read_text("utf-8"))]
    assert sorted(found) == ["duckdb_engine.py", "readable_tables.py"]
