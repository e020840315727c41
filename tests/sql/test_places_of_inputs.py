"""Each place where a query names a table is one from which changes are followed, or the query is refused."""

import duckdb
import pytest

from ratify_lakehouse.sql.affected_keys import KeysQuery, keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable
from ratify_lakehouse.sql.table_query import Dialect, TableQuery

COLUMNS = {"a": ("id", "k", "v"), "b": ("k", "w", "d")}


def queries(text: str, dialect: Dialect = "databricks") -> list[KeysQuery]:
    query = TableQuery.parsed(text, dialect, "a query")
    return keys_queries(query, ["key"], {name: COLUMNS[name.table] for name in query.inputs})


@pytest.mark.parametrize(
    "clause",
    [
        *(
            "(bronze.a)",
            "bronze.a LEFT JOIN (bronze.b) ON a.k = b.k",
            "(bronze.a JOIN bronze.b ON a.k = b.k)",
        ),
        *(
            "(bronze.a), (bronze.b)",
            "bronze.a CROSS JOIN (bronze.b AS b)",
        ),
        *(
            "bronze.a LEFT JOIN (z) ON a.k = z.k",
            "((SELECT id, k FROM bronze.a) AS a JOIN bronze.b ON a.k = b.k)",
        ),
    ],
)
def test_a_table_in_brackets_is_refused(clause: str) -> None:
    """It would be no place: the table would never be updated after changes of it."""
    with pytest.raises(NotDerivable, match=r"in brackets|in an unknown way"):
        queries(f"{'WITH z AS (SELECT k FROM bronze.b) ' if '(z)' in clause else ''}SELECT a.id AS key FROM {clause}")


@pytest.mark.parametrize(
    ("clause", "places"),
    [
        ("(bronze.a) AS a", ["bronze.a"]),
        ("((bronze.a)) AS a", ["bronze.a"]),
        ("bronze.a LEFT JOIN (bronze.b) AS x ON a.k = x.k", ["bronze.a", "bronze.b"]),
    ],
)
def test_a_table_in_brackets_that_has_a_name_there_is_followed(clause: str, places: list[str]) -> None:
    assert [str(each.input) for each in queries(f"SELECT a.id AS key FROM {clause}")] == places


def test_a_query_in_more_brackets_is_followed() -> None:
    found = queries("SELECT t.id AS key FROM ((SELECT id FROM bronze.a)) AS t")
    assert [str(each.input) for each in found] == ["bronze.a"]


def test_an_input_without_a_place_is_refused() -> None:
    """One may be named where nobody looks for places."""
    query = TableQuery.parsed(
        "WITH unused AS (SELECT k FROM bronze.b) SELECT id AS key FROM bronze.a", "databricks", "a query"
    )
    with pytest.raises(NotDerivable, match=r"bronze\.b"):
        keys_queries(query, ["key"], {name: COLUMNS[name.table] for name in query.inputs})


@pytest.mark.parametrize("clause", ["bronze.b AS t(w, k, d)", "z AS t(w, k)"])
def test_other_names_for_the_columns_of_a_table_are_refused(clause: str) -> None:
    """What was read by such a name would be another column."""
    with pytest.raises(NotDerivable):
        queries(f"{'WITH z AS (SELECT k, w FROM bronze.b) ' if clause[0] == 'z' else ''}SELECT t.w AS key FROM {clause}")


@pytest.mark.parametrize(
    "clause", ["(SELECT id, k FROM bronze.a) AS s(x, y)", "(SELECT x, k FROM (SELECT id, k FROM bronze.a) AS r(x, k)) AS s"]
)
def test_other_names_for_the_columns_of_a_query_are_followed(clause: str) -> None:
    [found] = queries(f"SELECT s.x AS key FROM {clause}")
    assert "`id` AS `x`" in found.text


@pytest.mark.parametrize(
    ("types", "value", "key"),
    [
        (("INT", "DOUBLE"), "1", "CAST(key AS TEXT)"),
        (("DATE", "TIMESTAMP"), "'2024-01-01'", "md5(CAST(key AS TEXT))"),
        (("DECIMAL(10, 2)", "DECIMAL(12, 4)"), "1.10", "CAST(key AS TEXT)"),
    ],
)
@pytest.mark.parametrize(
    "union",
    [
        "SELECT id AS key, v FROM bronze.a UNION ALL SELECT d, w FROM bronze.b",
        "SELECT d AS key, w AS v FROM bronze.b UNION ALL (SELECT id, v FROM bronze.a EXCEPT SELECT 2, 2 FROM bronze.b)",
        "SELECT id AS key, v FROM bronze.a UNION SELECT NULL, NULL UNION ALL SELECT d, w FROM bronze.b",
    ],
)
def test_a_changed_row_of_one_branch_has_the_types_of_the_whole(
    union: str, types: tuple[str, str], value: str, key: str
) -> None:
    """Its key as a text, or a hash of it, would be another one."""
    con = duckdb.connect()
    con.execute(f"CREATE SCHEMA bronze; CREATE TABLE bronze.a (id {types[0]}, k INT, v INT)")
    con.execute(f"CREATE TABLE bronze.b (k INT, w INT, d {types[1]}); INSERT INTO bronze.a VALUES ({value}, 1, 1)")
    query = TableQuery.parsed(f"SELECT {key} AS key, v FROM ({union}) AS u", "duckdb", "a query")
    for number, name in enumerate(query.inputs):
        con.execute(f"CREATE VIEW ratify_changed_{number} AS FROM {name}; CREATE VIEW ratify_every_{number} AS FROM {name}")
    affected = {row[0] for each in queries(query.text, "duckdb") for row in con.execute(each.text).fetchall()}
    assert {row[0] for row in con.execute(query.text).fetchall()} - {None} <= affected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT session_window(k, '5 minutes').start AS key, count(*) AS n FROM bronze.a GROUP BY 1",
        "SELECT id AS key, count(*) AS n FROM bronze.a GROUP BY id, session_window(k, '5 minutes')",
        "SELECT key, n FROM (SELECT id AS key, session_window(k, '5 m') AS s, count(*) AS n FROM bronze.a GROUP BY id, 2)",
    ],
)
def test_a_window_of_a_session_is_of_several_rows(text: str) -> None:
    with pytest.raises(NotDerivable, match="session_window"):
        queries(text)


def test_a_window_of_a_time_is_of_one_row() -> None:
    [found] = queries("SELECT window(v, '5 minutes').start AS key, count(*) AS n FROM bronze.a GROUP BY 1")
    assert "WINDOW(`a`.`v`, '5 minutes').`start`" in found.text
