"""The change data feed as DuckDB reads it: equal to Spark's, whatever was done to the table."""

import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.deletion_vectors import decode_z85, deleted_rows
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.engines.duckdb import feed_reading
from ratify_lakehouse.engines.spark import change_feed
from ratify_lakehouse.errors import ChangesNotRecorded, LogUnreadable, UnsafeTable
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

FEED = "delta.enableChangeDataFeed"
WHOLE_FILES = [f"spark.databricks.delta.{kind}.deletionVectors.persistent" for kind in ("delete", "update", "merge")]
DELTA = ("_commit_version", "_commit_timestamp", "_change_type")


def spark_pass(lake: Lakehouse, table: TableDeclaration, *versions: int) -> Counter[str]:
    found = change_feed.read_changes(lake.spark, lake.full(table), *versions)
    frame = found.selectExpr(
        *(f"`{name}`" for name in found.columns if name != DELTA[1]), "unix_micros(_commit_timestamp) t"
    )
    return Counter(str(sorted(row.items())) for row in lake.spark.rows(frame))


def duckdb_pass(lake: Lakehouse, table: TableDeclaration, *versions: int) -> Counter[str]:
    with lake.duckdb.session() as session:
        found = feed_reading.read_changes(session, lake.duckdb.log(lake.full(table)), *versions)
        rows = found.select("* EXCLUDE (_commit_timestamp), epoch_us(_commit_timestamp) AS t")
        return Counter(str(sorted(zip(rows.columns, row, strict=True))) for row in rows.fetchall())


@dataclass
class RandomChanges:
    """What may be done to a table of `id`, `v` and `day`, by Spark and by DuckDB."""

    lake: Lakehouse
    table: TableDeclaration
    seed: int
    partitioned: bool
    done: list[str] = field(default_factory=list[str])
    restorable: int = 1

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311
        self.name = self.lake.full(self.table)

    def rows(self, most: int = 12) -> str:
        days = ["NULL", "DATE'2026-01-01'", "DATE'2026-01-02'"]
        each = (
            f"({self.random.randrange(40)}, {self.random.choice(['NULL', repr(self.random.choice('abc'))])}, "
            f"{self.random.choice(days)})"
            for _ in range(self.random.randint(1, most))
        )
        return f"(SELECT * FROM (VALUES {', '.join(each)}) AS t(id, v, day))"

    def condition(self) -> str:
        return self.random.choice(
            [f"id % {self.random.randint(2, 5)} = 0", f"v = '{self.random.choice('abc')}'", "day = DATE'2026-01-01'"]
        )

    def step(self) -> None:
        insert = lambda: f"INSERT INTO {self.name} (id, v, day) SELECT * FROM {self.rows(30)}"  # noqa: E731
        statements: list[tuple[int, Callable[[], str]]] = [
            (3, insert),
            (3, lambda: f"UPDATE {self.name} SET v = '{self.random.choice('abc')}' WHERE {self.condition()}"),
            (4, lambda: f"DELETE FROM {self.name} WHERE {self.condition()}"),
            (
                3,
                lambda: (
                    f"MERGE INTO {self.name} t USING (SELECT id, max(v) v, max(day) day FROM {self.rows()} GROUP BY id) s "
                    "ON t.id = s.id WHEN MATCHED AND s.v = 'a' THEN DELETE "
                    "WHEN MATCHED THEN UPDATE SET v = s.v, day = s.day "
                    "WHEN NOT MATCHED THEN INSERT (id, v, day) VALUES (s.id, s.v, s.day)"
                ),
            ),
            (1, lambda: f"DELETE FROM {self.name}"),
            (1, lambda: f"INSERT OVERWRITE {self.name} (id, v, day) SELECT * FROM {self.rows(30)}"),
            (2, lambda: f"RESTORE {self.name} TO VERSION AS OF {self.random.randint(1, self.lake.version(self.table))}"),
        ]
        if not self.partitioned:
            statements.append((3, lambda: ""))
        weights, makers = zip(*statements, strict=True)
        (maker,) = self.random.choices(makers, weights)
        if statement := maker():
            self.done.append(statement)
            self.lake.run(statement)
        else:
            load = f"load {len(self.done)}"
            self.done.append(load)
            more = self.random.randint(1, 20)
            append(self.lake.duckdb, self.table, f"SELECT i + 20, 'b', DATE '2026-01-02' FROM range({more}) t(i)", load)


def compare(lake: Lakehouse, seed: int, steps: int, *, partitioned: bool, vectors: bool) -> RandomChanges:
    columns = pairs().columns
    layout = Layout(partition_by=("day",)) if partitioned else NO_LAYOUT
    properties = {FEED: "true", "delta.enableDeletionVectors": "true"}
    table = pairs(Engine.SPARK, columns=(*columns, Column("day", "date")), layout=layout, properties=properties)
    changes = RandomChanges(lake, table, seed, partitioned)
    lake.create(table, changes.rows(30))
    # The catalog requires vectors of its tables; a writer may still write whole files.
    for setting in WHOLE_FILES:
        lake.run(f"SET {setting} = {str(vectors).lower()}")
    try:
        for _ in range(steps):
            changes.step()
    finally:
        for setting in WHOLE_FILES:
            lake.run(f"RESET {setting}")
    if not vectors:
        actions = [action for version in range(1, lake.version(table) + 1) for action in lake.commit(table, version)]
        assert not [add for action in actions if (add := action.get("add")) and add.get("deletionVector")]
    if not partitioned:
        lake.run(f"ALTER TABLE {lake.full(table)} ADD COLUMNS (later INT)")
        lake.run(f"INSERT INTO {lake.full(table)} VALUES (1, 'x', NULL, 5)")
    assert duckdb_pass(lake, table) == spark_pass(lake, table), (seed, changes.done)
    return changes


