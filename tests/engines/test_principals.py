"""What the engines' resources do for a principal that may not write, with a token that expires, and with one that is renewed
in the middle of a job. The catalog's own tests hold which privilege each request needs; these, that each engine says so."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.engines.spark.spark_session import credentials_conf
from ratify_lakehouse.engines.spark.spark_sessions import SparkSessions
from ratify_lakehouse.errors import CatalogDenied
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.clients.test_spark_client import SLOW
from tests.embedded.catalog.harness import READ, WRITE, ClientPrincipal, client_of, outlive, written
from tests.engines.declared_tables import create_declared
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

As = Callable[[str], tuple[Spark, DuckDB]]


@pytest.fixture(scope="module")
def admin(engines: Lakehouse) -> Iterator[httpx.Client]:
    with client_of(engines.stack.catalog.url, engines.stack.catalog.token_file.read_text().strip()) as client:
        yield client


@pytest.fixture
def as_(lake: Lakehouse) -> Iterator[As]:
    """The engines of whom a token lets in. Spark is a session of its own on the one server."""
    opened: list[tuple[Spark, DuckDB]] = []

    def as_(token: str) -> tuple[Spark, DuckDB]:
        catalog = UnityCatalog(host=lake.stack.catalog.url, token=token)
        opened.append((spark_of(lake, catalog, {"token": token}), DuckDB(catalog=catalog)))
        return opened[-1]

    yield as_
    for spark, duckdb in opened:
        duckdb.close()
        spark.close()


def spark_of(lake: Lakehouse, catalog: UnityCatalog, options: dict[str, str]) -> Spark:
    assert lake.stack.spark is not None
    spark = Spark(catalog=catalog, remote=lake.stack.spark.remote)
    # Spark's own builder gives every resource of this process the same session.
    sessions = SparkSessions(lake.stack.spark.remote, catalog, {}, 30)
    sessions._shared = SparkSession.builder.remote(lake.stack.spark.remote).create()
    spark._opened = sessions
    for key, value in options.items():
        spark.session.conf.set(f"spark.sql.catalog.ratify.{key}", value)
    return spark


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    """With one row."""
    table = lake.create(pairs(Engine.SPARK, keys=("id",)))
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "first")
    return table


def refused(*words: str) -> AbstractContextManager[pytest.ExceptionInfo[CatalogDenied]]:
    return pytest.raises(CatalogDenied, match=".*".join(("(?s)", *words)))


def test_who_may_not_modify_writes_with_no_engine_and_reads_with_every(
    lake: Lakehouse, admin: httpx.Client, as_: As, table: TableDeclaration, tmp_path: Path
) -> None:
    spark, duckdb = as_(ClientPrincipal.create(admin, *READ).token())
    full, short = lake.full(table), f"{table.layer}.{table.name}"
    location = lake.catalog.table(full).storage_location or ""
    before = lake.version(table), written(location)[0]
    needs = f"needs MODIFY on {full}"

    with refused(needs), duckdb.session() as session:
        session.append(table, "SELECT 2::BIGINT, 'b'", ["two"])
    with refused(needs), duckdb.session() as session:
        session.add_columns(table, [Column("w", "int")])
    with refused(needs), duckdb.session() as session:
        session.rows(f"INSERT INTO uc.{short} VALUES (2, 'b')")
    for statement in (
        f"INSERT INTO {full} VALUES (2, 'b')",
        f"UPDATE {full} SET v = 'x'",
        f"DELETE FROM {full}",
        f"MERGE INTO {full} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        with refused(needs, "Check the token"):
            spark.sql(statement)
    with refused("needs CREATE TABLE on ratify.bronze"):
        spark.sql(f"CREATE TABLE {full}_n TBLPROPERTIES ('delta.columnMapping.mode'='none') AS SELECT * FROM {full}")
    frame = spark.session.sql("SELECT 2L AS id, 'b' AS v")
    with refused(needs):
        spark.merge_to_match(table, lambda: frame)
    with refused(needs), spark._translating():
        frame.write.mode("append").saveAsTable(full)
    assert (lake.version(table), written(location)[0]) == before
    # A stream is refused when it commits, and leaves files that no reader sees.
    with refused(needs), spark._translating():
        rate = spark.session.readStream.format("rate").load().selectExpr("value AS id", "'s' AS v")
        options = {"checkpointLocation": str(tmp_path / "checkpoint")}
        rate.writeStream.format("delta").options(**options).toTable(full).awaitTermination(60)
    assert lake.version(table) == before[0]

    with duckdb.session() as session:
        assert session.rows(f"SELECT * FROM uc.{short}") == [(1, "a")]
        assert session.loaded(table, ["first", "two"]) == {"first"}
        assert session.columns(table) == tuple(Column(name, type_) for name, type_ in table.column_types.items())
    assert spark.rows(spark.table(table)) == [{"id": 1, "v": "a"}]
    assert spark.count(table, version=0) == 0
    assert [commit.version for commit in spark.history(full)] == [1, 0]


def test_every_engine_reports_an_expired_token(
    lake: Lakehouse, admin: httpx.Client, as_: As, table: TableDeclaration
) -> None:
    principal = ClientPrincipal.create(admin, *WRITE)
    # Its extensions are loaded before the time begins.
    lake.stored(table)
    token = principal.token(5)
    spark, duckdb = as_(token)
    with duckdb.session() as attached:
        assert attached.count(table) == 1
        outlive(admin, token)
        raised = []
        # It is attached, and what it reads it has read before: only what it writes is asked for.
        with refused("expired or revoked", "Check UNITY_TOKEN") as error:
            attached.rows(f"INSERT INTO uc.{table.layer}.{table.name} VALUES (2, 'b')")
        raised.append(error)
        with refused("expired or revoked", "Check UNITY_TOKEN") as error:
            attached.append(table, "SELECT 2::BIGINT, 'b'", ["two"])
        raised.append(error)
    with refused("expired or revoked", "Check UNITY_TOKEN") as error, duckdb.session() as fresh:
        fresh.attach()
        fresh.count(table)
    raised.append(error)
    for work in (
        lambda: spark.count(table),
        lambda: spark.sql(f"INSERT INTO {lake.full(table)} VALUES (2, 'b')"),
        lambda: spark.merge_to_match(table, lambda: spark.session.sql("SELECT 2L AS id, 'b' AS v")),
    ):
        with refused("expired or revoked", "Check ") as error:
            work()
        raised.append(error)
    assert not [error for error in raised if token in str(error.value)]
    assert lake.stored(table) == [(1, "a")]


def test_a_job_outlives_its_oauth_tokens(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two seconds; a DuckDB session, our commits, and a statement of Spark that goes on for longer."""
    with catalog_here(tmp_path, access_token_seconds=2) as server, server.client() as admin:
        principal = ClientPrincipal.create(admin, *WRITE)
        monkeypatch.setenv("UNITY_CLIENT_ID", principal.client_id)
        monkeypatch.setenv("UNITY_CLIENT_SECRET", principal.secret())
        catalog = UnityCatalog(host=server.url)
        spark = spark_of(lake, catalog, {"uri": server.url, **oauth_options(catalog)})
        duckdb, first, second = DuckDB(catalog=catalog), pairs(), pairs()
        create_declared(admin, first, second)
        with duckdb.session() as session:
            assert session.count(first) == 0
            outlive(admin, session._token)
            # The attached catalog has not looked at this table before.
            assert session.count(second) == 0
            session.append(first, "SELECT 1::BIGINT, 'a'", ["one"])
            outlive(admin, session._token)
            session.append(first, "SELECT 1::BIGINT, 'a'", ["two"])
            assert session.count(first) == 2
        slow = SLOW.format(mark=first.name, ms=3000)
        spark.sql(f"INSERT INTO {lake.full(first)} SELECT 3L, CASE WHEN {slow} THEN 'x' ELSE 'c' END")
        assert (spark.count(first), catalog.version(lake.full(first))) == (3, 3)
        duckdb.close()
        spark.close()


def test_spark_with_a_wrong_oauth_secret(lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CLIENT_ID", "me")
    monkeypatch.setenv("UNITY_CLIENT_SECRET", "wr0ng")
    catalog = UnityCatalog(host=lake.stack.catalog.url)
    spark = spark_of(lake, catalog, oauth_options(catalog))
    with refused("gave Spark no token", "invalid_client", "Check the OAuth client id and secret") as error:
        spark.count(table)
    assert "wr0ng" not in str(error.value)
    with refused("invalid_client", "Check UNITY_CLIENT_ID and UNITY_CLIENT_SECRET"):
        catalog.version(lake.full(table))
    spark.close()


def oauth_options(catalog: UnityCatalog) -> dict[str, str]:
    """What a classic session is given."""
    given = credentials_conf(catalog)
    assert all(key.startswith("spark.sql.catalog.ratify.auth.") for key in given)
    return {key.removeprefix("spark.sql.catalog.ratify."): value for key, value in given.items()}
