"""Tables that DuckDB makes equal to a query."""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.write_result import WriteResult
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.table_overwrite import overwrite_to_match
from ratify_lakehouse.errors import CommitConflict, UnsafeTable
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

Rows = Sequence[tuple[Any, ...]]


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs(keys=("id",)))


def overwrite(lake: Lakehouse, table: TableDeclaration, rows: Rows) -> WriteResult:
    with lake.duckdb.session() as session:
        return overwritten(session, table, rows)


def overwritten(session: DuckDBSession, table: TableDeclaration, rows: Rows) -> WriteResult:
    session.con.execute("CREATE OR REPLACE TEMP TABLE given (v VARCHAR, id INTEGER)")
    if rows:
        session.con.executemany("INSERT INTO given VALUES (?, ?)", [(v, id_) for id_, v in rows])
    return overwrite_to_match(session, table, "given")


def test_a_table_equals_the_query_after_any_sequence(lake: Lakehouse, table: TableDeclaration) -> None:
    """Against plain Python: rows, versions, and what was inserted, updated and deleted, with repeated rows and NULLs."""
    chance = random.Random(7)  # noqa: S311
    present = list[tuple[Any, ...]]()
    for step in range(12):
        match chance.randrange(4):
            case 0:
                wanted = list(present)
            case 1:
                wanted = []
            case _:
                wanted = [(chance.randrange(5), chance.choice(["a", "b", None])) for _ in range(chance.randrange(1, 8))]
        if step % 5 == 4:
            # Another engine changes it meanwhile.
            lake.insert(table, "VALUES (9, 'by Spark')")
            present = [*present, (9, "by Spark")]
        before = lake.version(table)
        done = overwrite(lake, table, wanted)
        added, removed = Counter(wanted) - Counter(present), Counter(present) - Counter(wanted)
        updated = (Counter(id_ for id_, _ in added.elements()) & Counter(id_ for id_, _ in removed.elements())).total()
        assert (done.inserted, done.updated, done.deleted) == (added.total() - updated, updated, removed.total() - updated)
        assert (done.rows, done.version) == (len(wanted), lake.version(table))
        changed = sorted(map(str, wanted)) != sorted(map(str, present))
        assert done.version == before + changed
        assert bool(done.commit) == changed
        present = wanted
        found = lake.read(f"SELECT id, v FROM uc.{table.table_name}")
        assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert sorted(str(tuple(row.values())) for row in lake.run(f"FROM {lake.full(table)}")) == sorted(map(str, wanted))


def test_the_history_says_what_was_done(lake: Lakehouse, table: TableDeclaration) -> None:
    overwrite(lake, table, [(1, "a"), (2, "b")])
    done = overwrite(lake, table, [(1, "a"), (3, "c"), (4, "d")])
    newest = lake.spark.history(lake.full(table), 1)[0]
    assert done.commit is not None
    assert (newest.version, newest.operation, newest.parameters["mode"]) == (done.version, "WRITE", "Overwrite")
    assert (newest.metrics["numOutputRows"], newest.metrics["numDeletedRows"]) == (3, 1)
    assert done.commit.metrics == newest.metrics


def test_what_others_commit_meanwhile_is_compared_again(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the comparison and the commit another writer adds a row: it goes, as the query does not give it."""
    commits = list[str]()

    def commit(log: DeltaLog, plan: Any) -> Any:
        if not commits:
            commits.append("other")
            with closing(lake.another_duckdb()) as other:
                monkeypatch.undo()
                append(other, table, "SELECT 7, 'other'", "other")
        return log.commit(plan)

    original = DeltaLog.commit
    monkeypatch.setattr(DeltaLog, "commit", commit)
    done = overwrite(lake, table, [(1, "a")])
    assert DeltaLog.commit is original
    assert commits == ["other"]
    assert lake.stored(table) == [(1, "a")]
    assert (done.inserted, done.deleted) == (1, 1)


def test_a_writer_that_is_always_overtaken_gives_up(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = DeltaLog.commit
    number = iter(range(100))

    def commit(log: DeltaLog, plan: Any) -> Any:
        with monkeypatch.context() as inner, closing(lake.another_duckdb()) as other:
            inner.setattr(DeltaLog, "commit", original)
            at = next(number)
            append(other, table, f"SELECT {at}, 'other'", f"other {at}")
        return original(log, plan)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    with pytest.raises(CommitConflict, match="committed before each of 10 attempts; nothing was written"):
        overwrite(lake, table, [(1, "mine")])
    assert [row for row in lake.stored(table) if row[1] == "mine"] == []
    log = lake.duckdb.log(lake.full(table))
    live = {file.path for file in log.files(log.refresh())}
    assert {name for name in log.storage.names("") if name.endswith(".parquet")} == live


def test_an_append_only_table_is_refused(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={"delta.appendOnly": "true"}))
    assert overwrite(lake, table, [(1, "a")]).rows == 1
    with pytest.raises(UnsafeTable, match="append-only"):
        overwrite(lake, table, [(2, "b")])
    assert lake.stored(table) == [(1, "a")]


def test_values_are_compared_as_the_table_has_them(lake: Lakehouse) -> None:
    """A second run over the same values makes no version, whatever their types."""
    columns = (
        Column("id", "int"),
        Column("d", "double"),
        Column("n", "decimal(10,2)"),
        Column("at", "timestamp"),
        Column("tags", "array<string>"),
        Column("s", "struct<a:int,b:string>"),
        Column("m", "map<string,int>"),
    )
    table = lake.create(pairs(columns=columns))
    rows = (
        "SELECT i AS id, CASE i WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN NULL ELSE -0.0 END AS d, 1.5 AS n, "
        "TIMESTAMPTZ '2020-01-01 00:00:00+00' AS at, ['x', NULL] AS tags, {'a': i, 'b': NULL} AS s, MAP {'k': i} AS m "
        "FROM range(3) r(i)"
    )
    with lake.duckdb.session() as session:
        session.con.execute(f"CREATE TEMP TABLE given AS {rows}")
        assert overwrite_to_match(session, table, "given").inserted == 3
        assert overwrite_to_match(session, table, "given").commit is None
