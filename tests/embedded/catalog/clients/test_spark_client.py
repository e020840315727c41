"""Spark with Delta's Java client and our connector, as principals of their own; test_spark_server has more of its SQL.

Each principal is a Connect session on the one server, with a token of its own for the catalog: what one session has loaded
must not open it to another. A session keeps the token that it began with; a fresh one takes a new session.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from ratify_lakehouse.embedded.stack_state import StackState
from tests.embedded.catalog.harness import READ, WRITE, ClientPrincipal, client_of, delta, outlive, written

pytestmark = pytest.mark.stack

PROPERTIES = "USING DELTA TBLPROPERTIES ('delta.columnMapping.mode'='none')"
# Not equal, but first it says that it has begun, and then takes its time.
SLOW = (
    "concat(reflect('java.lang.System', 'setProperty', '{mark}', 'begun'), reflect('java.lang.Thread', 'sleep', {ms}L)) = ''"
)

Connect = Callable[[str], SparkSession]


@pytest.fixture(scope="module")
def admin(stack: StackState) -> Iterator[httpx.Client]:
    with client_of(stack.catalog.url, stack.catalog.token_file.read_text().strip()) as client:
        yield client


@pytest.fixture
def connect(stack: StackState, spark: SparkSession) -> Iterator[Connect]:
    """What opens a session as the principal of a token, on the server that `spark` has warmed up."""
    opened: list[SparkSession] = []

    def connect(token: str) -> SparkSession:
        assert stack.spark is not None
        opened.append(SparkSession.builder.remote(stack.spark.remote).create())
        opened[-1].conf.set("spark.sql.catalog.ratify.token", token)
        return opened[-1]

    yield connect
    for session in opened:
        session.stop()


def new_table(spark: SparkSession) -> str:
    """A table of the engine's principal, with one row."""
    schema = f"s_{uuid4().hex[:12]}"
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(f"CREATE TABLE {schema}.t (id BIGINT, v STRING) {PROPERTIES}")
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 'a')")
    return f"{schema}.t"


@pytest.fixture
def table(spark: SparkSession) -> str:
    return new_table(spark)


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> str:
    """For what must not change it."""
    return new_table(spark)


def rows(session: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.table(table).collect())


def loaded(admin: httpx.Client, table: str) -> dict[str, Any]:
    schema, name = table.split(".")
    return admin.get(f"{delta(schema)}/tables/{name}").raise_for_status().json()


def state(admin: httpx.Client, table: str) -> tuple[int, set[str], set[str]]:
    """The version, the data files and the proposed commits of a table."""
    answer = loaded(admin, table)
    return (answer["latest-table-version"], *written(answer["metadata"]["location"]))


def test_a_principal_creates_writes_alters_and_drops(admin: httpx.Client, connect: Connect, fresh_schema: str) -> None:
    principal, table = ClientPrincipal.create(admin, *WRITE), f"{fresh_schema}.own"
    mine = connect(principal.token())
    mine.sql(f"CREATE SCHEMA {fresh_schema}")
    mine.sql(f"CREATE TABLE {table} (id BIGINT, v STRING) {PROPERTIES}")
    mine.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    mine.sql(f"ALTER TABLE {table} ADD COLUMN w INT")
    mine.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('team'='air')")
    mine.sql(f"UPDATE {table} SET w = 3 WHERE id = 2")
    assert rows(mine, table) == [(1, "a", None), (2, "b", 3)]
    answer = loaded(admin, table)
    assert answer["latest-table-version"] == 4
    assert [field["name"] for field in answer["metadata"]["columns"]["fields"]] == ["id", "v", "w"]
    assert answer["metadata"]["properties"]["team"] == "air"
    info = admin.get(f"/tables/ratify.{table}").json()
    assert (info["owner"], [item["type_text"] for item in info["columns"]]) == (principal.name, ["bigint", "string", "int"])
    mine.sql(f"DROP TABLE {table}")
    dropped = f"{delta(fresh_schema)}/dropped-tables"
    (kept,) = admin.get(dropped).raise_for_status().json()["tables"]
    assert (kept["name"], kept["owner"]) == ("own", principal.name)
    assert written(answer["metadata"]["location"]) != (set(), set())
    admin.delete(f"{dropped}/{kept['table-id']}").raise_for_status()
    assert written(answer["metadata"]["location"]) == (set(), set())
    assert admin.get(f"/tables/ratify.{table}").json()["error_code"] == "TABLE_NOT_FOUND"
    mine.sql(f"DROP SCHEMA {fresh_schema}")
    assert admin.get(f"/schemas/ratify.{fresh_schema}").status_code == 404


