"""Expectations: what passes, what decides where several fail, what is counted, and what Dagster shows."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import dagster as dg
import duckdb
import pytest
from pyspark.cloudpickle import dumps

from ratify_lakehouse.components.expectations.expectation_checks import check_results, check_specs
from ratify_lakehouse.components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from ratify_lakehouse.components.expectations.rule_dialects import DUCKDB
from ratify_lakehouse.components.expectations.validation import ValidationResult, total, validation_result
from ratify_lakehouse.components.row_flow import validated_flow
from ratify_lakehouse.components.stream.micro_batch import EXPECTATION_FAILED, BatchStatements, batch_function, counted_in
from ratify_lakehouse.errors import UnsafeDeclaration
from tests.engines.lakehouse import Lakehouse

KEY = dg.AssetKey(["ratify", "silver", "t"])
RULES = Expectations(
    rules=(
        Expectation("small", "n < 100", Action.WARN),
        Expectation("even", "n % 2 = 0", Action.DROP),
        Expectation("known", "n IS NOT NULL", Action.QUARANTINE),
        Expectation("positive", "n > 0", Action.QUARANTINE),
        Expectation("not_13", "n IS NULL OR n <> 13", Action.FAIL),
    ),
    identity=("id",),
    example="concat('row ', id)",
    unique=Unique("one_for_n", ("n",), ("id",)),
    raw=("payload",),
)
# id, n; then what it fails, and what decides.
ROWS: list[tuple[int, int | None, list[str], str | None]] = [
    (1, 2, [], None),
    (2, 4, [], "one_for_n"),
    (3, 4, [], None),
    (4, 3, ["even"], "even"),
    (5, -3, ["even", "positive"], "positive"),
    (6, None, ["small", "even", "known", "positive"], "known"),
    (7, 200, ["small"], None),
    (8, 13, ["even", "not_13"], "not_13"),
    (9, None, ["small", "even", "known", "positive"], "known"),
]


@pytest.mark.stack
def test_rows_are_validated_and_counted_in_one_pass(lake: Lakehouse) -> None:
    given = [(id_, n, f"p{id_}") for id_, n, _, _ in ROWS]
    frame = lake.spark.session.createDataFrame(given, "id int, n int, payload string")
    validated = lake.spark.sql(RULES.validated("SELECT * FROM {rows}"), rows=frame)
    (counted,) = lake.spark.rows(lake.spark.sql(RULES.counted("{validated}", "id"), validated=validated))
    assert_validated(lake.spark.rows(validated), counted)
    # All predicates and all counts over one reading of the source.
    plan = validated._explain_string()
    assert plan.count("LocalTableScan") + plan.count("Scan ExistingRDD") == 1, plan


def test_duckdb_validates_as_spark_does() -> None:
    rules = replace(RULES, dialect=DUCKDB)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE given (id int, n int, payload varchar)")
        con.executemany("INSERT INTO given VALUES (?, ?, ?)", [(id_, n, f"p{id_}") for id_, n, _, _ in ROWS])
        con.execute(f"CREATE TABLE validated AS {rules.validated('SELECT * FROM given')}")
        (counted,) = records(con, rules.counted("validated", "id"))
        assert_validated(records(con, "FROM validated"), counted)
        # Without expectations, too.
        none = Expectations((), ("id",), "'row'", dialect=DUCKDB)
        con.execute(f"CREATE OR REPLACE TABLE validated AS {none.validated('SELECT * FROM given')}")
        assert records(con, none.counted("validated")) == [{"rows": len(ROWS), "failed": {}, "decided": {}, "examples": {}}]


_PERSONAL = Expectations(
    rules=(Expectation("even", "n % 2 = 0"), Expectation("first", "id < 3")),
    identity=("id", "who"),
    personal=("who", "it's"),
    # All rows of one tie.
    unique=Unique("one_for_each", ("who",), ("who",)),
)
_PERSONAL_ROWS = "SELECT * FROM (VALUES (1, 1, 'Ann', 'a'), (2, 2, 'Ann', 'b'), (3, 5, NULL, 'c')) AS t (id, n, who, {})"
_SHOWN = {"even": ['{"id":1', '{"id":3,"n":5,'], "first": ['{"id":3,"n":5,'], "one_for_each": ['{"id":']}


@pytest.mark.stack
def test_examples_of_spark_have_nothing_personal(lake: Lakehouse) -> None:
    validated = lake.spark.sql(_PERSONAL.validated(_PERSONAL_ROWS.format("`it's`")))
    (counted,) = lake.spark.rows(lake.spark.sql(_PERSONAL.counted("{validated}"), validated=validated))
    assert_nothing_personal(counted)


def test_examples_of_duckdb_have_nothing_personal() -> None:
    rules = replace(_PERSONAL, dialect=DUCKDB)
    name = '"it\'s"'
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE validated AS {rules.validated(_PERSONAL_ROWS.format(name))}")
        (counted,) = records(con, rules.counted("validated"))
    assert_nothing_personal(counted)
    # Nothing is left to be shown of a row.
    alone = replace(rules, identity=("who",))
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE validated AS {alone.validated(_PERSONAL_ROWS.format(name))}")
        (counted,) = records(con, alone.counted("validated"))
    assert (counted["failed"]["one_for_each"], list(counted["examples"]["one_for_each"])) == (1, [])


def assert_nothing_personal(counted: dict[str, Any]) -> None:
    found = validation_result(counted)
    assert {name: len(shown) for name, shown in found.examples.items()} == {name: len(has) for name, has in _SHOWN.items()}
    for name, starts in _SHOWN.items():
        for start, example in zip(starts, found.examples[name], strict=True):
            assert example.startswith(start)
            assert not [text for text in ("who", "it's", "Ann") if text in example]


def test_what_is_personal_changes_no_code() -> None:
    whole = replace(_PERSONAL, personal=())
    assert _PERSONAL.code("SELECT 1") == whole.code("SELECT 1") == whole.validated("SELECT 1")
    assert _PERSONAL.validated("SELECT 1") != whole.validated("SELECT 1")


def records(con: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    cursor = con.execute(query)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def assert_validated(rows: list[dict[str, Any]], counted: dict[str, Any]) -> None:
    found = {row["id"]: row for row in rows}
    assert {id_: (row["failed"], row["decided_by"]) for id_, row in found.items()} == {row[0]: row[2:] for row in ROWS}
    assert {id_ for id_, row in found.items() if row["payload"]} == {5, 6, 9}
    assert (counted["lower"], counted["upper"]) == (1, 7)
    result = validation_result(counted)
    assert (result.rows, result.accepted) == (9, 3)
    assert result.failed == {"small": 3, "even": 5, "known": 2, "positive": 3, "not_13": 1, "one_for_n": 0}
    assert result.decided == {"small": 0, "even": 1, "known": 2, "positive": 1, "not_13": 1, "one_for_n": 1}
    assert result.sum_of(RULES, Action.QUARANTINE) == 3
    # What a page shows of them accounts for every row, but for the one that stops the run.
    flow = {"rows in": 9, "rows out": 3, "rows quarantined": 3, "rows dropped": 1, "duplicates": 1}
    assert validated_flow(RULES, result) == flow
    assert list(result.examples["known"]) == ["row 6", "row 9"]
    # A superseded row fails nothing, and is no example.
    assert list(result.examples["one_for_n"]) == []


def test_a_row_may_be_superseded_by_a_later_one_but_none_may_tie_with_it() -> None:
    rules = Expectations((), ("id",), "'row'", Unique("one_for_n", ("n",), ("t",)), dialect=DUCKDB)
    with duckdb.connect() as con:
        for rows, passed, text in (
            (
                "(1, 1, 1), (2, 1, 2), (3, 2, 5)",
                True,
                "1 of 3 rows are superseded by the latest row with the same keys; none ties with it.",
            ),
            (
                "(1, 1, 1), (2, 1, 2), (3, 1, 2)",
                False,
                (
                    "2 of 3 rows are superseded by the latest row with the same keys; "
                    "1 of them tie with it, so either may have won."
                ),
            ),
        ):
            validated = rules.validated(f"SELECT * FROM (VALUES {rows}) AS v (id, n, t)")
            (counted,) = records(con, rules.counted(f"({validated})"))
            (result,) = check_results(rules, KEY, validation_result(counted))
            assert (result.passed, result.severity, result.description) == (passed, dg.AssetCheckSeverity.WARN, text)


def test_counts_add_up_over_batches() -> None:
    first = ValidationResult(3, {"a": 1}, {"a": 1}, {"a": ["x"]})
    second = ValidationResult(2, {"a": 2, "b": 1}, {"a": 1}, {"a": ["y", "z", "w"], "b": []})
    assert total([first, second]) == ValidationResult(5, {"a": 3, "b": 1}, {"a": 2}, {"a": ["x", "y", "z"], "b": []})
    assert total([]).accepted == 0


def test_each_expectation_is_a_check() -> None:
    specs = {spec.name: spec for spec in check_specs(RULES, KEY)}
    assert list(specs) == ["small", "even", "known", "positive", "not_13", "one_for_n"]
    assert {name for name, spec in specs.items() if spec.blocking} == {"not_13"}
    shown = [
        '{"id":1,"note":"<b>|x|</b>","failed":["small"],"decided_by":null}',
        '{"id": 2, "parts": {"a": [1]}, "note": "lo',
        "# title",
    ]
    found = ValidationResult(4, {"small": 1, "not_13": 2}, {}, {"small": shown})
    results = {result.check_name: result for result in check_results(RULES, KEY, found)}
    assert set(results) == set(specs)
    assert {name for name, result in results.items() if not result.passed} == {"small", "not_13"}
    assert results["not_13"].severity is dg.AssetCheckSeverity.ERROR
    assert results["small"].severity is dg.AssetCheckSeverity.WARN
    small = results["small"].metadata
    assert (small["rows"].value, small["failed"].value, small["failed rate"].value) == (4, 1, 0.25)
    # As a table, whose cells no text can leave: the columns of rows, as far as a long one goes, and other texts whole.
    examples = small["examples"]
    assert isinstance(examples, dg.TableMetadataValue)
    assert [column.name for column in examples.schema.columns] == ["id", "note", "parts", "row"]
    assert [tuple(record.data.values()) for record in examples.records] == [
        (1, "<b>|x|</b>", None, None),
        (2, '"lo', '{"a": [1]}', None),
        (None, None, None, "# title"),
    ]


@pytest.mark.parametrize("rules", [("a", "a"), ("a b",), ("",)])
def test_names_are_plain_and_not_twice(rules: tuple[str, ...]) -> None:
    with pytest.raises(UnsafeDeclaration, match="rename it"):
        Expectations(tuple(Expectation(name, "true") for name in rules), ("id",), "''")


def test_what_is_not_unique_is_dropped() -> None:
    with pytest.raises(UnsafeDeclaration, match="use DROP"):
        Expectations((), ("id",), "''", Unique("u", ("id",), ("id",), Action.QUARANTINE))


@pytest.mark.server
def test_the_function_of_a_stream_needs_nothing_of_this_package() -> None:
    values: dict[str, Any] = {
        field.name: () if "tuple" in str(field.type) else field.name for field in fields(BatchStatements)
    }
    program = (
        "import sys, pickle\n"
        "for name in ('assets', 'resources', 'orchestration', 'embedded', 'dagster'): sys.modules[name] = None\n"
        "print(pickle.load(sys.stdin.buffer).__name__)"
    )
    given = dumps(batch_function(BatchStatements(**values | {"from_quarantine": False})))
    run = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, check=False, timeout=60)
    assert run.stdout.decode().strip() == "write", run.stderr.decode()


def test_counts_come_back_in_the_text_of_an_error() -> None:
    counted = {"rows": 3, "examples": {"a": ["}\n{", "ö"]}}
    assert (
        counted_in(f"[STREAM_FAILED] x\nRuntimeError: {EXPECTATION_FAILED} {json.dumps(counted)}\n SQLSTATE {{") == counted
    )
    assert counted_in("another error") is None
