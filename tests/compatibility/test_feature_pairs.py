"""Each feature, and each pair of features, in each use that is not Spark's: where the guard refuses a table, rows would be
wrong, and where they would be wrong, it refuses the table."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.cli.sql_command import _duckdb_rows as rows_by_duckdb  # pyright: ignore[reportPrivateUsage]
from ratify_lakehouse.delta import table_features
from ratify_lakehouse.delta.table_features import REFUSALS, Use, refuse_unsupported_features
from ratify_lakehouse.engines.duckdb import feed_reading, live_rows
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB, DuckDBSession
from ratify_lakehouse.errors import UnsafeTable
from tests.compatibility.feature_pairs import COLUMNS, SHOWN, HandMadeTable, Row, combined
from tests.compatibility.matrix import undeclared
from tests.embedded.catalog.harness import CatalogProcess

Features = tuple[str, ...]
Tables = Mapping[Features, HandMadeTable]

CONDITIONS = {"id = 2": 1, "p = 'b/c d'": 2, "d = DATE '2013-01-01' AND b AND n = 7": 2, "p IS NULL": 1}
"""How many rows fulfil each."""
NAMED = {"column mapping": ("column mapping by name", "column mapping by id"), "partitions": ("partitions",)}
"""The features of the guard by those of the tables."""
UNSUPPORTED = {"CHECK constraints", "default values", "generated columns", "type widening"}
"""Features of which `append` does not know what they ask of a writer: refused whatever becomes of the rows."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    started = CatalogProcess.start(tmp_path_factory.mktemp("catalog"))
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["readers", "writers"])
def tables(server: CatalogProcess, request: pytest.FixtureRequest) -> Tables:
    schema = f"s_{uuid4().hex[:8]}"
    with server.client() as client, duckdb.connect() as con:
        client.post("/schemas", json={"name": schema, "catalog_name": "ratify"}).raise_for_status()
        every = combined(of_writers=request.param)
        return {features: HandMadeTable.create(client, con, schema, features) for features in every}


