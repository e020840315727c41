"""Another layout by one commit: the rows, their ids, streams and change feeds are as before, whatever else goes on."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.layout_change import layout_of
from ratify_lakehouse.delta.table_clean import clean
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.duckdb import layout_migration
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.engines.duckdb.layout_migration import Migrated, migrate
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.engines.spark.table_stream import Division, TableStream, division_since
from ratify_lakehouse.errors import CommitConflict, UnsafeTable
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_table_clean import TableModel, aged, kill, log_of
from tests.engines.test_table_compaction import FEED, ROW_TRACKING, VECTORS, compacted

pytestmark = pytest.mark.stack

COLUMNS = (
    *(Column("id", "bigint"), Column("day", "date"), Column("shop", "string"), Column("v", "decimal(9,2)")),
    *(Column("open", "boolean"), Column("n", "smallint")),
)
NAMES = ", ".join(column.name for column in COLUMNS)
DAYS = ("NULL", "DATE '2013-01-01'", "DATE '0999-12-31'")
SHOPS = ("NULL", "'a'", "'é/=%20 x'")
LAYOUTS = (
    NO_LAYOUT,
    Layout(("day",)),
    Layout(("SHOP", "open", "n")),
    Layout(cluster_by=("id",)),
    Layout(cluster_by=("day", "shop", "v")),
)
Row = tuple[Any, ...]


def orders(**more: Any) -> TableDeclaration:
    return pairs(Engine.SPARK, columns=COLUMNS, **more)


def migrated(lake: Lakehouse, table: TableDeclaration, layout: Layout, **options: Any) -> Migrated | None:
    with closing(lake.another_duckdb()) as duckdb, duckdb.session() as session:
        full_name = lake.full(table)
        return migrate(session, duckdb.catalog, duckdb.log(full_name), full_name, layout, **options)


def selected(ids: Sequence[int]) -> str:
    """The query of rows, alike in both engines."""
    rows = (
        f"SELECT CAST({id_} AS BIGINT) AS id, CAST({DAYS[id_ % 3]} AS DATE) AS day, "
        f"CAST({SHOPS[id_ // 3 % 3]} AS VARCHAR(99)) AS shop, CAST({id_}.5 AS DECIMAL(9,2)) AS v, "
        f"CAST({('NULL', 'true', 'false')[id_ // 2 % 3]} AS BOOLEAN) AS open, CAST({id_ % 2 - 1} AS SMALLINT) AS n"
        for id_ in ids
    )
    return " UNION ALL ".join(rows).replace("VARCHAR(99)", "STRING")


def layout_in_spark(lake: Lakehouse, table: TableDeclaration) -> Layout:
    (detail,) = lake.run(f"DESCRIBE DETAIL {lake.full(table)}")
    return Layout(tuple(detail["partitionColumns"]), tuple(detail["clusteringColumns"]))


def named(layout: Layout) -> Layout:
    """With the names that the table has."""
    return Layout(tuple(name.lower() for name in layout.partition_by), layout.cluster_by)


@dataclass
class LayoutModel:
    """A table against its rows, and what may be done to it at random."""

    lake: Lakehouse
    table: TableDeclaration
    chance: random.Random
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    layout: Layout = NO_LAYOUT
    moved: list[int] = field(default_factory=list[int])
    next_id: int = 0
    ids: dict[int, Row] = field(default_factory=dict[int, Row])
    each_step: bool = True
    """Spark looks after each one, and inserts; otherwise it looks once there are rows, and in the end."""

    @property
    def name(self) -> str:
        return self.lake.full(self.table)

    def append(self) -> None:
        ids = self._next()
        if self.each_step or self.layout.partition_by:
            self.lake.run(f"INSERT INTO {self.name} {selected(ids)}")
        else:
            self.lake.insert(self.table, selected(ids))
        self._appended(ids)

    def append_by_duckdb(self) -> None:
        """Not into partitions."""
        ids, writer = self._next(), self.lake.duckdb
        if self.layout.partition_by:
            with pytest.raises(UnsafeTable, match="is partitioned"):
                append(writer, self.table, selected(ids), f"load-{ids[0]}")
            return
        append(writer, self.table, selected(ids), f"load-{ids[0]}")
        self._appended(ids)

    def delete(self) -> None:
        chosen = self.chance.sample(sorted(self.rows), k=min(2, len(self.rows)))
        if chosen:
            self.lake.run(f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, chosen))})")
            self.rows = {id_: row for id_, row in self.rows.items() if id_ not in chosen}
            self.ids = {id_: more for id_, more in self.ids.items() if id_ not in chosen}

    def migrate(self) -> None:
        layout = self.chance.choice(LAYOUTS)
        done = migrated(self.lake, self.table, layout, target_bytes=self.chance.choice([1_000, 1 << 20]))
        assert (done is None) == (named(layout) == self.layout)
        self.moved += [done.version] if done else []
        self.layout = named(layout)

    def compact(self) -> None:
        self.moved += [done.version for done in compacted(self.lake, self.table, target_bytes=4_000)]

    def killed(self) -> None:
        after = self.chance.random() < 0.5
        layout = self.chance.choice([each for each in LAYOUTS if named(each) != self.layout])
        version = self.lake.version(self.table)
        with kill(after):
            migrated(self.lake, self.table, layout)
        assert self.lake.version(self.table) == version + after
        if after:
            self.moved.append(version + 1)
            self.layout = named(layout)

    def restore(self) -> None:
        """The way back that every engine knows, which is a change of rows."""
        done = self.lake.version(self.table)
        if not self.moved or self.moved[-1] != done:
            return
        self.lake.run(f"RESTORE TABLE {self.name} TO VERSION AS OF {done - 1}")
        self.layout = layout_in_spark(self.lake, self.table)
        self.ids.clear()

    def check(self, *, by_spark: bool = True) -> None:
        """Spark and DuckDB read the rows, each with the id that it had; Spark, the log and the catalog have one layout."""
        if by_spark:
            self._check_by_spark()
        with self.lake.another_duckdb().session() as session:
            of_duckdb = session.rows(f"SELECT {NAMES} FROM uc.bronze.{self.table.name}")
        assert {row[0]: row for row in of_duckdb} == self.rows
        log = log_of(self.lake, self.table)
        assert layout_of(log.refresh()) == self.layout
        assert all(set(file.add["partitionValues"]) == set(self.layout.partition_by) for file in log.files(log.refresh()))

    def _check_by_spark(self) -> None:
        tracked = self.table.properties[ROW_TRACKING] == "true"
        ids = ", _metadata.row_id, _metadata.row_commit_version" if tracked else ""
        read = [tuple(row.values()) for row in self.lake.run(f"SELECT {NAMES}{ids} FROM {self.name}")]
        assert sorted(row[0] for row in read) == sorted(self.rows)
        assert {row[0]: row[: len(COLUMNS)] for row in read} == self.rows
        found = {row[0]: row[len(COLUMNS) :] for row in read}
        assert found.items() >= self.ids.items()
        if tracked:
            assert len({row_id for row_id, _ in found.values()}) == len(found)
        self.ids = found
        assert layout_in_spark(self.lake, self.table) == self.layout

    def check_feed(self) -> None:
        found = self.lake.run(f"SELECT id, _change_type c, _commit_version v FROM table_changes('{self.name}', 0)")
        assert not {row["v"] for row in found} & set(self.moved)

    def _next(self) -> list[int]:
        self.next_id += 5
        return list(range(self.next_id - self.chance.randint(1, 5), self.next_id))

    def _appended(self, ids: Sequence[int]) -> None:
        with self.lake.duckdb.session() as session:
            self.rows |= {row[0]: row for row in session.rows(selected(ids))}


def migrate_at_random(lake: Lakehouse, seed: int, steps: int, *, each_step: bool) -> None:
    tracked = str(seed % 2 == 0).lower()
    properties = {VECTORS: "true", FEED: "true", ROW_TRACKING: tracked, "delta.checkpointInterval": "4"}
    # It is then given others.
    layout = named(LAYOUTS[seed % len(LAYOUTS)])
    table = lake.create(orders(properties=properties, layout=layout))
    model = LayoutModel(lake, table, random.Random(seed), layout=layout, each_step=each_step)  # noqa: S311
    model.check(by_spark=each_step)
    does = [
        *(model.append, model.append_by_duckdb, model.delete, model.migrate, model.migrate),
        *(model.killed, model.compact, model.restore),
    ]
    for step in (model.append, model.append_by_duckdb, model.delete, model.migrate):
        step()
        model.check(by_spark=each_step or step == model.append_by_duckdb)
    for _ in range(steps):
        model.chance.choice(does)()
        model.check(by_spark=each_step)
    model.check_feed()
    aged(TableModel(lake, model.table).folder)
    clean(lake.catalog, log_of(lake, model.table))
    model.check()


def test_rows_and_their_ids_stay(lake: Lakehouse) -> None:
    migrate_at_random(lake, 4, 2, each_step=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
def test_rows_and_their_ids_stay_at_length(lake: Lakehouse, seed: int) -> None:
    migrate_at_random(lake, seed, 25, each_step=True)


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    """With three files of three rows each."""
    made = lake.create(orders(properties={ROW_TRACKING: "false", VECTORS: "true"}))
    for first in (0, 3, 6):
        append(lake.duckdb, made, selected(range(first, first + 3)), f"load {first}")
    return made


def test_a_stream_goes_on_over_it_if_it_had_read_all_rows_before(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path
) -> None:
    """Of the others it would read NULL in the columns that are partitions now."""
    target, checkpoint = lake.create(orders(properties={ROW_TRACKING: "false"})), str(tmp_path / "checkpoint")

    def division() -> Division:
        return division_since(TableLog.read(lake.catalog, lake.full(table)), stream_checkpoints.position(checkpoint))

    def stream(number: int) -> Division:
        """Go on over a division if all rows before it were read."""
        found = division()
        with lake.spark.isolated_session() as session:
            reader = TableStream().read(session, lake.full(table), over_division=found is Division.READ)
            writer = reader.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
            assert writer.toTable(lake.full(target)).awaitTermination(60)
        assert lake.stored(target) == lake.stored(table)[:number]
        return found

    assert stream(9) is Division.NONE
    for id_, layout in enumerate((Layout(("day",)), Layout(cluster_by=("id", "shop"))), start=9):
        assert migrated(lake, table, layout)
        lake.insert(replace(table, layout=layout), selected([id_]))
        assert stream(id_ + 1) is Division.READ
    assert migrated(lake, table, NO_LAYOUT)
    assert division() is Division.NONE
    lake.insert(table, selected([11]))
    parameters = [row["operationParameters"] for row in lake.run(f"DESCRIBE HISTORY {lake.full(table)} LIMIT 2")]
    said = parameters[1]["layout"], parameters[1]["before"]
    assert said == ("neither partitioned nor clustered", "clustered by id, shop")
    assert migrated(lake, table, Layout(("day",)))
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED"):
        stream(12)
    assert lake.stored(target) == lake.stored(table)[:11]


def test_what_others_commit_meanwhile_is_there_once(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended rows get the new layout, and files that lose rows are written again."""
    write, others = layout_migration._Migration._write, iter("ad")  # pyright: ignore[reportPrivateUsage]

    def beside_others(self: Any, *given: Any) -> Any:
        written = write(self, *given)
        if (what := next(others, "")) == "a":
            append(lake.duckdb, table, selected([9, 10]), "beside")
        elif what == "d":
            lake.run(f"DELETE FROM {lake.full(table)} WHERE id IN (1, 10)")
        return written

    monkeypatch.setattr(layout_migration._Migration, "_write", beside_others)  # pyright: ignore[reportPrivateUsage]
    done = migrated(lake, table, Layout(("day",)))
    assert done is not None
    assert done.attempts == 3
    assert [row[0] for row in lake.stored(table)] == [0, *range(2, 10)]
    log = log_of(lake, table)
    live = {file.path for file in log.files(log.refresh())}
    assert {path.name for path in TableModel(lake, table).folder.glob("duckdb-*.parquet")} >= live
    assert len(live) == done.new_files
    # What was written for attempts that lost is gone.
    assert len(list(TableModel(lake, table).folder.glob("*.parquet"))) == 4 + done.new_files


