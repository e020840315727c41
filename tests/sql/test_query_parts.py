"""What a query computes of more than the rows of its inputs, and aggregates that sqlglot does not know."""

import pytest

from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.affected_keys import keys_queries
from ratify_lakehouse.sql.query_parts import (
    NotDerivable,
    nondeterministic,
    nondeterministic_predicate,
    of_other_rows,
    reads_all_columns,
)
from ratify_lakehouse.sql.table_query import TableQuery


def parsed(text: str) -> TableQuery:
    return TableQuery.parsed(text, "databricks", "a query")


@pytest.mark.parametrize(
    "selected",
    [
        *("now()", "rand()", "uuid()", "unix_timestamp()", "monotonically_increasing_id()", "user()"),
        *("first(v)", "any_value(v)", "collect_list(v)", "collect_set(v)", "listagg(s, ',')", "mode(v)"),
        *("approx_percentile(v, 0.5)", "last_value(v) OVER (PARTITION BY k)"),
    ],
)
def test_it_depends_on_more_than_the_rows(selected: str) -> None:
    assert len(nondeterministic(parsed(f"SELECT k, {selected} AS x FROM bronze.a GROUP BY k"))) == 1


@pytest.mark.parametrize(
    "selected",
    [
        *("unix_timestamp(s)", "sort_array(collect_list(v))", "array_sort(collect_set(v) FILTER (WHERE v > 1))"),
        *("size(collect_set(v))", "listagg(s, ',') WITHIN GROUP (ORDER BY s)", "mode(v, true)", "percentile(v, 0.5)"),
        "last_value(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY v)",
    ],
)
def test_it_depends_on_the_rows_alone(selected: str) -> None:
    assert nondeterministic(parsed(f"SELECT k, {selected} AS x FROM bronze.a GROUP BY k")) == []


@pytest.mark.parametrize(
    ("selected", "every"),
    [("k, count(*), v * 2", False), ("*", True), ("a.*", True), ("md5(concat_ws('|', *)) AS h", True)],
)
def test_whether_it_reads_columns_that_it_does_not_name(selected: str, every: bool) -> None:
    assert reads_all_columns(parsed(f"SELECT {selected} FROM bronze.a AS a")) is every


def test_rows_that_are_any() -> None:
    assert nondeterministic(parsed("SELECT k FROM bronze.a LIMIT 3")) == ["LIMIT without ORDER BY"]
    assert nondeterministic(parsed("SELECT k FROM bronze.a TABLESAMPLE (10 PERCENT)")) == ["TABLESAMPLE"]
    assert nondeterministic(parsed("SELECT k FROM bronze.a ORDER BY k LIMIT 3")) == []


@pytest.mark.parametrize(
    "part",
    [
        *(
            "DATE 'today'",
            "CAST('now' AS TIMESTAMP)",
            "timestamp'Yesterday UTC'",
            "' tomorrow '::date",
            "TRY_CAST('now' AS DATE)",
        ),
        *("to_date('now')", "to_timestamp('now')", "date('today')", "datediff('today', ts)", "date_add('tomorrow', 1)"),
        *(
            "ts > 'today'",
            "ts BETWEEN ('yesterday') AND s",
            "localtimestamp",
            "input_file_block_start()",
            "try_reflect('a', 'b')",
        ),
        *("input_file_block_length()", "current_user", "system.builtin.rand()", "system.builtin.now()"),
    ],
)
def test_it_depends_on_the_time_or_the_run(part: str) -> None:
    assert len(nondeterministic(parsed(f"SELECT k, {part} AS x FROM bronze.a"))) == 1
    assert len(nondeterministic_predicate(f"coalesce({part}, v) IS NULL", "databricks")) == 1


@pytest.mark.parametrize(
    "part",
    [
        *(
            "period = 'today'",
            "period IN ('today', 'tomorrow')",
            "DATE '2024-01-01'",
            "CASE WHEN v > 1 THEN 'now' END",
            "user",
        ),
        *("concat('today', v)", "CAST('now' AS STRING)", "ts > 'now or never so'", "t.localtimestamp", "DATE 'epoch'"),
    ],
)
def test_a_word_for_the_time_may_be_a_text(part: str) -> None:
    assert nondeterministic(parsed(f"SELECT k, {part} AS x FROM bronze.a AS t")) == []


@pytest.mark.parametrize("word", ["user", "current_time", "session_user"])
def test_a_word_that_is_no_column_is_not_followed(word: str) -> None:
    """It is the user who runs the query, or the time."""
    query = parsed(f"SELECT k AS id FROM bronze.a WHERE v = {word}")
    if not nondeterministic(query):
        with pytest.raises(NotDerivable, match=word):
            keys_queries(query, ["id"], {name: ["k", "v"] for name in query.inputs})


@pytest.mark.parametrize(
    ("table", "named"),
    [
        *(("VERSION AS OF 3", " VERSION AS OF 3"), ("FOR VERSION AS OF 3 AS x", " VERSION AS OF 3"), ("@v3", "@v3")),
        ("TIMESTAMP AS OF '2024-01-01'", " TIMESTAMP AS OF '2024-01-01'"),
    ],
)
def test_a_version_of_an_input_is_refused(table: str, named: str) -> None:
    query = parsed(f"SELECT k\nFROM bronze.a{'' if table[0] == '@' else ' '}{table}")
    with pytest.raises(UnsafeDeclaration, match=f"reads bronze.a{named}, in line 2 of it: .*use the strategy full"):
        nondeterministic(query)


@pytest.mark.parametrize("aggregate", ["mean(v)", "std(v)", "try_sum(v)", "max(v)"])
def test_a_condition_on_an_aggregate_is_not_known_of_changed_rows(aggregate: str) -> None:
    """It would be computed of the changed rows alone, and keys would be missing."""
    query = parsed(f"SELECT a.id FROM bronze.a AS a JOIN (SELECT {aggregate} AS m FROM bronze.a) AS t ON a.v > t.m")
    with pytest.raises(NotDerivable):
        keys_queries(query, ["id"], {name: ["id", "v"] for name in query.inputs})


@pytest.mark.parametrize(
    ("predicate", "windows", "without_windows"),
    [
        ("v > 1 AND size(filter(list, x -> x > 1)) = 0", 0, 0),
        ("count(*) OVER (PARTITION BY k) = 1", 1, 0),
        ("k IN (SELECT k FROM bronze.b)", 1, 1),
        ("EXISTS (SELECT 1 FROM bronze.b AS b WHERE b.k = k)", 1, 1),
    ],
)
def test_what_of_a_predicate_looks_at_other_rows(predicate: str, windows: int, without_windows: int) -> None:
    found = [bool(of_other_rows(predicate, "databricks", windows=each)) for each in (True, False)]
    assert found == [bool(windows), bool(without_windows)]
