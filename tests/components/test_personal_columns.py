"""What is computed from personal data is known: DuckDB runs queries over personal values that differ from all others."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import duckdb
import pytest
import sqlglot

from ratify_lakehouse.components.personal_columns import (
    ColumnsOf,
    IsPersonal,
    MarkedTable,
    PersonalColumns,
    records_name,
    topic_name,
)
from ratify_lakehouse.declarations import Column
from ratify_lakehouse.sql.column_origins import origins
from ratify_lakehouse.sql.duckdb_sql import identifier
from ratify_lakehouse.sql.table_query import Dialect, TableName, TableQuery
from tests.components.declared_projects import Project, project
from tests.components.random_inputs import COLUMNS
from tests.components.random_queries import QueryGrammar

__all__ = ["project"]

CASES = 30
CANARY = "§"
# A personal number is greater than all that a query makes of others, and a personal time is later.
CLEAN: Mapping[str, Sequence[str]] = {
    "int": ("1", "2", "3"),
    "str": ("'ab'", "'it''s'", "''"),
    "dec": ("1.25", "2.50", "0.75"),
    "day": ("DATE '2026-01-01'", "DATE '2026-01-02'", "DATE '2026-02-01'"),
    "at": ("TIMESTAMP '2026-03-29 01:00:00'", "TIMESTAMP '2026-03-29 02:30:00'", "TIMESTAMP '2026-03-29 03:00:00'"),
    "float": ("0.5", "1.5", "2.5"),
    "array": ("['a', 'b']", "['c']", "['d']"),
    "struct": ("{'x': 1, 'y': 'a'}", "{'x': 2, 'y': 'b'}", "{'x': 3, 'y': 'c'}"),
}
PERSONAL: Mapping[str, Sequence[str]] = {
    "int": ("70000001", "70000002", "70000003"),
    "str": ("'§§§§§'", "'§§§§§§'", "'§§§§§§§'"),
    "dec": ("7000001.25", "7000002.50", "7000003.75"),
    "day": ("DATE '2970-01-01'", "DATE '2970-01-02'", "DATE '2970-02-01'"),
    "at": ("TIMESTAMP '2970-03-29 01:00:00'", "TIMESTAMP '2970-03-29 02:30:00'", "TIMESTAMP '2970-03-29 03:00:00'"),
    "float": ("70000000.5", "70000001.5", "70000002.5"),
    "array": ("['§§§§§']", "['§§§§§§']", "['§§§§§§§']"),
    "struct": ("{'x': 70000001, 'y': '§§§§§'}", "{'x': 70000002, 'y': '§§§§§'}", "{'x': 70000003, 'y': '§§§§§'}"),
}
TYPES = {"int": "INT", "str": "VARCHAR", "dec": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP", "float": "DOUBLE"}
TYPES |= {"array": "VARCHAR[]", "struct": "STRUCT(x INT, y VARCHAR)"}

Personal = Mapping[str, Collection[str]]


def filled(personal: Personal) -> duckdb.DuckDBPyConnection:
    """A database with the inputs, in which the personal columns of each have personal values."""
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE SCHEMA bronze; CREATE MACRO try_validate_utf8(t) AS t; SET TimeZone = 'UTC'")
    for table, columns in COLUMNS.items():
        declared = ", ".join(f"{identifier(name)} {TYPES[kind]}" for name, kind in columns.items())
        given = [(PERSONAL if name in personal.get(table, ()) else CLEAN)[kind] for name, kind in columns.items()]
        rows = ", ".join(f"({', '.join(values[row] for values in given)})" for row in range(3))
        con.execute(f"CREATE TABLE bronze.{table} ({declared}); INSERT INTO bronze.{table} VALUES {rows}")
    return con


def is_canary(value: Any) -> bool:
    """Whether a value has something of a personal one."""
    if isinstance(value, Mapping):
        return any(map(is_canary, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_canary, value))
    text = str(value)
    try:
        return abs(float(text)) >= 1_000_000
    except ValueError:
        return CANARY in text or "297" in text or "7000000" in text


def marked(personal: Personal, *more: MarkedTable) -> PersonalColumns:
    return PersonalColumns(
        lambda: [*(MarkedTable(f"bronze.{name}", personal=names) for name, names in personal.items()), *more]
    )


def columns_of(name: TableName) -> Sequence[str]:
    return list(COLUMNS.get(name.table.lower(), ()))


def query(text: str, dialect: Dialect = "databricks") -> TableQuery:
    return TableQuery.parsed(text, dialect, "query.sql")


def in_duckdb(text: str) -> str:
    return sqlglot.transpile(text, "databricks", "duckdb", identify=True)[0]


def leaks(con: duckdb.DuckDBPyConnection, text: str, is_personal: IsPersonal) -> tuple[list[str], list[str]]:
    """The columns with personal values that are shown, and all that are shown, of a query in DuckDB's SQL."""
    found = con.execute(text)
    names = [column[0] for column in found.description or ()]
    rows = found.fetchall()
    shown = [(number, name) for number, name in enumerate(names) if not is_personal(name)]
    return [name for number, name in shown if any(is_canary(row[number]) for row in rows)], [name for _, name in shown]