def test_a_spark_merge_goes_on(lake: Lakehouse, table: TableDeclaration) -> None:
    """Its snapshot of the table may be one of before."""
    assert migrated(lake, table, Layout(cluster_by=("id",)))
    merge = (
        f"MERGE INTO {lake.full(table)} t USING ({selected([2, 9])}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED THEN INSERT *"
    )
    assert migrated(lake, table, Layout(("shop",)))
    lake.run(merge)
    assert [row[0] for row in lake.rows(table)] == list(range(10))


def refused(lake: Lakehouse, table: TableDeclaration, layout: Layout, message: str) -> None:
    version, folder = lake.version(table), TableModel(lake, table).folder
    before = sorted(folder.rglob("*.parquet"))
    with pytest.raises(UnsafeTable, match=message):
        migrated(lake, table, layout)
    assert (lake.version(table), sorted(folder.rglob("*.parquet"))) == (version, before)


def test_what_it_refuses_leaves_the_table_as_it_is(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(lake, table, Layout(("nope",)), "'nope' is not a column")
    refused(lake, table, Layout(("v",)), r"'v' is decimal\(9,2\); partition by")
    monkeypatch.setattr(layout_migration, "_MOST_PARTITIONS", 2)
    refused(lake, table, Layout(("day",)), "would have 3 partitions by day")
    append(lake.duckdb, table, "SELECT 9, NULL, '', 1, NULL, 1", "load 9")
    refused(lake, table, Layout(("shop",)), "would have 4 partitions")
    monkeypatch.setattr(layout_migration, "_MOST_PARTITIONS", 9)
    refused(lake, table, Layout(("shop",)), "has in shop an empty text, which is NULL in a partition column")
    monkeypatch.setattr(lake.catalog.__class__, "permitted_maintenance", lambda *_: frozenset[str]())
    refused(lake, table, Layout(cluster_by=("id",)), "CREATE OR REPLACE TABLE")


def test_a_race_that_is_lost_each_time_is_a_conflict(
    lake: Lakehouse, table: TableDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = layout_migration._Migration._write  # pyright: ignore[reportPrivateUsage]
    ids = iter(range(100, 200))

    def beside_another(self: Any, *given: Any) -> Any:
        written = write(self, *given)
        append(lake.duckdb, table, selected([next(ids)]), f"beside {next(ids)}")
        return written

    monkeypatch.setattr(layout_migration._Migration, "_write", beside_another)  # pyright: ignore[reportPrivateUsage]
    folder = TableModel(lake, table).folder
    with closing(DuckDB(catalog=lake.another_duckdb().catalog, attempts=3)) as duckdb, duckdb.session() as session:
        full_name = lake.full(table)
        with pytest.raises(CommitConflict):
            migrate(session, duckdb.catalog, duckdb.log(full_name), full_name, Layout(("day",)))
    log = log_of(lake, table)
    live = {file.path for file in log.files(log.refresh())}
    assert layout_of(log.refresh()) == NO_LAYOUT
    assert {path.name for path in folder.glob("*.parquet")} == live