def test_what_is_there_already(admin: httpx.Client, spark: SparkSession, connect: Connect, shared: str) -> None:
    other = connect(ClientPrincipal.create(admin, *WRITE).token())
    before = state(admin, shared)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        other.sql(f"CREATE TABLE {shared} (id INT) {PROPERTIES}")
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        other.sql(f"CREATE SCHEMA {shared.partition('.')[0]}")
    with pytest.raises(PySparkException, match="with tables; drop them"):
        spark.sql(f"DROP SCHEMA {shared.partition('.')[0]}")
    assert state(admin, shared) == before
    assert rows(other, shared) == [(1, "a")]


@pytest.mark.long
def test_a_merge_that_another_commit_overtook(
    admin: httpx.Client, spark: SparkSession, connect: Connect, table: str
) -> None:
    """It read the table before the other's append, which it would have had to delete: nothing of it is in the table."""
    other = connect(ClientPrincipal.create(admin, *WRITE).token())
    assert rows(other, table) == [(1, "a")]
    slow, begun = SLOW.format(mark=table, ms=8000), f"SELECT reflect('java.lang.System', 'getProperty', '{table}')"
    merge = (
        f"MERGE INTO {table} t USING (SELECT 1L AS id, CASE WHEN {slow} THEN 'x' ELSE 'z' END AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    failed: list[Exception] = []

    def overtaken() -> None:
        try:
            spark.sql(merge)
        except PySparkException as error:
            failed.append(error)

    merging = threading.Thread(target=overtaken)
    merging.start()
    while merging.is_alive() and other.sql(begun).first()[0] != "begun":
        time.sleep(0.2)
    other.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    merging.join()
    assert "DELTA_CONCURRENT_APPEND" in str(failed[0])
    assert state(admin, table)[0] == 2
    assert rows(spark, table) == [(1, "a"), (2, "b")]
    spark.sql(merge.replace(slow, "false"))
    assert (rows(spark, table), state(admin, table)[0]) == ([(1, "z")], 3)


def test_a_reader_reads_and_does_not_write(admin: httpx.Client, connect: Connect, shared: str) -> None:
    principal, full = ClientPrincipal.create(admin, *READ), rf"ratify\.{shared}"
    reader, before = connect(principal.token()), state(admin, shared)
    assert rows(reader, shared) == [(1, "a")]
    for statement in (
        f"INSERT INTO {shared} VALUES (2, 'b')",
        f"INSERT OVERWRITE {shared} VALUES (2, 'b')",
        f"UPDATE {shared} SET v = 'x'",
        f"DELETE FROM {shared}",
        f"MERGE INTO {shared} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(PySparkException, match=f"403.*{principal.name} needs MODIFY on {full}"):
            reader.sql(statement)
    with pytest.raises(PySparkException, match=f"403.*{principal.name} needs MODIFY on {full}"):
        reader.range(1).selectExpr("id", "'b' v").write.mode("append").saveAsTable(shared)
    schema = shared.partition(".")[0]
    for statement, privilege in (
        (f"DROP TABLE {shared}", "OWNER"),
        (f"CREATE TABLE {schema}.n (id INT) {PROPERTIES}", "CREATE TABLE"),
        (f"CREATE TABLE {schema}.n {PROPERTIES} AS SELECT 1 AS id", "CREATE TABLE"),
        (f"CREATE SCHEMA {schema}_n", "CREATE SCHEMA"),
        (f"ALTER SCHEMA {schema} SET DBPROPERTIES ('a'='b')", "OWNER"),
        (f"DROP SCHEMA {schema} CASCADE", "OWNER"),
    ):
        with pytest.raises(PySparkException, match=f"403.*{principal.name} needs {privilege} on "):
            reader.sql(statement)
    assert state(admin, shared) == before
    # These are refused when they commit: at once, and of their proposals no reader takes notice.
    for statement in (f"ALTER TABLE {shared} ADD COLUMN w INT", f"ALTER TABLE {shared} SET TBLPROPERTIES ('a'='b')"):
        with pytest.raises(PySparkException, match=f"403.*{principal.name} needs MODIFY on {full}"):
            reader.sql(statement)
    assert state(admin, shared)[:2] == before[:2]
    assert rows(reader, shared) == [(1, "a")]
    assert [row.tableName for row in reader.sql(f"SHOW TABLES IN {schema}").collect()] == ["t"]


@pytest.mark.parametrize(
    ("privileges", "missing"),
    [
        (("USE CATALOG", "USE SCHEMA", "EXTERNAL USE SCHEMA"), "SELECT or MODIFY"),
        (("USE CATALOG", "USE SCHEMA", "SELECT"), "EXTERNAL USE SCHEMA"),
        (("USE CATALOG", "EXTERNAL USE SCHEMA", "SELECT"), "USE SCHEMA"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_may_not_read_what_another_session_has_loaded(
    admin: httpx.Client, spark: SparkSession, connect: Connect, shared: str, privileges: tuple[str, ...], missing: str
) -> None:
    assert rows(spark, shared) == [(1, "a")]
    principal = ClientPrincipal.create(admin, *privileges)
    with pytest.raises(PySparkException, match=rf"403.*{principal.name} needs {missing} on ratify\.{shared}"):
        rows(connect(principal.token()), shared)


def test_a_token_that_expires_in_a_session_and_in_a_statement(admin: httpx.Client, connect: Connect, table: str) -> None:
    principal, seconds = ClientPrincipal.create(admin, *WRITE), 5
    fresh = connect(principal.token())
    fresh.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    before = state(admin, table)
    short = principal.token(seconds)
    session = connect(short)
    # It begins with a good token, and comes to its commit with one that has expired.
    slow = SLOW.format(mark=f"{table}.late", ms=seconds * 1000)
    with pytest.raises(PySparkException, match=r"Failed to update table .* \(HTTP 401\).*expired or revoked"):
        session.sql(f"INSERT INTO {table} SELECT 3L, CASE WHEN {slow} THEN 'x' ELSE 'c' END")
    outlive(admin, short)
    late = state(admin, table)
    assert late[0] == before[0]
    for statement in (
        f"SELECT * FROM {table}",
        f"INSERT INTO {table} VALUES (4, 'd')",
        f"ALTER TABLE {table} ADD COLUMN w INT",
        f"DROP TABLE {table}",
        f"CREATE TABLE {table}2 (id INT) {PROPERTIES}",
        f"CREATE SCHEMA {table.partition('.')[0]}_n",
    ):
        with pytest.raises(PySparkException, match=r"401.*expired or revoked") as error:
            session.sql(statement).collect()
        assert short not in str(error.value)
    assert state(admin, table) == late
    assert rows(fresh, table) == [(1, "a"), (2, "b")]
    fresh.sql(f"INSERT INTO {table} VALUES (5, 'e')")
    assert rows(fresh, table) == [(1, "a"), (2, "b"), (5, "e")]


def test_what_is_not_there(admin: httpx.Client, spark: SparkSession, connect: Connect, table: str) -> None:
    schema = table.partition(".")[0]
    for statement in (
        f"SELECT * FROM {schema}.nope",
        "SELECT * FROM nope.t",
        f"INSERT INTO {schema}.nope VALUES (1)",
        f"ALTER TABLE {schema}.nope ADD COLUMN w INT",
        f"DROP TABLE {schema}.nope",
    ):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(statement).collect()
    for statement in ("DROP SCHEMA nope", "SHOW TABLES IN nope"):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            spark.sql(statement).collect()
    with pytest.raises(PySparkException, match=r"404.*Schema not found: ratify\.nope"):
        spark.sql(f"CREATE TABLE nope.t (id INT) {PROPERTIES}")
    spark.sql(f"DROP TABLE IF EXISTS {schema}.nope")
    with pytest.raises(AnalysisException, match="DELTA_VERSION_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {table} VERSION AS OF 99").collect()
    # Dropped by another between two statements of a session.
    other = connect(ClientPrincipal.create(admin, *READ).token())
    assert rows(other, table) == [(1, "a")]
    spark.sql(f"DROP TABLE {table}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        rows(other, table)