def test_no_random_query_shows_a_personal_value() -> None:
    ran = shown = hidden = 0
    for seed in range(CASES):
        chance = random.Random(seed)  # noqa: S311
        personal = {name: chance.sample(list(columns), chance.choice((0, 1, 2))) for name, columns in COLUMNS.items()}
        made = QueryGrammar(f"personal-{seed}").query(2)
        known = marked(personal)
        of_first = known.of_query(query(made.text), columns_of)
        with filled(personal) as con:
            try:
                con.execute(f"CREATE TABLE bronze.first AS {in_duckdb(made.text)}")
            except duckdb.Error:
                continue  # DuckDB has another function of that name, or none.
            ran += 1
            leaked, free = leaks(con, "FROM bronze.first", of_first)
            assert leaked == [], (seed, personal, made.text)
            shown, hidden = shown + len(free), hidden + len(made.columns) - len(free)
            # A table of that query, of which others are made.
            further = marked(personal, MarkedTable("bronze.first", query=query(made.text)))
            text = f"SELECT q.*, concat('-', {made.keys[0]}) AS named FROM (SELECT * FROM bronze.first AS f) AS q"
            of_second = further.of_query(query(text), with_columns({"bronze.first": list(made.columns)}))
            leaked, again = leaks(con, text, of_second)
            assert leaked == [], (seed, personal, made.text)
            assert [name for name in again if name != "named"] == free
        nothing = marked({}).of_query(query(made.text), columns_of)
        assert not any(map(nothing, made.columns))
    assert ran > CASES / 2
    assert shown > hidden > CASES / 2


