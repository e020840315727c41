"""Rows of a file that was landed again: out and in by one version, beside other writers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ratify_lakehouse.declarations import Column, TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.row_replacement import Replaced, replace_rows
from ratify_lakehouse.errors import AlreadyLoaded, CommitConflict, UnsafeTable
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

COLUMNS = (Column("id", "bigint"), Column("seen", "timestamp"), Column("f", "string"))
Rows = list[tuple[int, str]]


def new_table(lake: Lakehouse, **properties: str) -> TableDeclaration:
    return lake.create(
        pairs(columns=COLUMNS, properties={key.replace("_", "."): value for key, value in properties.items()})
    )


def select(file: str, *ids: int) -> str:
    return " UNION ALL ".join(f"SELECT {id_}::BIGINT, TIMESTAMPTZ '2013-01-01 05:00:00Z', '{file}'" for id_ in ids)


def replaced(
    lake: Lakehouse, table: TableDeclaration, file: str, old: str, new: str, *ids: int, duckdb: DuckDB | None = None
) -> Replaced:
    engine = duckdb or lake.duckdb
    rows = select(file, *ids) if ids else f"{select(file, 0)} LIMIT 0"
    with engine.session() as session, TemporaryDirectory() as folder:
        staged = session.stage(table, rows, [new], Path(folder))
        log = engine.log(lake.full(table))
        return replace_rows(session.con, log, staged, "f", file, withdrawn=[old], reloaded=[f"path:{file}"])


def rows(lake: Lakehouse, table: TableDeclaration, *, by_spark: bool = False) -> Rows:
    """As DuckDB reads them, and Spark too where that is asked for."""
    read = lake.read(f"SELECT id, f FROM uc.bronze.{table.name} WHERE seen = '2013-01-01 05:00:00Z' ORDER BY ALL")
    if by_spark:
        sql = f"SELECT id, f FROM {lake.full(table)} WHERE seen = '2013-01-01 05:00:00Z' ORDER BY id, f"
        assert read == [tuple(row.values()) for row in lake.run(sql)]
    return read


def on_disk(lake: Lakehouse, table: TableDeclaration) -> set[str]:
    return {name for name in lake.duckdb.log(lake.full(table)).storage.names("") if name.endswith(".parquet")}


def test_the_rows_of_one_file_are_replaced_wherever_they_are(lake: Lakehouse) -> None:
    table = new_table(lake)
    both = f"{select('a', 1, 2)} UNION ALL {select('b', 3)}"
    append(lake.duckdb, table, both, "content:1", "path:a", "content:b", "path:b")
    append(lake.duckdb, table, select("c", 4), "content:c")
    lake.insert(table, "VALUES (5, TIMESTAMPTZ '2013-01-01 05:00:00Z', NULL)")
    made = replaced(lake, table, "a", "content:1", "content:2", 11, 12, 13)
    # The first attempt was made on what this log knew last, before Spark's commit.
    assert made == Replaced(4, rows=3, removed=2, attempts=2)
    wanted = [(3, "b"), (4, "c"), (5, None), (11, "a"), (12, "a"), (13, "a")]
    assert sorted(rows(lake, table, by_spark=True), key=lambda row: row[0]) == wanted
    actions = lake.commit(table, 4)
    assert {a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a} == {
        "content:1": 2,
        "content:2": 1,
        "path:a": 3,
    }
    assert len([a for a in actions if "remove" in a]) == 1
    (commit,) = lake.spark.history(lake.full(table), 1)
    assert (commit.operation, commit.rows_added, commit.metrics["numDeletedRows"]) == ("WRITE", 3, 2)

    # The new content is there, and the old one may come back, in its turn.
    with pytest.raises(AlreadyLoaded):
        replaced(lake, table, "a", "content:1", "content:2", 99)
    assert replaced(lake, table, "a", "content:2", "content:1", 1, 2).removed == 3
    assert [id_ for id_, file in rows(lake, table) if file == "a"] == [1, 2]
    # A file that holds nothing else goes as it is; without new rows only those of others are left.
    assert replaced(lake, table, "c", "content:c", "content:none").removed == 1
    assert [id_ for id_, _ in rows(lake, table, by_spark=True)] == [1, 2, 3, 5]


def test_two_replacements_of_one_file_are_not_mixed(lake: Lakehouse) -> None:
    table = new_table(lake)
    append(lake.duckdb, table, f"{select('a', 1)} UNION ALL {select('b', 2)}", "content:0", "path:a")

    def replace(number: int) -> str:
        duckdb = lake.another_duckdb(threads=1)
        try:
            replaced(lake, table, "a", "content:0", f"content:{number}", number, duckdb=duckdb)
        except CommitConflict as error:
            return str(error)
        finally:
            duckdb.close()
        return "won"

    with ThreadPoolExecutor(3) as pool:
        ends = dict(zip((10, 20, 30), pool.map(replace, (10, 20, 30)), strict=True))
    (won,) = [number for number, end in ends.items() if end == "won"]
    assert sum("content:0, whose rows were to be replaced" in end for end in ends.values()) == 2
    assert rows(lake, table) == [(2, "b"), (won, "a")]
    # The losers' files are removed; those of the first version stay, for its readers.
    assert len(on_disk(lake, table)) == 3


def test_appends_beside_it_lose_and_double_nothing(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(lake)
    append(lake.duckdb, table, f"{select('a', 1)} UNION ALL {select('b', 2)}", "content:1", "path:a")
    propose, replacing = DeltaLog._propose, lake.another_duckdb()
    late = replacing.log(lake.full(table))
    others = iter((3, 4))

    def after_an_append(log: DeltaLog, *arguments: object) -> object:
        if log is late and (id_ := next(others, None)):
            # Of the same file, in a file of its own: only by another plan do these rows go too.
            append(lake.another_duckdb(), table, f"{select('a', id_)} UNION ALL {select('b', id_ * 10)}", f"{id_}")
        return propose(log, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "_propose", after_an_append)
    made = replaced(lake, table, "a", "content:1", "content:2", 11, duckdb=replacing)
    assert made == Replaced(4, rows=1, removed=3, attempts=3)
    assert rows(lake, table) == [(2, "b"), (11, "a"), (30, "b"), (40, "b")]


@pytest.mark.parametrize(
    ("property_", "message"), [("delta_appendOnly", "append-only"), ("delta_enableChangeDataFeed", "change data feed")]
)
def test_where_rows_may_not_be_removed(lake: Lakehouse, property_: str, message: str) -> None:
    table = new_table(lake, **{property_: "true"})
    append(lake.duckdb, table, f"{select('a', 1)} UNION ALL {select('b', 2)}", "content:1", "path:a")
    before = on_disk(lake, table)
    with pytest.raises(UnsafeTable, match=message):
        replaced(lake, table, "a", "content:1", "content:2", 11)
    assert (lake.version(table), on_disk(lake, table)) == (1, before)


def test_deleted_rows_in_the_same_file(lake: Lakehouse) -> None:
    table = new_table(lake)
    append(lake.duckdb, table, select("a", 1, 2), "content:1", "path:a")
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 2")
    with pytest.raises(UnsafeTable, match="has deleted rows in"):
        replaced(lake, table, "a", "content:1", "content:2", 11)
    assert rows(lake, table) == [(1, "a")]
