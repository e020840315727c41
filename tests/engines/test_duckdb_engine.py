"""The append protocol: each load once, beside other writers, and nothing written where it would be wrong."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from duckdb import IOException

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb import duckdb_engine
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.duckdb_errors import translating
from ratify_lakehouse.engines.duckdb.group_commit import Ratified
from ratify_lakehouse.errors import (
    AlreadyLoaded,
    AppendFailed,
    CatalogBusy,
    CatalogDenied,
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    TableMissing,
    UnsafeTable,
)
from ratify_lakehouse.table_layout import Layout
from tests.embedded.catalog.catalog_thread import catalog_here
from tests.embedded.catalog.harness import READ, CatalogProcess, ClientPrincipal, TableClient, outlive
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs())


def test_a_load_is_written_once(lake: Lakehouse, table: TableDeclaration) -> None:
    first = append(lake.duckdb, table, "SELECT 1::BIGINT, 'a' UNION ALL SELECT 2, NULL", "one")
    assert first == Ratified(1, 2, ("one",))
    for duckdb in (lake.duckdb, lake.another_duckdb()):
        with pytest.raises(AlreadyLoaded, match="never written twice") as error:
            append(duckdb, table, "SELECT 1::BIGINT, 'a'", "new", "one")
        assert error.value.loads == ["one"]
    assert lake.version(table) == 1
    assert lake.spark.count(table) == 2
    assert append(lake.duckdb, table, "SELECT 3::BIGINT, 'c'", "new", "other") == Ratified(2, 1, ("new", "other"))
    with lake.duckdb.session() as session:
        assert session.loaded(table, ["one", "new", "other", "never"]) == {"one", "new", "other"}
        assert session.rows(f"SELECT count(*) FROM uc.bronze.{table.name}") == [(3,)]


def test_an_append_without_a_load_is_refused(lake: Lakehouse, table: TableDeclaration) -> None:
    with pytest.raises(ValueError, match="at least one load id"):
        append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'")
    assert lake.version(table) == 0


def test_a_failed_query_leaves_the_table_and_the_session_usable(lake: Lakehouse, table: TableDeclaration) -> None:
    with lake.duckdb.session() as session:
        with pytest.raises(Exception, match="Conversion Error"):
            session.append(table, "SELECT 'x'::BIGINT, 'a'", ["one"])
        assert lake.version(table) == 0
        assert session.append(table, "SELECT 1::BIGINT, 'a'", ["one"]).version == 1


def test_concurrent_writers_lose_and_double_nothing(lake: Lakehouse, table: TableDeclaration) -> None:
    writers, appends = 4, 5

    def write(writer: int) -> list[Ratified]:
        duckdb = lake.another_duckdb(attempts=60, threads=1)
        try:
            return [
                append(duckdb, table, f"SELECT {writer * 100 + n}::BIGINT, 'w{writer}'", f"w{writer}-{n}")
                for n in range(appends)
            ]
        finally:
            duckdb.close()

    with ThreadPoolExecutor(writers) as pool:
        results = [result for made in pool.map(write, range(writers)) for result in made]
    history = lake.spark.history(lake.full(table))
    assert [commit.version for commit in history] == list(range(lake.version(table), -1, -1))
    assert lake.rows(table) == [(w * 100 + n, f"w{w}") for w in range(writers) for n in range(appends)]
    for result in results:
        # The version that the writer got is the one whose commit carries its load.
        actions = lake.commit(table, result.version)
        assert {*result.loads} < {"", *(action["txn"]["appId"] for action in actions if "txn" in action)}


def test_two_writers_of_one_load(lake: Lakehouse, table: TableDeclaration) -> None:
    def write(_: int) -> str:
        duckdb = lake.another_duckdb(attempts=30, threads=1)
        try:
            append(duckdb, table, "SELECT 1::BIGINT, 'a'", "same")
        except AlreadyLoaded:
            return "there"
        finally:
            duckdb.close()
        return "written"

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(write, range(3))) == ["there", "there", "written"]
    assert (lake.version(table), lake.stored(table)) == (1, [(1, "a")])


ID, V = Column("id", "bigint"), Column("v", "string")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"columns": (ID,)}, "column v: string is to be written, but the table has no such column"),
        ({"columns": (Column("id", "int"), V)}, "column id: bigint is to be written, but the table has int"),
        ({"columns": (ID, V, Column("w", "int"))}, "has columns w that are not written"),
        ({"layout": Layout(partition_by=("v",)), "writer": Engine.SPARK}, "is partitioned"),
    ],
    ids=["one less", "other type", "one more", "partitioned"],
)
def test_nothing_is_written_where_it_would_be_wrong(lake: Lakehouse, made: dict[str, Any], message: str) -> None:
    table = pairs()
    lake.create(pairs(**made, name=table.name))
    with pytest.raises(UnsafeTable, match=message):
        append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    assert (lake.version(table), lake.stored(table)) == (0, [])


def test_nothing_is_written_to_features_that_are_unknown(lake: Lakehouse) -> None:
    """As Spark creates such tables."""
    mapped, generated = pairs(), pairs()
    lake.catalog.ensure_schemas(("bronze",))
    mode = "TBLPROPERTIES ('delta.columnMapping.mode' = '{}')"
    lake.run(f"CREATE TABLE {lake.full(mapped)} (id BIGINT, v STRING) USING DELTA {mode.format('name')}")
    computed = "w BIGINT GENERATED ALWAYS AS (id + 1)"
    lake.run(f"CREATE TABLE {lake.full(generated)} (id BIGINT, v STRING, {computed}) USING DELTA {mode.format('none')}")
    for table, message in ((mapped, "column mapping"), (generated, "requires writers to support generatedColumns")):
        with pytest.raises(UnsafeTable, match=message):
            append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
        assert (lake.version(table), lake.stored(table)) == (0, [])
    lake.run(f"ALTER TABLE {lake.full(mapped)} SET {mode.format('none')}")
    append(lake.duckdb, mapped, "SELECT 1::BIGINT, 'a'", "one")
    assert lake.stored(mapped) == [(1, "a")]


def test_columns_are_known_by_name(lake: Lakehouse) -> None:
    table = pairs()
    lake.create(pairs(columns=(V, ID), name=table.name))
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    assert lake.read(f"SELECT id, v FROM uc.bronze.{table.name}") == [(1, "a")]
    assert lake.stored(table) == [("a", 1)]


def test_a_null_where_none_may_be(lake: Lakehouse) -> None:
    table = lake.create(pairs(columns=(Column("id", "bigint", nullable=False), Column("v", "string"))))
    with pytest.raises(AppendFailed, match="column id: must not be NULL, and is in 2 rows"):
        append(lake.duckdb, table, "SELECT NULL, 'a' FROM range(2)", "one")
    assert (lake.version(table), lake.stored(table)) == (0, [])


def test_a_missing_table(lake: Lakehouse) -> None:
    with pytest.raises(TableMissing):
        append(lake.duckdb, pairs(), "SELECT 1::BIGINT, 'a'", "one")


def test_a_wrong_token(lake: Lakehouse, table: TableDeclaration) -> None:
    wrong = DuckDB(catalog=UnityCatalog(host=lake.stack.catalog.url, token="wr0ng"))
    with pytest.raises(CatalogDenied) as error, wrong.session():
        pass
    assert "wr0ng" not in str(error.value)


def test_an_engine_outlives_its_oauth_tokens(lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with catalog_here(tmp_path, access_token_seconds=2) as server, server.client() as admin:
        admin.post("/schemas", json={"name": "s", "catalog_name": "ratify"}).raise_for_status()
        TableClient.create_readable(admin, "s", "t")
        reader = ClientPrincipal.create(admin, *READ)
        monkeypatch.setenv("UNITY_CLIENT_ID", reader.client_id)
        monkeypatch.setenv("UNITY_CLIENT_SECRET", reader.secret())
        duckdb = DuckDB(catalog=UnityCatalog(host=server.url))
        with duckdb.session() as session:
            assert session.rows("SELECT count(*) FROM uc.s.t") == [(0,)]
        outlive(admin, duckdb.catalog.bearer_token())
        with duckdb.session() as session:
            assert session.rows("SELECT count(*) FROM uc.s.t") == [(0,)]
        duckdb.close()


def test_writers_sum_up_the_log(lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_engine, "_CHECKPOINT_EVERY", 2)
    with closing(lake.another_duckdb()) as duckdb:
        for number in range(1, 7):
            append(duckdb, table, f"SELECT {number}, 'x'", f"load-{number}")
        names = duckdb.log(lake.full(table)).storage.names("_delta_log")
    assert sorted({int(name[:20]) for name in names if ".checkpoint" in name}) == [2, 4, 6]
    assert len(lake.stored(table)) == 6


def test_an_engine_that_was_closed_opens_again(lake: Lakehouse, table: TableDeclaration) -> None:
    duckdb = lake.another_duckdb()
    append(duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    duckdb.close()
    duckdb.close()
    assert append(duckdb, table, "SELECT 2::BIGINT, 'b'", "two").version == 2
    duckdb.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO Error: Could not establish connection for 'http://127.0.0.1:42903/api/tables/b409-401'", CatalogUnavailable),
        ("HTTP Error: HTTP GET error on 'http://127.0.0.1:40911/x-503-y' (HTTP 401)", CatalogDenied),
        ("IO Error: the server answered 429. Try later", CatalogBusy),
        ("IO Error: failed with 409: Commit version already taken", CommitConflict),
    ],
)
def test_errors_are_distinguished_by_the_status_and_not_by_digits_in_an_address(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind), translating("test"):
        raise IOException(text)


@pytest.mark.parametrize("then", [CatalogDenied, CatalogBusy, CommitConflict])
def test_a_refusal_after_a_lost_reply_takes_nothing_back(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch, then: type[Exception]
) -> None:
    """The commit was accepted; what is answered to its repetition says nothing of that, and its file must stay."""
    update, answers = UnityCatalog.update_table, iter((CatalogUnavailable("lost"), then("refused")))

    def accepted_unheard(self: UnityCatalog, *arguments: Any) -> Any:
        answer = next(answers, None)
        if isinstance(answer, CatalogUnavailable):
            update(self, *arguments)
        raise answer or then("refused")

    duckdb = lake.another_duckdb(commit_patience=1)
    with monkeypatch.context() as patch:
        patch.setattr(UnityCatalog, "update_table", accepted_unheard)
        # The log itself shows whose version it is.
        assert append(duckdb, table, "SELECT 1::BIGINT, 'a'", "one").version == 1
    assert lake.stored(table) == [(1, "a")]
    with pytest.raises(AlreadyLoaded):
        append(duckdb, table, "SELECT 1::BIGINT, 'a'", "one")


@pytest.fixture
def twin(lake: Lakehouse, table: TableDeclaration, home: Path, tmp_path: Path) -> Generator[CatalogProcess]:
    """A catalog that knows the same tables and may be killed: over a copy of the database, on the same files."""
    (tmp_path / "state").mkdir()
    theirs, ours = (folder / "catalog.sqlite" for folder in (home / "catalog", tmp_path / "state"))
    with closing(connect(theirs)) as source, closing(connect(ours)) as target:
        source.backup(target)
    (tmp_path / "lake").symlink_to(home / "lake")
    (tmp_path / "token").write_text(lake.stack.catalog.token_file.read_text())
    (tmp_path / "token").chmod(0o600)
    server = CatalogProcess.start(tmp_path)
    yield server
    server.process.stdin.close()
    server.process.wait(10)


def test_a_catalog_that_dies_before_the_commit(
    twin: CatalogProcess, table: TableDeclaration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First dead between the INSERT and its COMMIT, then before the append; each time nothing is in the table."""
    full_name = table.full_name("ratify")

    def client() -> DuckDB:
        return DuckDB(catalog=UnityCatalog(host=twin.url, token=twin.token, retry_seconds=1), attempts=2, commit_patience=1)

    append(client(), table, "SELECT 1::BIGINT, 'a'", "one")
    propose = DeltaLog._propose

    def killed_first(self: DeltaLog, *arguments: Any) -> Any:
        twin.kill()
        return propose(self, *arguments)

    with client().session() as session:
        with monkeypatch.context() as patch:
            patch.setattr(DeltaLog, "_propose", killed_first)
            with pytest.raises(CommitOutcomeUnknown, match="unknown whether version 2 of"):
                append(client(), table, "SELECT 2::BIGINT, 'b'", "two")
        with pytest.raises(CatalogUnavailable, match="ratify status"):
            session.append(table, "SELECT 2::BIGINT, 'b'", ["two"])
    again = CatalogProcess.start(tmp_path)
    twin.process, twin.url = again.process, again.url
    assert client().catalog.version(full_name) == 1
    assert append(client(), table, "SELECT 2::BIGINT, 'b'", "two").version == 2
    with client().session() as session:
        assert session.rows(f"SELECT id, v FROM uc.bronze.{table.name} ORDER BY id") == [(1, "a"), (2, "b")]