WHOLE_ROWS = [
    "SELECT t AS w, t.id FROM bronze.a AS t",
    "SELECT to_json(t) AS w, id FROM bronze.a AS t",
    "SELECT list(q) AS l FROM (SELECT id, s FROM bronze.a) AS q",
    "SELECT arg_max(t, id) AS l FROM bronze.a AS t",
    "SELECT struct_pack(s) AS w, id FROM bronze.a",
    "SELECT COLUMNS('s.*') FROM bronze.a",
    "SELECT x.s FROM (SELECT COLUMNS(*) FROM bronze.a) AS x",
    "SELECT max(COLUMNS(*)) FROM bronze.a",
    "SELECT * REPLACE (s AS id) FROM bronze.a",
    "SELECT * EXCLUDE (s) FROM bronze.a",
    "SELECT id, label FROM (SELECT k AS id, s AS label FROM bronze.b) UNION BY NAME SELECT 'x' AS label, 1 AS id",
    "SELECT 1 AS id, 'x' AS label UNION BY NAME SELECT s AS label, k AS id FROM bronze.b",
    "SELECT id, l.x FROM bronze.a AS a LEFT JOIN LATERAL (SELECT b.s AS x FROM bronze.b AS b WHERE b.k = a.k) AS l ON true",
    "SELECT id, l.x FROM bronze.e AS e, LATERAL (SELECT b.s AS x FROM bronze.b AS b) AS l",
    "WITH RECURSIVE r AS (SELECT 'x' AS u, s FROM bronze.b UNION SELECT s, s FROM r) SELECT u, s FROM r",
    "SELECT s.upper() AS u, k FROM bronze.b",
    "SELECT q.w, q.k FROM bronze.b AS q(k, v, w)",
    "SELECT q.k, q.s FROM bronze.b AS q(s, w, k)",
    "SELECT q.a, q.b FROM (SELECT k, s FROM bronze.b) AS q(b, a)",
    "WITH c(s, k) AS (SELECT k, s FROM bronze.b) SELECT k, s FROM c",
    "SELECT #1 AS one FROM (SELECT s FROM bronze.b)",
    "SELECT u.x FROM (SELECT list(s) AS l FROM bronze.b) AS q, unnest(q.l) AS u(x)",
    "SELECT unnest(st), id FROM (SELECT {'u': s, 'v': k} AS st, k AS id FROM bronze.b)",
    "SELECT list_transform([1], lambda x: s || x) AS l, list_transform([s], lambda x: x) AS m, k FROM bronze.b",
    "SELECT (SELECT max(b.s) FROM bronze.b AS b) AS m, EXISTS (SELECT 1 FROM bronze.b) AS e, id FROM bronze.e",
    "SELECT k, s FROM bronze.b WHERE false UNION ALL SELECT k, s FROM bronze.b",
    "FROM (PIVOT bronze.b ON k USING max(s)) AS p SELECT *",
    "SELECT name, value FROM (UNPIVOT (SELECT s FROM bronze.b) ON s INTO NAME name VALUE value)",
    "SELECT s AS k, k AS n, s || 'x' AS n2 FROM bronze.b",
    "SELECT k, s AS other, other || 'x' AS o2 FROM bronze.b",
    "SELECT * FROM bronze.d NATURAL JOIN (SELECT k, s AS label2 FROM bronze.b)",
    "SELECT * FROM bronze.d JOIN bronze.b USING (k)",
    "SELECT k, first(s) OVER (PARTITION BY k) AS f, string_agg(s, ',') OVER () AS a FROM bronze.b",
    "SELECT st.y, st.x FROM bronze.a AS st",
    "SELECT b.k, s[1:3] AS part, printf('%s', s) AS p FROM bronze.b AS b",
    "SELECT CASE WHEN k > 1 THEN s END AS c, coalesce(NULL, s) AS d, k FROM bronze.b",
]
"""Queries of DuckDB in which sqlglot's lineage alone lacks columns, or mistakes them."""


@pytest.mark.parametrize("text", WHOLE_ROWS)
def test_no_query_shows_a_personal_value(text: str) -> None:
    personal = {"a": ["s", "st"], "b": ["s"]}
    try:
        made = query(text, "duckdb")
    except Exception as error:  # noqa: BLE001
        pytest.fail(f"not a query: {error}")
    with filled(personal) as con:
        leaked, _ = leaks(con, text, marked(personal).of_query(made, columns_of))
    assert leaked == []


SPARK = [
    ("SELECT to_json(struct(*)) AS j, k FROM bronze.b", {"k"}),
    ("SELECT to_json(struct(b.*)) AS j FROM bronze.b AS b", set()),
    ("SELECT to_json(b) AS j, b.k FROM bronze.b AS b", {"k"}),
    ("SELECT b AS row, k FROM bronze.b AS b", {"k"}),
    ("SELECT concat_ws(',', *) AS w, count(*) AS n FROM bronze.b", {"n"}),
    ("SELECT stack(2, 'a', s, 'b', 'c') AS (k, v) FROM bronze.b", set()),
    ("SELECT k, x FROM bronze.b LATERAL VIEW explode(array(s)) t AS x", {"k"}),
    ("SELECT k, x FROM bronze.b LATERAL VIEW explode(array(w)) t AS x", {"k", "x"}),
    ("SELECT k, v, w FROM bronze.b LATERAL VIEW inline(array(struct(s AS v, 1 AS u))) t AS v, u", {"k", "w"}),
    ("SELECT posexplode(array(s)) AS (p, x) FROM bronze.b", set()),
    ("SELECT k, aggregate(array(1), '', (acc, x) -> concat(acc, s)) AS a FROM bronze.b", {"k"}),
    ("SELECT * EXCEPT (s) FROM bronze.b", {"k", "w"}),
    ("SELECT * FROM bronze.b PIVOT (max(s) FOR k IN (1 AS one))", set()),
    ("SELECT _metadata.file_path AS f, k FROM bronze.b", {"k"}),
    ("SELECT K AS Kay, S FROM Bronze.B", {"Kay"}),
    ("SELECT count(DISTINCT s) AS n, count(*) AS m FROM bronze.b", {"m"}),
    ("SELECT k, w FROM bronze.b WHERE s = 'x'", {"k", "w"}),
    # Spark reads a field of the struct here where it finds one, else the column of the table.
    ("SELECT s.k AS c, s.w FROM bronze.b AS s", set()),
    ("SELECT k FROM ratify.bronze.b", {"k"}),
]