@pytest.mark.parametrize(
    ("seed", "partitioned", "vectors"), [pytest.param(1, False, True, marks=pytest.mark.long), (2, True, True)]
)
def test_both_engines_read_the_same_changes(lake: Lakehouse, seed: int, partitioned: bool, vectors: bool) -> None:
    changes = compare(lake, seed, 5, partitioned=partitioned, vectors=vectors)
    last = lake.version(changes.table)
    assert duckdb_pass(lake, changes.table, 2, last - 1) == spark_pass(lake, changes.table, 2, last - 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_both_engines_read_the_same_changes_of_many_tables(lake: Lakehouse, seed: int) -> None:
    compare(lake, seed, 15, partitioned=seed % 3 == 0, vectors=seed % 4 != 3)


@pytest.fixture
def with_vector(lake: Lakehouse) -> tuple[TableDeclaration, dict[str, Any], TableStorage]:
    """A table with two hundred thousand rows, and the `add` of its file with a deletion vector."""
    table = lake.create(pairs(properties={FEED: "true", "delta.enableDeletionVectors": "true"}))
    append(lake.duckdb, table, "SELECT i, 'a' FROM range(200_000) t(i)", "one")
    # In the first 65,536 rows a bitmap, in the next runs, in the last an array.
    lake.run(
        f"DELETE FROM {lake.full(table)} WHERE (id < 65536 AND id % 2 = 0) OR id BETWEEN 70000 AND 100000 OR id = 150000"
    )
    (add,) = (action["add"] for action in lake.commit(table, 2) if "add" in action)
    location = Path(unquote(urlsplit(lake.catalog.table(lake.full(table)).storage_location or "").path))
    return table, add, TableStorage(str(location), list)


def test_the_rows_that_a_deletion_vector_deletes(
    lake: Lakehouse, with_vector: tuple[TableDeclaration, dict[str, Any], TableStorage]
) -> None:
    table, add, storage = with_vector
    assert list(deleted_rows(storage, add)) == [*range(0, 65536, 2), *range(70000, 100001), 150000]
    # The commit has no change files: the vector alone says which rows it deleted.
    assert not [action for action in lake.commit(table, 2) if "cdc" in action]
    with lake.duckdb.session() as session:
        found = feed_reading.read_changes(session, lake.duckdb.log(lake.full(table)), 2, 2)
        counted = found.aggregate("_change_type, count(*), sum(id)").fetchall()
    deleted = [*range(0, 65536, 2), *range(70000, 100001), 150000]
    assert counted == [("delete", len(deleted), sum(deleted))]
    a_damaged_vector_is_an_error(add, storage)


def a_damaged_vector_is_an_error(add: dict[str, Any], storage: TableStorage) -> None:
    vector = add["deletionVector"]
    with pytest.raises(LogUnreadable, match="has 62770 rows, and the log says 7"):
        deleted_rows(storage, {**add, "deletionVector": {**vector, "cardinality": 7}})
    with pytest.raises(LogUnreadable, match="outside of the table's folder"):
        deleted_rows(storage, {**add, "deletionVector": {**vector, "storageType": "p"}})
    folder = storage.local
    assert folder is not None
    (file,) = folder.glob("deletion_vector_*.bin")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(LogUnreadable, match="does not have the size or the checksum"):
        deleted_rows(storage, add)


def test_what_duckdb_cannot_read(lake: Lakehouse) -> None:
    table = lake.create(pairs(properties={FEED: "true"}))
    for version in range(1, 4):
        append(lake.duckdb, table, f"SELECT {version}, 'a'", f"load {version}")
    with lake.duckdb.session() as session:
        log = lake.duckdb.log(lake.full(table))
        with pytest.raises(ChangesNotRecorded, match="version 9 has no changes yet"):
            feed_reading.read_changes(session, log, 0, 9)
        (add,) = (action["add"] for action in lake.commit(table, 2) if "add" in action)
        log.storage.remove(add["path"])
        with pytest.raises(ChangesNotRecorded, match=r"changes of version 2 .* were removed since .* from version 3 on"):
            feed_reading.read_changes(session, log)
        assert feed_reading.read_changes(session, log, 3).fetchall()[0][:3] == (3, "a", "insert")
        lake.run(f"ALTER TABLE {lake.full(table)} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        with pytest.raises(UnsafeTable, match="has column mapping"):
            feed_reading.read_changes(session, log)


def test_z85_of_its_specification() -> None:
    assert decode_z85("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
    assert zlib.crc32(b"123456789") == 0xCBF43926, "the checksum that deletion vectors have"
