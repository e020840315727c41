"""What a query computes of more than the rows of its inputs, and aggregates that sqlglot does not know."""

import pytest

from resources.sql.affected_keys import keys_queries
from resources.sql.query_parts import NotDerivable, nondeterministic
from resources.sql.table_query import TableQuery


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


def test_rows_that_are_any() -> None:
    assert nondeterministic(parsed("SELECT k FROM bronze.a LIMIT 3")) == ["LIMIT without ORDER BY"]
    assert nondeterministic(parsed("SELECT k FROM bronze.a TABLESAMPLE (10 PERCENT)")) == ["TABLESAMPLE"]
    assert nondeterministic(parsed("SELECT k FROM bronze.a ORDER BY k LIMIT 3")) == []


@pytest.mark.parametrize("aggregate", ["mean(v)", "std(v)", "try_sum(v)", "max(v)"])
def test_a_condition_on_an_aggregate_is_not_known_of_changed_rows(aggregate: str) -> None:
    """It would be computed of the changed rows alone, and keys would be missing."""
    query = parsed(f"SELECT a.id FROM bronze.a AS a JOIN (SELECT {aggregate} AS m FROM bronze.a) AS t ON a.v > t.m")
    with pytest.raises(NotDerivable):
        keys_queries(query, ["id"], {name: ["id", "v"] for name in query.inputs})