@pytest.mark.parametrize(("text", "shown"), SPARK)
def test_what_is_known_of_queries_in_the_sql_of_spark(text: str, shown: set[str]) -> None:
    made = query(text)
    is_personal = marked({"b": ["s"]}).of_query(made, columns_of)
    names = {"k", "v", "w", "x", "p", "one", "s", "j", "row", *made.columns} - {"*"} if "*" in made.columns else made.columns
    assert {name for name in names if not is_personal(name)} == shown


def test_a_column_of_which_nothing_is_known_is_none_of_its_origins() -> None:
    known = {"bronze.b": ["k", "s"]}
    assert origins(query("SELECT k, s || 'x' AS t, u FROM bronze.b"), known) == {
        "k": frozenset({"bronze.b.k"}),
        "t": frozenset({"bronze.b.s"}),
    }


def with_columns(columns: Mapping[str, Sequence[str]]) -> ColumnsOf:
    return lambda name: columns.get(str(name), columns_of(name))


def of(tables: Sequence[MarkedTable], name: str, columns: Mapping[str, Sequence[str]] | None = None) -> IsPersonal:
    return PersonalColumns(lambda: tables).of_table(name, with_columns(columns or {}))


BRONZE = MarkedTable("bronze.b", personal=["s"])
SILVER = MarkedTable("silver.b", query=query("SELECT k, s AS who, w FROM bronze.b"))
IN_SILVER = {"silver.b": ["k", "who", "w"]}


def test_a_column_that_is_declared_to_have_none_ends_the_way() -> None:
    gold = MarkedTable("gold.b", query=query("SELECT who AS x, w FROM silver.b"))
    assert of([BRONZE, SILVER, gold], "gold.b", IN_SILVER)("X")
    assert not of([BRONZE, SILVER, gold], "gold.b", IN_SILVER)("w")
    free = MarkedTable("silver.b", [Column("who", "", pii=False)], query=SILVER.query)
    assert not of([BRONZE, free, gold], "silver.b", IN_SILVER)("who")
    assert not of([BRONZE, free, gold], "gold.b", IN_SILVER)("x")
    # Whose a row is, is shown nowhere.
    subject = MarkedTable("bronze.b", [Column("s", "", pii=False, subject="user")], ["s"])
    assert of([subject], "bronze.b")("s")


def test_a_table_that_is_not_there_may_have_any_column() -> None:
    gold = MarkedTable("gold.b", query=query("SELECT w FROM silver.b"))
    assert of([BRONZE, SILVER, gold], "gold.b", {"silver.b": []})("w")
    assert not of([MarkedTable("bronze.b"), SILVER, gold], "gold.b", {"silver.b": []})("w")


def test_nothing_is_looked_up_where_nothing_is_personal() -> None:
    def refuse(_: TableName) -> Sequence[str]:
        raise AssertionError("the catalog is asked")

    tables = [MarkedTable("bronze.b"), SILVER, MarkedTable("bronze.a", personal=["s"])]
    is_personal = PersonalColumns(lambda: tables).of_query(query("SELECT to_json(struct(*)) AS j FROM silver.b"), refuse)
    assert not is_personal("j")