@pytest.fixture
def engine(server: CatalogProcess, home: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[DuckDB]:
    for name in ("UNITY_HOST", "UNITY_TOKEN", "UNITY_CATALOG", "LANDING_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATIFY_HOME", str(home))
    catalog = UnityCatalog(host=server.url, token=server.token, name="ratify")
    with closing(DuckDB(catalog=catalog)) as opened:
        yield opened


def refused(tables: Tables, use: Use) -> set[Features]:
    """The tables with all features of a refusal."""
    found = set[Features]()
    for features in tables:
        has = {name for name, made in NAMED.items() if set(made) & set(features)}
        if any(use in refusal.uses and refusal.features <= has for refusal in REFUSALS):
            found.add(features)
    return found


def holds(check: Callable[[], bool]) -> bool:
    """Whether it is so; an error of DuckDB is no right answer either."""
    try:
        return check()
    except (UnsafeTable, duckdb.Error):
        return False


def right_by_query(session: DuckDBSession, table: HandMadeTable) -> bool:
    """Whether all rows are read, and just those found that fulfil a condition, by statistics and values of partitions."""
    found = session.con.execute(f"SELECT {SHOWN} FROM {table.attached} ORDER BY id").fetchall()
    counts = ", ".join(f"(SELECT count(*) FROM {table.attached} WHERE {where})" for where in CONDITIONS)
    return found == table.rows and session.con.execute(f"SELECT {counts}").fetchall() == [(*CONDITIONS.values(),)]


def test_queries(engine: DuckDB, tables: Tables) -> None:
    wrong, stopped = set[Features](), set[Features]()
    with engine.session() as session:
        session.attach()
        for features, table in tables.items():
            wrong |= set() if holds(lambda table=table: right_by_query(session, table)) else {features}
            for read in (session.rows, session.records, session.relation):
                try:
                    read(f"SELECT id FROM {table.attached}")
                except UnsafeTable:
                    stopped.add(features)
    assert wrong == stopped == refused(tables, Use.QUERY)


@pytest.mark.parametrize("tables", [False], ids=["readers"], indirect=True)
def test_a_table_is_found_however_it_is_named(engine: DuckDB, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = tables["column mapping by name", "partitions"], tables[("partitions",)]
    schema, name = table.schema, table.name
    spelled = [
        f"{schema}.{name}",
        f'"{schema}"."{name}"',
        f"{schema.upper()} . {name.upper()}",
        f'{schema}."{name.upper()}"',
    ]
    with engine.session() as session:
        session.attach()
        for named in (f"{catalog}{each}" for each in spelled for catalog in ("uc.", '"uc".', "UC . ")):
            for text in (
                *(f"SELECT v FROM {named} WHERE id = $1", f"CREATE TEMP VIEW x AS FROM {named}", f"SUMMARIZE {named}"),
                *(f"SELECT (SELECT max(v)FROM {named})", f"FROM {other.attached} o,{named}", f"FROM query_table('{named}')"),
            ):
                with pytest.raises(UnsafeTable, match="partitioned by p, d, b, n, for which DuckDB would read NULL"):
                    session.readable.check(text)
        session.readable.check(f"SELECT uc.x.y, 'uc.{schema}.nothing', x.uc.{schema}.{name} FROM {other.attached} AS uc")
    monkeypatch.setenv("UNITY_HOST", engine.catalog.connection.host)
    monkeypatch.setenv("UNITY_TOKEN", engine.catalog.bearer_token())
    for each in spelled:
        with pytest.raises(UnsafeTable, match="read it with Spark"):
            rows_by_duckdb(f"SELECT o.v FROM {other.schema}.{other.name} AS o, {each}")
    assert len(rows_by_duckdb(f"SELECT v AS {name} FROM {other.schema}.{other.name} AS {schema}")) == len(other.rows)


def right_by_files(session: DuckDBSession, engine: DuckDB, table: HandMadeTable) -> bool:
    log = engine.log(table.full_name)
    snapshot = log.refresh()
    with live_rows.live_rows(session.con, log.storage, snapshot, log.files(snapshot)) as live:
        shown = ", ".join(f"CAST({name} AS VARCHAR)" for name in live.columns)
        found = session.con.execute(f"SELECT {shown} FROM ({live.select()}) ORDER BY id").fetchall()
    at = [[*COLUMNS].index(name) for name in live.columns]
    return found == [tuple(row[number] for number in at) for row in table.rows]


def test_data_files(engine: DuckDB, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_right() -> set[Features]:
        return {
            features
            for features, table in tables.items()
            if holds(lambda table=table: right_by_files(session, engine, table))
        }

    with engine.session() as session:
        allowed = all_right()
        monkeypatch.setattr(live_rows, "refuse", lambda *_: None)
        right = all_right()
    assert allowed == right == {*tables} - refused(tables, Use.FILES)


def right_by_feed(session: DuckDBSession, engine: DuckDB, table: HandMadeTable) -> bool:
    found = feed_reading.read_changes(session, engine.log(table.full_name), 0, 0)
    return found.project(SHOWN).order("1").fetchall() == table.rows


def test_feeds(engine: DuckDB, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {features: table for features, table in tables.items() if "change data feed" in features}

    def all_right() -> set[Features]:
        return {
            features
            for features, table in recorded.items()
            if holds(lambda table=table: right_by_feed(session, engine, table))
        }

    with engine.session() as session:
        allowed = all_right()
        monkeypatch.setattr(feed_reading, "refuse", lambda *_: None)
        right = all_right()
    assert allowed == right == {*recorded} - refused(recorded, Use.FILES)


NEW: Row = ("4", "a", "2014-01-01", "false", "8", None, "four")
_COLUMNS = [
    *(("id", "bigint"), ("p", "string"), ("d", "date"), ("b", "boolean"), ("n", "int")),
    *(("s", "struct<a:int,b:string>"), ("v", "string")),
]


def test_appends(engine: DuckDB, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last test: it changes the tables. What is written all the same is read wrong, or the table asks for more."""
    stopped, right = set[Features](), set[Features]()
    select = "SELECT 4, 'a', DATE '2014-01-01', false, 8, NULL, 'four'"
    for features, table in tables.items():
        try:
            refuse_unsupported_features(engine.log(table.full_name).refresh())
        except UnsafeTable:
            stopped.add(features)
    monkeypatch.setattr(table_features, "refuse_unsupported_features", lambda *_: None)

    def append(table: HandMadeTable) -> None:
        with engine.session() as session:
            session.append(undeclared(table.schema, table.name, _COLUMNS), select, ["four"])

    for table in tables.values():
        append(table)
    with engine.session() as session:
        session.attach()

        def is_right(table: HandMadeTable) -> bool:
            found = session.con.execute(f"SELECT {SHOWN} FROM {table.attached} ORDER BY id").fetchall()
            return found == [*table.rows, NEW]

        for features, table in tables.items():
            right |= {features} if holds(lambda table=table: is_right(table)) else set()
    wrong = {*tables} - right
    assert refused(tables, Use.APPEND) == wrong
    assert {features for features in stopped - wrong if not UNSUPPORTED & set(features)} == set()
    assert wrong <= stopped
