"""Compaction by our own commits: the rows, their ids, streams and change feeds are as before, whatever else goes on."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.catalog import unity_catalog
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.table_clean import clean
from ratify_lakehouse.engines.duckdb import feed_reading
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.row_order import RowOrder
from ratify_lakehouse.engines.duckdb.table_compaction import CompactedBin, compact
from ratify_lakehouse.errors import UnsafeTable
from ratify_lakehouse.table_layout import Layout
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_table_clean import TableModel, aged, kill, log_of

pytestmark = pytest.mark.stack

ROW_TRACKING = "delta.enableRowTracking"
FEED = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"


def compacted(lake: Lakehouse, table: TableDeclaration, **options: Any) -> list[CompactedBin]:
    with closing(lake.another_duckdb()) as duckdb:
        return compacted_by(duckdb, lake.full(table), **options)


def compacted_by(duckdb: DuckDB, full_name: str, **options: Any) -> list[CompactedBin]:
    with duckdb.session() as session:
        return compact(session, duckdb.catalog, duckdb.log(full_name), full_name, **options)


@dataclass
class CompactionModel:
    """A table against the multiset of its rows, and what may be done to it at random."""

    lake: Lakehouse
    table: TableDeclaration
    chance: random.Random
    rows: Counter[tuple[int, str]] = field(default_factory=Counter[tuple[int, str]])
    optimized: list[int] = field(default_factory=list[int])
    next_id: int = 0
    ids: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    each_step: bool = True
    """Spark looks after each one, and inserts; otherwise it looks once there are rows of all kinds, and in the end."""

    @property
    def tracked(self) -> bool:
        return self.table.properties[ROW_TRACKING] == "true"

    def append(self) -> None:
        """Each row once, in files of their own."""
        count = self.chance.randint(1, 6)
        select = f"SELECT i::BIGINT, 'row ' || i FROM range({self.next_id}, {self.next_id + count}) r(i)"
        append(self.lake.duckdb, self.table, select, f"load-{self.next_id}")
        self._appended(count)

    def append_by_spark(self) -> None:
        count = self.chance.randint(1, 6)
        ids = f"range({self.next_id}, {self.next_id + count})"
        insert = self.lake.run if self.each_step else self.lake.quick
        insert(f"INSERT INTO {self.lake.full(self.table)} SELECT id, 'row ' || id FROM {ids}")
        self._appended(count)

    def delete(self) -> None:
        chosen = self.chance.sample(sorted(self.rows), k=min(2, len(self.rows)))
        if chosen:
            ids = ", ".join(str(id_) for id_, _ in chosen)
            self.lake.run(f"DELETE FROM {self.lake.full(self.table)} WHERE id IN ({ids})")
            self.rows -= Counter(chosen)

    def compact(self) -> None:
        # Such small files are of a few hundred bytes: some make one bin.
        done = compacted(self.lake, self.table, target_bytes=self.chance.choice([2_000, 4_000, 1 << 20]))
        self.optimized += [bin_.version for bin_ in done]

    def killed_before(self) -> None:
        self._killed(after_the_commit=False)

    def killed_after(self) -> None:
        self._killed(after_the_commit=True)

    def _killed(self, after_the_commit: bool) -> None:
        self.append()
        self.append()
        if self.each_step:
            self.check()
        version = self.lake.version(self.table)
        with kill(after_the_commit):
            compacted(self.lake, self.table)
        assert self.lake.version(self.table) == version + after_the_commit
        self.optimized += [version + 1] if after_the_commit else []

    def _appended(self, count: int) -> None:
        self.rows += Counter((id_, f"row {id_}") for id_ in range(self.next_id, self.next_id + count))
        self.next_id += count

    def check(self) -> None:
        """Spark and DuckDB read equal rows, and a row that stays has the id and the version that it had."""
        ids = ", _metadata.row_id, _metadata.row_commit_version" if self.tracked else ""
        read = [tuple(row.values()) for row in self.lake.run(f"SELECT id, v{ids} FROM {self.lake.full(self.table)}")]
        assert Counter((id_, v) for id_, v, *_ in read) == self.rows
        found = {id_: tuple(more) for id_, _, *more in read}
        assert found.items() >= {id_: self.ids[id_] for id_ in found.keys() & self.ids.keys()}.items()
        if self.tracked:
            assert len({row_id for row_id, _ in found.values()}) == len(found)
        self.ids = found
        assert Counter(self.lake.stored(self.table)) == self.rows

    def check_feed(self) -> None:
        """The versions of compactions are in no feed, by Spark and by DuckDB."""
        full_name = self.lake.full(self.table)
        of_spark = self.lake.run(f"SELECT id, _change_type c, _commit_version v FROM table_changes('{full_name}', 0)")
        with self.lake.duckdb.session() as session:
            found = feed_reading.read_changes(session, self.lake.duckdb.log(full_name))
            of_duckdb = found.select("id, _change_type, _commit_version").fetchall()
        assert Counter(of_duckdb) == Counter(tuple(row.values()) for row in of_spark)
        assert not {version for *_, version in of_duckdb} & set(self.optimized)
        counts = Counter(change for _, change, _ in of_duckdb)
        assert counts["insert"] == self.next_id
        assert counts["insert"] - counts["delete"] == self.rows.total()


def compact_at_random(lake: Lakehouse, seed: int, steps: int) -> None:
    tracked = str(seed % 2 == 0).lower()
    properties = {VECTORS: "true", FEED: "true", ROW_TRACKING: tracked, "delta.checkpointInterval": "4"}
    model = CompactionModel(lake, pairs(properties=properties), random.Random(seed), each_step=steps > 0)  # noqa: S311
    lake.create(model.table)
    does = [
        *(model.append, model.append_by_spark, model.append, model.delete, model.compact),
        *(model.compact, model.killed_before, model.killed_after),
    ]
    for does_first in (model.append, model.append_by_spark, model.delete, model.check, model.compact):
        does_first()
    for _ in range(steps):
        model.chance.choice(does)()
        model.check()
    model.killed_before()
    model.killed_after()
    model.append()
    model.compact()
    model.check_feed()
    folder = TableModel(lake, model.table).folder
    log = log_of(lake, model.table)
    live = {file.path for file in log.files(log.refresh())}
    assert len(live) < len(model.optimized) + 3
    model.append()
    aged(folder)
    removed = {file.path for file in clean(lake.catalog, log_of(lake, model.table)) if file.kind == "data file"}
    assert removed, "the killed run left a file"
    model.check()


def test_rows_and_their_ids_stay(lake: Lakehouse) -> None:
    # It has kills before and after a commit, a deletion vector and row ids.
    compact_at_random(lake, 4, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
def test_rows_and_their_ids_stay_at_length(lake: Lakehouse, seed: int) -> None:
    compact_at_random(lake, seed, 25)


def appends_beside(lake: Lakehouse, writers: int, commits: int) -> None:
    table = lake.create(pairs(properties={ROW_TRACKING: "false"}))

    def write(writer: int) -> None:
        with closing(lake.another_duckdb(threads=1)) as duckdb:
            for commit in range(commits):
                first = (writer * commits + commit) * 5
                select = f"SELECT i::BIGINT, 'w{writer}' FROM range({first}, {first + 5}) r(i)"
                append(duckdb, table, select, f"{writer}-{commit}")

    done = list[CompactedBin]()
    with ThreadPoolExecutor(writers) as pool, closing(lake.another_duckdb(threads=1)) as duckdb:
        running = [pool.submit(write, writer) for writer in range(writers)]
        while not all(future.done() for future in running):
            done += compacted_by(duckdb, lake.full(table))
        for future in running:
            future.result()
        done += compacted_by(duckdb, lake.full(table))
    wanted = [(id_, f"w{id_ // (5 * commits)}") for id_ in range(5 * commits * writers)]
    assert lake.stored(table) == wanted
    assert done
    log = log_of(lake, table)
    assert len(log.files(log.refresh())) == 1


def test_appending_writers_lose_nothing(lake: Lakehouse) -> None:
    appends_beside(lake, 4, 5)


@pytest.mark.long
def test_appending_writers_lose_nothing_at_length(lake: Lakehouse) -> None:
    appends_beside(lake, 4, 60)


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    """Append-only, without row tracking, with three files of one row each."""
    made = lake.create(pairs(properties={ROW_TRACKING: "false", "delta.appendOnly": "true"}))
    for id_ in (3, 1, 2):
        append(lake.duckdb, made, f"SELECT {id_}::BIGINT, 'a'", f"load {id_}")
    return made


def test_a_stream_sees_no_change_and_the_history_says_what_was_done(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path
) -> None:
    """An append-only table may be compacted, because no row changes."""
    target = lake.create(pairs(properties={ROW_TRACKING: "false"}))

    def stream() -> None:
        reader = lake.spark.session.readStream.table(lake.full(table))
        writer = reader.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.toTable(lake.full(target))
        assert query.awaitTermination(60)

    stream()
    (done,) = compacted(lake, table, order=RowOrder(("ID",)))
    append(lake.duckdb, table, "SELECT 4::BIGINT, 'b'", "load 4")
    stream()
    assert lake.rows(target) == [(1, "a"), (2, "a"), (3, "a"), (4, "b")]

    commits = lake.run(f"DESCRIBE HISTORY {lake.full(table)} LIMIT 2")
    (commit,) = [row for row in commits if row["version"] == done.version]
    assert (commit["operation"], commit["isBlindAppend"]) == ("OPTIMIZE", False)
    metrics = commit["operationMetrics"]
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("3", "1")
    assert metrics["numAddedBytes"] == metrics["maxFileSize"] == str(done.new_bytes)
    assert commit["operationParameters"] == {
        "predicate": "[]", "auto": "false", "clusterBy": "[]", "zOrderBy": "[]", "sortBy": "id",
    }  # fmt: skip
    (added,) = [action["add"] for action in lake.commit(table, done.version) if "add" in action]
    removed = [action["remove"] for action in lake.commit(table, done.version) if "remove" in action]
    assert not any(action["dataChange"] for action in (added, *removed))
    assert '"minValues":{"id":1,"v":"a"},"maxValues":{"id":3,"v":"a"}' in added["stats"]
    with lake.duckdb.session() as session:
        location = TableModel(lake, table).folder
        assert session.con.execute(f"SELECT id FROM '{location / added['path']}'").fetchall() == [(1,), (2,), (3,)]


def test_a_z_order_is_in_the_history_as_delta_has_it(lake: Lakehouse, table: TableDeclaration) -> None:
    (done,) = compacted(lake, table, order=RowOrder(("ID", "v"), z_order=True))
    (commit,) = lake.run(f"DESCRIBE HISTORY {lake.full(table)} LIMIT 1")
    assert (commit["version"], commit["operationParameters"]["zOrderBy"]) == (done.version, '["id", "v"]')


def test_partitions_stay(lake: Lakehouse) -> None:
    columns = (Column("id", "bigint"), Column("v", "string"), Column("at", "timestamp"))
    properties = {VECTORS: "true", ROW_TRACKING: "true"}
    table = lake.create(pairs(Engine.SPARK, columns=columns, properties=properties, layout=Layout(("v",))))
    full_name = lake.full(table)
    # Two tasks write two files of each partition.
    lake.run(
        f"INSERT INTO {full_name} SELECT id, CASE id % 3 WHEN 0 THEN 'a b/ü=%' WHEN 1 THEN NULL ELSE 'c' END, "
        "TIMESTAMP'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, id) FROM range(0, 109, 1, 2) "
        "WHERE id NOT BETWEEN 9 AND 99"
    )
    lake.run(f"DELETE FROM {full_name} WHERE id IN (0, 100)")
    select = f"SELECT id, v, at, _metadata.row_id r, '' AS kind FROM {full_name}"
    before = lake.run(f"{select} ORDER BY id")
    done = compacted(lake, table)
    assert len(done) == 3
    chosen = select.replace("''", "'one'")
    found = lake.run(f"{select} UNION ALL {chosen} WHERE v = 'a b/ü=%' ORDER BY kind, id")
    assert found[: len(before)] == before
    assert [row["id"] for row in found[len(before) :]] == [3, 6, 102, 105, 108]
    with lake.another_duckdb().session() as session:
        found = session.rows(f"SELECT id, v FROM uc.bronze.{table.name} ORDER BY id")
    assert found == [(row["id"], row["v"]) for row in before]
    assert sum(bin_.deleted_rows for bin_ in done) == 2
    assert compacted(lake, table) == [], "nothing is left to do"


def test_a_bin_that_another_writer_takes_is_planned_again(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the rewriting and the commit Spark deletes a row of the bin, and DuckDB appends one."""
    table = lake.create(pairs(properties={ROW_TRACKING: "false", VECTORS: "true"}))
    append(lake.duckdb, table, "SELECT i, 'a' FROM range(100) t(i)", "one")
    append(lake.duckdb, table, "SELECT i, 'a' FROM range(100, 200) t(i)", "two")
    commits = list[str]()
    original = DeltaLog.commit

    def commit(log: DeltaLog, plan: Any, **options: Any) -> Any:
        if not commits:
            commits.append("others")
            lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 7")
            append(lake.another_duckdb(), table, "SELECT 200::BIGINT, 'a'", "three")
        return original(log, plan, **options)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    (done,) = compacted(lake, table)
    assert (done.files, done.deleted_rows) == (3, 1)
    assert lake.stored(table) == [(id_, "a") for id_ in range(201) if id_ != 7]
    log = log_of(lake, table)
    stored = {name for name in log.storage.names("") if name.startswith("duckdb-")}
    assert len(stored) == 4, "the file of the first plan is gone"


def test_where_it_is_refused(lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch) -> None:
    version = lake.version(table)
    with pytest.raises(UnsafeTable, match="has no column x to sort by: use id, v"):
        compacted(lake, table, order=RowOrder(("x",)))
    mapped = f"ratify.bronze.{pairs().name}"
    lake.run(f"CREATE TABLE {mapped} (id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    with pytest.raises(UnsafeTable, match=r"compact is not allowed.*has column mapping"):
        compacted_by(lake.another_duckdb(), mapped)
    lost = log_of(lake, table)
    (file, *_) = lost.files(lost.refresh())
    content = lost.storage.read(file.path)
    lost.storage.remove(file.path)
    with pytest.raises(UnsafeTable, match="not in its storage: run `ratify repair` first"):
        compacted(lake, table)
    lost.storage.write(file.path, content)
    monkeypatch.setattr(unity_catalog, "_MAINTENANCE", "GET /v1/what/another/server/does/not/list")
    with pytest.raises(UnsafeTable, match=r"does not say that it permits this.*streams that read the table stop"):
        compacted(lake, table)
    assert lake.version(table) == version