def test_tables_that_are_computed_from_each_other_end() -> None:
    one = MarkedTable("silver.one", query=query("SELECT k, s FROM bronze.b UNION ALL SELECT k, s FROM silver.two"))
    two = MarkedTable("silver.two", query=query("SELECT k, s FROM silver.one"))
    assert of([BRONZE, one, two], "silver.one", {"silver.one": ["k", "s"], "silver.two": ["k", "s"]})("s")


def test_a_sync_passes_on_by_the_names_of_its_source() -> None:
    crm = MarkedTable("crm.people", [Column("name", ""), Column("w", "", pii=False)], (), SILVER.query, {"name": "who"})
    assert [of([BRONZE, SILVER, crm], "crm.people")(name) for name in ("name", "k", "w")] == [True, False, False]
    # Another table of that name, in another catalog.
    assert not of([BRONZE, SILVER, crm], "other.crm.people")("name")


def test_a_quarantine_has_whole_rows() -> None:
    rows = MarkedTable("silver.b_quarantine", [Column("rule", "", pii=False)], (), SILVER.query, unknown=("row",))
    assert [of([BRONZE, rows], "silver.b_quarantine")(name) for name in ("row", "rule", "who", "k")] == [
        True,
        False,
        True,
        False,
    ]
    assert not of([MarkedTable("bronze.b"), rows], "silver.b_quarantine")("row")


def test_a_topic_passes_on_what_is_published_to_it() -> None:
    feed = MarkedTable(topic_name("t"), reads=["silver.b"])
    records = MarkedTable("bronze.records", reads=[topic_name("t")], unknown=("key", "value"))
    tables = [BRONZE, SILVER, feed, records, MarkedTable(records_name("u"), personal=["key"])]
    assert [of(tables, "bronze.records")(name) for name in ("value", "offset")] == [True, False]
    flink = MarkedTable("gold.f", [Column("n", "", pii=False)], (), reads=[records_name("u")], unknown=("n", "m"))
    assert [of([*tables, flink], "gold.f")(name) for name in ("n", "m")] == [False, True]


def test_what_is_declared_of_the_tables_of_a_project(project: Project) -> None:
    place = "type: ratify_lakehouse.KafkaEvents\nattributes: {{description: d, topics: [t], subjects: {{user: [{}]}}}}\n"
    project.write("bronze", "records", place.format("value.who"))
    event = "topic, partition, offset, `timestamp` AS kafka_timestamp, key, value, headers"
    stream = "type: ratify_lakehouse.StreamTable\nattributes: {description: d, keys: [who], columns: "
    columns = "[{name: who, type: string}, {name: page, type: string, pii: false}, {name: sent, type: timestamp}]"
    of_value = ", ".join(f"get_json_object(CAST(value AS STRING), '$.{name}') AS {name}" for name in ("who", "page"))
    sql = f"SELECT {event}, {of_value}, `timestamp` AS sent FROM bronze.records"
    project.write("silver", "clicks", f"{stream}{columns}}}\n", sql)
    flink = (
        "type: ratify_lakehouse.FlinkSql\nattributes: {description: d, topics: [{topic: t, name: e}], keys: [n], columns: "
    )
    project.write(
        "gold", "fast", f"{flink}[{{name: n, type: bigint, pii: false}}, {{name: who, type: string}}]}}\n", "SELECT 1"
    )
    files = "type: ratify_lakehouse.LandedFiles\nattributes: {description: d, pattern: '*.csv', rescue: true, columns: "
    project.write("bronze", "people", f"{files}[{{name: id}}, {{name: who, pii: true}}]}}\n")
    tables = project.tables
    written = {table.name: table for component in tables.components.values() for table in component.written}
    assert {name: table.personal for name, table in written.items()} == {
        "records": ("value",),
        "clicks": ("who",),
        "clicks_quarantine": ("key", "value", "headers", "corrected"),
        "fast": ("who",),
        "people": ("who", "_rescued_data"),
    }
    (found,) = tables.streams
    assert found.expectations.personal == ("who",)
    assert found.expectations.example.startswith("to_json(struct(`page`")
    # A key that is whose the record is says nothing of its value.
    project.write("bronze", "records", place.format("key"))
    assert project.tables.streams[0].table.personal == ()
    assert project.tables.streams[0].quarantine.columns[1].pii
