"""Mistakes in declarations: each error names the file, the line and the field, and what is wrong."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ratify_lakehouse.components.yaml_tables import DeclaredTables
from resources.project_resources import RESOURCES

BRONZE = """type: ratify_lakehouse.LandedFiles
attributes:
  description: Orders
  pattern: shop/*.csv
"""
GOLD = """type: ratify_lakehouse.SqlTable
attributes:
  description: Days
  keys: [day]
"""
PARTITION = "  strategy: partition\n  partitions: {column: day, daily: {start: 2013-01-01, end: 2014-01-01}}\n"
LISTED = "  strategy: partition\n  partitions: {column: day, values: [a, a]}\n"
DAYS = "SELECT day, amount\nFROM bronze.orders\n"


def reconcile(table: str, row_id: str, key: str = "[day]") -> str:
    return f"  reconcile:\n    input: {table}\n    row_id: {row_id}\n    key: {key}\n"


class Mistakes:
    """A package of declarations."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, folder: str, declaration: str, sql: str = "") -> None:
        path = self.root / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "defs.yaml").write_text(declaration)
        if sql:
            (path / f"{path.name}.sql").write_text(sql)

    def tables(self) -> DeclaredTables:
        return DeclaredTables(importlib.import_module(self.root.name))

    def error(self) -> str:
        """All that a person is shown of the error: the texts of the exception and of its causes."""
        tables = self.tables()
        with pytest.raises(Exception) as raised:  # noqa: PT011 the texts are what is tested
            load(tables)
        return said(raised.value)


def load(tables: DeclaredTables) -> None:
    """Load declarations as the code location does."""
    tables.check_inputs()
    dg.Definitions.merge(tables.definitions, dg.Definitions(resources=RESOURCES)).resolve_implicit_global_asset_job_def()


def said(error: BaseException | None) -> str:
    texts = list[str]()
    while error:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


@pytest.fixture
def mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mistakes]:
    root = tmp_path / f"tables_{tmp_path.name}"
    root.mkdir()
    (root / "__init__.py").touch()
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Mistakes(root)
    sys.modules.pop(root.name, None)


@pytest.mark.parametrize(
    ("more", "place", "reason"),
    [
        ("  columns:\n    - {name: a b}\n", "line 6, columns[0]", "'a b' is not a plain identifier"),
        ("  columns:\n    - {name: a}\n    - {name: A}\n", "line 5, columns", "column 'a' is declared twice"),
        ("  columns:\n    - {name: a}\n    - {name: b, type: money}\n", "line 7, columns[1]", "type 'money' is not one"),
        ("  columns: [{name: a, type: timestamp_ntz}]\n", "line 5, columns[0]", "TIMESTAMP_NTZ hides its whole schema"),
        ("  columns: [{name: a, type: variant}]\n", "line 5, columns[0]", "VARIANT hides its whole schema"),
        ("  columns: [{name: a, type: 'map<string,decimal(10,2)>'}]\n", "line 5, columns[0]", "a DECIMAL inside a map"),
        ("  encoding: klingon\n", "line 5, encoding", "there is no encoding 'klingon'"),
        ("  csv:\n    delimiter: '||'\n", "line 5, csv", "single characters"),
        ("  csv:\n    nulls: [NA]\n    header: false\n", "line 7, csv.header", "need a declared header"),
        ("  rename: {Order: a, order: b}\n", "line 5, rename", "'order' is renamed twice"),
        ("  on_rewrite: ignore\n", "line 5, on_rewrite", "Input should be 'refuse', 'append' or 'replace', not 'ignore'"),
        ("  patern: x\n", "defs.yaml:5", "patern"),
        ("  format: xml\n", "line 5, format", "Input should be 'csv', 'jsonl' or 'parquet', not 'xml'"),
        ("  csv: {separator: ;}\n", "defs.yaml:5", "separator"),
        ("  columns: [{type: string}]\n", "defs.yaml:5", "name"),
        ("  freshness: {warn_after: often}\n", "line 5, freshness.warn_after", "'often' is not a duration"),
        ("  columns: [{name: a}]\n  cluster_by:\n  - b\n", "line 7, cluster_by[0]", "'b' is not a column of a"),
        ("  columns: [{name: a}]\n  partition_by: [a]\n", "line 6, partition_by", "DuckDB writes it, and only to tables"),
    ],
)
def test_in_a_table_of_landed_files(mistakes: Mistakes, more: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE + more)
    error = mistakes.error()
    assert "bronze/orders/defs.yaml" in error
    assert place in error
    assert reason in error


@pytest.mark.parametrize(
    ("more", "sql", "place", "reason"),
    [
        ("", "", "gold/days/defs.yaml, line 2, sql", "gold/days/days.sql does not exist; write the table's query there"),
        ("  sql: other.sql\n", DAYS, "gold/days/defs.yaml, line 5, sql", "gold/days/other.sql does not exist"),
        ("", "SELECT day\nFRM bronze.orders", "gold/days/days.sql, line 2, column", "not SQL that can be parsed"),
        ("", "SELECT day\nFROM orders", "gold/days/days.sql, line 2", "name the table 'orders' with its schema"),
        ("", "DELETE FROM bronze.orders", "gold/days/days.sql", "one SELECT statement"),
        ("", "SELECT 1 AS day; SELECT 2 AS day", "gold/days/days.sql", "one SELECT statement"),
        ("", "SELECT day\nFROM bronze.ordes", "gold/days/days.sql, line 2", "Did you mean bronze.orders?"),
        (
            "",
            "SELECT n FROM bronze.orders",
            "line 4, keys[0]",
            "'day' is a key, but not a column of the query, which returns n",
        ),
        ("  columns: [{name: total}]\n", DAYS, "line 5, columns[0]", "'total' is a declared column, but not a column of"),
        ("  columns: [{name: day, type: timestamp_ntz}]\n", DAYS, "line 5, columns[0]", "TIMESTAMP_NTZ hides"),
        (
            "  intermediate_columns: [x]\n",
            DAYS,
            "line 5, intermediate_columns[0]",
            "'x' is intermediate, but not a column of the query",
        ),
        ("  unique: {latest: [seen]}\n", DAYS, "line 5, unique.latest", "'seen' is not a column of the query"),
        (
            "  expectations:\n    - {name: a, expect: amount > 0}\n    - {name: a, expect: amount < 9}\n",
            DAYS,
            "line 7, expectations[1]",
            "The name 'a' is used twice",
        ),
        ("  expectations: [{name: a b, expect: amount > 0}]\n", DAYS, "line 5, expectations[0]", "not a plain identifier"),
        ("  expectations: [{name: a, expect: amount >}]\n", DAYS, "line 5, expectations[0].expect", "not a predicate"),
        (
            "  expectations: [{name: a, expect: amnt > 0}]\n",
            DAYS,
            "line 5, expectations[0].expect",
            "'amnt' is not a column",
        ),
        (
            "  expectations: [{name: a, expect: day > 0, action: stop}]\n",
            DAYS,
            "line 5, expectations[0].action",
            "not 'stop'",
        ),
        ("  keyes: [day]\n", DAYS, "defs.yaml:5", "keyes"),
        (
            "  strategy: some\n",
            DAYS,
            "line 5, strategy",
            "Input should be 'full', 'incremental', 'append', 'append_by_period', 'scd2' or 'partition', not 'some'",
        ),
        (
            "  strategy: incremental\n",
            "SELECT day, current_date() AS today FROM bronze.orders",
            "line 5, strategy",
            "the query has CURRENT_DATE",
        ),
        ("  engine: duckdb\n", "SELECT `day` FROM bronze.orders", "line 1, column", "declare `engine: spark`"),
        ("", "SELECT day, {'a': 1} AS s FROM bronze.orders", "line 1, column", "declare `engine: duckdb`"),
        ("  strategy: append\n", "SELECT day, rand() AS r FROM bronze.orders", "line 5, strategy", "the query has RAND()"),
        ("  strategy: append\n", "SELECT max(day) AS day FROM bronze.orders", "line 5, strategy", "no input row by row"),
        (
            "  strategy: append\n",
            "SELECT a.day FROM bronze.orders AS a JOIN other.s.b ON a.day = b.day",
            "line 5, strategy",
            "new rows of each of bronze.orders, other.s.b give new rows of the query: name under `append`",
        ),
        (
            "  strategy: append\n  append: {input: bronze.order}\n",
            DAYS,
            "line 6, append.input",
            "does not read bronze.order row by row. It reads these row by row: bronze.orders.",
        ),
        ("  append: {input: bronze.orders}\n", DAYS, "line 5, append", "only the strategy append follows an input"),
        ("  strategy: append\n", "SELECT day, _landing FROM bronze.orders", "line 5, strategy", "the query reads _landing"),
        ("  strategy: append\n  unique: {latest: [amount]}\n", DAYS, "line 6, unique", "appended rows never change"),
        (
            "  strategy: append\n" + reconcile("bronze.orders", "[day]"),
            DAYS,
            "line 6, reconcile",
            "appended rows never change",
        ),
        (
            "  strategy: append\n  expectations:\n    - {name: a, expect: amount > 0, action: quarantine}\n",
            DAYS,
            "line 7, expectations[0].action",
            "the strategy append has no quarantine",
        ),
        (
            "  strategy: incremental\n",
            "SELECT day, collect_list(amount) AS amounts FROM bronze.orders GROUP BY day",
            "line 5, strategy",
            "the query has COLLECT_LIST(amount), which depends on more than the rows",
        ),
        (
            "  strategy: incremental\n  expectations: [{name: a, expect: day <= current_date(), action: drop}]\n",
            DAYS,
            "line 6, expectations[0].expect",
            "a has CURRENT_DATE",
        ),
        (
            "  strategy: incremental\n  expectations: [{name: a, expect: count(*) OVER (ORDER BY day) = 1, action: drop}]\n",
            DAYS,
            "line 6, expectations[0].expect",
            "a has COUNT(*) OVER (ORDER BY day), which looks at other rows",
        ),
        ("  strategy: partition\n", DAYS, "line 5, strategy", "it needs `partitions`: a column, and its days or values"),
        ("  partitions: {column: day, values: [a]}\n", DAYS, "line 5, partitions", "only a table of the strategy partition"),
        (
            PARTITION.replace("column: day", "column: dey"),
            DAYS,
            "line 6, partitions.column",
            "'dey' is not a column of the query",
        ),
        (PARTITION.replace("column: day", "column: amount"), DAYS, "line 6, partitions.column", "not one of the keys day"),
        (PARTITION.replace(", end: 2014-01-01", ", end: 2012-01-01"), DAYS, "line 6, partitions.daily.end", "is not after"),
        (PARTITION.replace("2013-01-01", "2013-02-30"), DAYS, "line 6, partitions.daily.start", "'2013-02-30' is not a day"),
        (PARTITION.replace("daily: {", "values: [a], daily: {"), DAYS, "line 6, partitions.values", "Both are given"),
        (
            "  strategy: partition\n  partitions: {column: day}\n",
            DAYS,
            "line 6, partitions",
            "Nothing says which",
        ),
        (LISTED, DAYS, "line 6, partitions.values[1]", "'a' is empty or listed twice"),
        (LISTED.replace("a, a", "DE, NO"), DAYS, "line 6, partitions.values[1]", "a boolean in YAML (false)"),
        (
            PARTITION + "  expectations:\n    - {name: a, expect: amount > 0, action: quarantine}\n",
            DAYS,
            "line 8, expectations[0].action",
            "but rejected rows may belong to no partition",
        ),
        (PARTITION + reconcile("bronze.orders", "[day]"), DAYS, "line 7, reconcile", "cannot be reconciled"),
        (PARTITION, "SELECT day, now() AS n FROM bronze.orders", "line 5, strategy", "depends on more than the rows"),
        ("  day: day\n", DAYS, "line 5, day", "only a table of the strategy incremental needs it"),
        ("  strategy: incremental\n  day: dey\n", DAYS, "line 6, day", "'dey' is not a column of the table"),
        ("  freshness: {warn_after: 2 days}\n", DAYS, "line 5, freshness.error_after", "36 hours is less than 2 days"),
        (
            reconcile("bronze.order", "[day]"),
            DAYS,
            "line 6, reconcile.input",
            "not an input of the query, which reads bronze.orders",
        ),
        (
            reconcile("bronze.orders", "[day, row]"),
            DAYS,
            "line 7, reconcile.row_id[1]",
            "'row' is a column of row_id, but no",
        ),
        (reconcile("bronze.orders", "[]"), DAYS, "line 7, reconcile.row_id", "name at least one column"),
        (reconcile("bronze.orders", "[day]", "[]"), DAYS, "line 8, reconcile.key", "name at least one column"),
        ("  reconcile: {input: bronze.orders, row_id: [day]}\n", DAYS, "defs.yaml:5", "key"),
        (
            "  intermediate_columns: [amount]\n" + reconcile("bronze.orders", "[day, amount]"),
            DAYS,
            "line 8, reconcile.row_id[1]",
            "'amount' is an intermediate column, which the table does not have",
        ),
        (
            "  expectations:\n    - {name: a, expect: amount > 0, action: drop}\n" + reconcile("bronze.orders", "[day]"),
            DAYS,
            "line 6, expectations[0].action",
            "a drops rows, which could not be reconciled: they would be nowhere. Quarantine them.",
        ),
    ],
)
def test_in_a_table_of_a_query(mistakes: Mistakes, more: str, sql: str, place: str, reason: str) -> None:
    mistakes.write("bronze/orders", BRONZE)
    mistakes.write("gold/days", GOLD + more, sql)
    error = mistakes.error()
    assert "gold/days/" in error
    assert place in error
    assert reason in error


@pytest.mark.parametrize(
    ("row_id", "key", "place"),
    [("[day, amount]", "[dey]", "line 8, reconcile.key[0]"), ("[dey]", "[day]", "line 7, reconcile.row_id[0]")],
)
def test_rows_are_reconciled_by_columns_that_the_input_is_declared_to_have(
    mistakes: Mistakes, row_id: str, key: str, place: str
) -> None:
    mistakes.write("bronze/orders", BRONZE + "  columns: [{name: day}, {name: amount}]\n")
    mistakes.write("gold/days", GOLD + reconcile("bronze.orders", row_id, key), DAYS.replace("SELECT", "SELECT day AS dey,"))
    error = mistakes.error()
    assert f"gold/days/defs.yaml, {place}" in error
    assert "'dey' is not a column of bronze.orders, which has day, amount, _source_file" in error


def test_between_tables(mistakes: Mistakes) -> None:
    mistakes.write("gold/days", GOLD, "SELECT day FROM gold.weeks")
    mistakes.write("gold/weeks", GOLD, "SELECT day FROM gold.days")
    cycle = mistakes.error()
    assert re.search(r"(?is)circular|cycle", cycle)
    assert "days" in cycle
    assert "weeks" in cycle


@pytest.mark.parametrize(
    ("folder", "declaration", "reason"),
    [
        ("Gold/orders", BRONZE, "are one table: names ignore case"),
        ("gold/information_schema", BRONZE, ""),
        ("information_schema/orders", BRONZE, "that schema is the catalog's own"),
        ("orders", BRONZE, "/orders/defs.yaml: a table is declared in"),
        ("gold/or-ders", BRONZE, "'or-ders' is not a plain identifier"),
        ("gold/other", "type: ratify_lakehouse.LandedFile\n", "LandedFile"),
        ("gold/other", "type: ratify_lakehouse.LandedFiles\nattributes: [", "defs.yaml"),
        ("gold/other", GOLD.replace("[day]", "[]"), "keys"),
    ],
)
def test_of_the_place_or_the_kind(mistakes: Mistakes, folder: str, declaration: str, reason: str) -> None:
    mistakes.write("gold/orders", BRONZE)
    mistakes.write(folder, declaration)
    if reason:
        assert reason in mistakes.error()
    else:
        load(DeclaredTables(importlib.import_module(mistakes.root.name)))


def test_an_input_that_other_programs_make_is_named(mistakes: Mistakes) -> None:
    mistakes.write("gold/days", GOLD, "SELECT day, s FROM legacy.days JOIN other.sales.days USING (day)")
    error = mistakes.error()
    assert "gold/days/days.sql, line 1: no asset of the project makes legacy.days. Did you mean gold.days?" in error
    assert "Name a table of other programs under `external`" in error
    mistakes.write("gold/weeks", GOLD, "SELECT day, s\nFROM gold.DAYS")
    mistakes.write("gold/days", GOLD + "  external: [legacy.days]\n")
    assert "gold/weeks/weeks.sql, line 2: the table gold.DAYS is gold.days: write it that way." in mistakes.error()
    # A table of another catalog whose name is else that of one here.
    (mistakes.root / "gold" / "others.py").write_text(
        'import dagster as dg\n\nspec = dg.AssetSpec(["other", "gold", "days"])\n'
    )
    mistakes.write("gold/weeks", GOLD, "SELECT day, s FROM gold.days JOIN other.gold.days AS o USING (day)")
    tables = DeclaredTables(importlib.import_module(mistakes.root.name))
    load(tables)
    assert dg.AssetKey(["ratify", "gold", "days"]) in tables.keys
