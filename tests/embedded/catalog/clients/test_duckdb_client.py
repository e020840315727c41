"""DuckDB's extension, on managed tables that others created.

It reads, and appends by commits of its own. CREATE, ALTER and DROP, and changes of rows that are there, it does not have:
it refuses them before it asks the catalog. What it attached it never looks up again, and a transaction that failed or was
rolled back leaves that useless: DETACH and ATTACH bring the commits of others, a new token, and a way on. Of a commit that
the catalog refused it deletes the data file; the proposal stays in `_delta_log/_staged_commits`, where no reader looks.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import httpx
import pytest

from ratify_lakehouse.engines.duckdb.extension_loading import LOADED_AS_THEY_ARE, load_extensions
from tests.embedded.catalog.harness import READ, WRITE, CatalogProcess, ClientPrincipal, TableClient, outlive, written

pytestmark = pytest.mark.server


@dataclass
class DuckDBClient:
    """An instance of DuckDB, with the catalog attached as `uc`."""

    connection: duckdb.DuckDBPyConnection
    url: str
    attached: tuple[str, ...] = ()

    def attach(self, token: str, schema: str, catalog: str = "ratify") -> None:
        self.attached = token, schema, catalog
        with suppress(duckdb.Error):  # It may complain about its internal catalogs, and has still taken effect.
            self.run("DETACH DATABASE IF EXISTS uc")
        self.run(
            f"CREATE OR REPLACE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{self.url}/', AWS_REGION 'none')"
        )
        self.run(f"ATTACH '{catalog}' AS uc (TYPE unity_catalog, DEFAULT_SCHEMA '{schema}')")

    def attach_again(self) -> None:
        self.attach(*self.attached)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def rows(self, schema: str) -> list[tuple[Any, ...]]:
        return self.run(f"SELECT id, v FROM uc.{schema}.t ORDER BY id")


Start = Callable[[], DuckDBClient]


@pytest.fixture(scope="module")
def start(server: CatalogProcess) -> Iterator[Start]:
    started: list[DuckDBClient] = []

    def start() -> DuckDBClient:
        connection = duckdb.connect(config=dict(LOADED_AS_THEY_ARE))
        started.append(DuckDBClient(connection, server.url))
        load_extensions(connection)
        return started[-1]

    yield start
    for engine in started:
        engine.connection.close()


@pytest.fixture(scope="module")
def shared(start: Start) -> DuckDBClient:
    return start()


@pytest.fixture
def table(client: httpx.Client, schema: str) -> TableClient:
    return TableClient.create_readable(client, schema, "t")


@pytest.fixture
def engine(shared: DuckDBClient, client: httpx.Client, schema: str, table: TableClient) -> DuckDBClient:
    """As a principal that may write."""
    shared.attach(ClientPrincipal.create(client, *WRITE).token(), schema)
    return shared


def version(table: TableClient) -> int:
    return table.load()["latest-table-version"]


def test_it_reads_and_appends(engine: DuckDBClient, schema: str, table: TableClient) -> None:
    assert engine.rows(schema) == []
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'a'), (2, NULL)")
    engine.run("BEGIN")
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (3, 'never')")
    engine.run("ROLLBACK")
    engine.attach_again()
    engine.run(f"INSERT INTO uc.{schema}.t SELECT i, 'r' || i FROM range(3, 1003) r(i)")
    assert version(table) == 2
    assert engine.run(f"SELECT count(*), max(v) FROM uc.{schema}.t WHERE id > 2") == [(1000, "r999")]
    assert engine.rows(schema)[:3] == [(1, "a"), (2, None), (3, "r3")]
    [shown] = [row for row in engine.run("SHOW ALL TABLES") if row[:3] == ("uc", schema, "t")]
    assert shown[3:5] == (["id", "v"], ["BIGINT", "VARCHAR"])


def test_it_sees_the_commits_of_others_when_it_attaches_again(
    engine: DuckDBClient, start: Start, client: httpx.Client, schema: str
) -> None:
    other = start()
    other.attach(ClientPrincipal.create(client, *WRITE).token(), schema)
    assert other.rows(schema) == []
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'a')")
    assert other.rows(schema) == []
    other.attach_again()
    assert other.rows(schema) == [(1, "a")]


@pytest.mark.parametrize(
    ("sql", "refusal"),
    [
        ("CREATE TABLE uc.{s}.n (id BIGINT)", "CreateTable"),
        ("CREATE TABLE uc.{s}.n AS SELECT 1 AS id", "PlanCreateTableAs"),
        ("CREATE SCHEMA uc.{s}_n", "Schema creation"),
        ("ALTER TABLE uc.{s}.t ADD COLUMN w INTEGER", "AlterTable"),
        ("ALTER TABLE uc.{s}.t RENAME TO u", "AlterTable"),
        ("DROP TABLE uc.{s}.t", "DropEntry"),
        ("DROP SCHEMA uc.{s} CASCADE", "DropEntry"),
        ("UPDATE uc.{s}.t SET v = 'x'", "Can only update base table"),
        ("DELETE FROM uc.{s}.t", "Can only delete from base table"),
    ],
    ids=lambda text: text.partition(" uc")[0],
)
def test_what_it_does_not_have_it_refuses_without_harm(
    engine: DuckDBClient, client: httpx.Client, schema: str, table: TableClient, sql: str, refusal: str
) -> None:
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'a')")
    before = table.load()["metadata"], version(table), written(table.location)
    with pytest.raises((duckdb.NotImplementedException, duckdb.BinderException), match=refusal):
        engine.run(sql.format(s=schema))
    assert (table.load()["metadata"], version(table), written(table.location)) == before
    tables = client.get("/tables", params={"catalog_name": "ratify", "schema_name": schema}).json()["tables"]
    assert [item["name"] for item in tables] == ["t"]
    assert client.get(f"/schemas/ratify.{schema}_n").status_code == 404
    engine.attach_again()
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (2, 'b')")
    assert engine.rows(schema) == [(1, "a"), (2, "b")]


def test_of_two_commits_of_one_version_the_second_is_refused(
    engine: DuckDBClient, start: Start, client: httpx.Client, schema: str, table: TableClient
) -> None:
    other = start()
    other.attach(ClientPrincipal.create(client, *WRITE).token(), schema)
    other.run("BEGIN")
    assert other.rows(schema) == []
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'first')")
    data, _ = written(table.location)
    other.run(f"INSERT INTO uc.{schema}.t VALUES (2, 'second')")
    with pytest.raises(duckdb.TransactionException, match=r"(?s)409.*Commit version already accepted"):
        other.run("COMMIT")
    assert (version(table), written(table.location)[0]) == (1, data)
    other.attach_again()
    other.run(f"INSERT INTO uc.{schema}.t VALUES (2, 'second')")
    assert (version(table), other.rows(schema)) == (2, [(1, "first"), (2, "second")])


def test_a_reader_reads_and_does_not_write(
    engine: DuckDBClient, client: httpx.Client, schema: str, table: TableClient
) -> None:
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'a')")
    before, proposed = written(table.location)
    reader = ClientPrincipal.create(client, *READ)
    engine.attach(reader.token(), schema)
    assert engine.rows(schema) == [(1, "a")]
    with pytest.raises(duckdb.TransactionException, match=rf"(?s)403.*{reader.name} needs MODIFY on ratify\.{schema}\.t"):
        engine.run(f"INSERT INTO uc.{schema}.t VALUES (2, 'b')")
    data, left = written(table.location)
    assert (version(table), data) == (1, before)
    # It is of version 2, was not ratified, and so stops nobody from making that version.
    assert [name.partition(".")[0] for name in left - proposed] == [f"{2:020d}"]
    assert engine.rows(schema) == [(1, "a")]
    engine.attach(ClientPrincipal.create(client, *WRITE).token(), schema)
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (3, 'c')")
    assert (version(table), engine.rows(schema)) == (2, [(1, "a"), (3, "c")])


def test_who_may_not_read(engine: DuckDBClient, client: httpx.Client, schema: str) -> None:
    """What is not in a list is not there for this client; what is, the catalog refuses by the name of the privilege."""
    engine.attach(ClientPrincipal.create(client, "USE CATALOG", "USE SCHEMA", "SELECT").token(), schema)
    with pytest.raises(duckdb.IOException, match=r"(?s)403.*needs EXTERNAL USE SCHEMA"):
        engine.rows(schema)
    for privileges, message in (
        (("USE CATALOG", "USE SCHEMA", "EXTERNAL USE SCHEMA"), "Table with name t does not exist"),
        (("USE CATALOG", "EXTERNAL USE SCHEMA", "SELECT"), f'schema "{schema}" does not exist'),
    ):
        engine.attach(ClientPrincipal.create(client, *privileges).token(), schema)
        with pytest.raises(duckdb.CatalogException, match=message):
            engine.rows(schema)


def test_a_token_that_expires_in_a_transaction(
    engine: DuckDBClient, client: httpx.Client, schema: str, table: TableClient
) -> None:
    writer = ClientPrincipal.create(client, *WRITE)
    short = writer.token(3)
    engine.attach(short, schema)
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'a')")
    data, _ = written(table.location)
    engine.run("BEGIN")
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (2, 'b')")
    outlive(client, short)
    with pytest.raises(
        duckdb.TransactionException, match=r"(?s)401.*The bearer token is missing, wrong, expired or revoked"
    ):
        engine.run("COMMIT")
    assert (version(table), written(table.location)[0]) == (1, data)
    # What it has read once it reads without the catalog; to write, it asks.
    assert engine.rows(schema) == [(1, "a")]
    with pytest.raises(duckdb.TransactionException, match=r"(?s)401.*expired"):
        engine.run(f"INSERT INTO uc.{schema}.t VALUES (3, 'c')")
    engine.attach(writer.token(), schema)
    assert engine.rows(schema) == [(1, "a")]
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (4, 'd')")
    assert (version(table), engine.rows(schema)) == (2, [(1, "a"), (4, "d")])


def test_a_token_that_has_expired_before_the_first_look(engine: DuckDBClient, client: httpx.Client, schema: str) -> None:
    short = ClientPrincipal.create(client, *READ).token(1)
    engine.attach(short, schema)
    outlive(client, short)
    with pytest.raises(duckdb.IOException, match=r"(?s)401.*expired or revoked"):
        engine.rows(schema)


def test_what_is_not_there(
    engine: DuckDBClient, server: CatalogProcess, client: httpx.Client, schema: str, table: TableClient
) -> None:
    for name, message in (
        (f"{schema}.nope", "Table with name nope does not exist"),
        ("nope.t", 'schema "nope" does not exist'),
    ):
        for sql in (f"SELECT * FROM uc.{name}", f"INSERT INTO uc.{name} VALUES (1, 'a')"):
            with pytest.raises(duckdb.CatalogException, match=message):
                engine.run(sql)
    assert engine.rows(schema) == []
    client.delete(table.path).raise_for_status()
    for sql in (f"SELECT * FROM uc.{schema}.t", f"INSERT INTO uc.{schema}.t VALUES (1, 'a')"):
        with pytest.raises(duckdb.Error, match=r"Path does not exist|Table not found"):
            engine.run(sql)
    assert not Path(urlsplit(table.location).path).exists()
    engine.attach(server.token, schema, catalog="nope")
    with pytest.raises(duckdb.IOException, match=r"(?s)404.*Catalog not found: nope"):
        engine.rows(schema)


def test_nobody_puts_a_schema_beside_that_of_others(engine: DuckDBClient, client: httpx.Client, schema: str) -> None:
    """To DuckDB the two would be one schema, with the rows of whoever made the second."""
    engine.run(f"INSERT INTO uc.{schema}.t VALUES (1, 'true')")
    eve = ClientPrincipal.create(client, "USE CATALOG", "CREATE SCHEMA")
    headers = {"Authorization": f"Bearer {eve.token()}"}
    forged = {"name": schema.upper(), "catalog_name": "ratify"}
    assert client.post("/schemas", json=forged, headers=headers).status_code == 409
    engine.attach_again()
    assert engine.rows(schema) == [(1, "true")]
