"""Commits that only move rows: whatever fails on the way, and whenever, the rows stay, or the commit is not proposed."""

import json
import random
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest

from ratify_lakehouse.delta.commit_actions import NothingToCommit, Proposal
from ratify_lakehouse.delta.compaction_bins import TARGET_BYTES, Bin
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.delta.layout_change import layout_of
from ratify_lakehouse.delta.snapshot import DataFile, Snapshot
from ratify_lakehouse.engines.duckdb import layout_migration
from ratify_lakehouse.engines.duckdb.bin_rewriting import rewrite
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.row_order import AS_THEY_COME
from ratify_lakehouse.errors import CatalogUnavailable, RatifyError, StorageUnavailable, UnsafeTable
from ratify_lakehouse.sql.duckdb_sql import literal
from ratify_lakehouse.sql.partition_values import HIVE_NULL
from ratify_lakehouse.table_layout import NO_LAYOUT, Layout
from tests.delta.written_log import WrittenTable, metadata

BY_V = Layout(("v",))
LONG = "x" * 300
# The first ones are no values of a partition.
TEXTS = ("", LONG, HIVE_NULL, "infinity", "a", "b", "c/d", None)
UNUSABLE = frozenset(TEXTS[:3])
FAULTS = (UnsafeTable("a fault"), StorageUnavailable("a fault"), duckdb.IOException("a fault"), KeyboardInterrupt())

Rows = dict[int, str | None]


@pytest.fixture
def con() -> Generator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def new_table(folder: Path) -> WrittenTable:
    folder.mkdir()
    table = WrittenTable(folder)
    table.commit(metadata(delta_enableChangeDataFeed="false"))
    return table


def added(table: WrittenTable, rows: Rows, name: str, *, counted: bool = True, split: Layout = NO_LAYOUT) -> None:
    """Commit rows as another writer does: one that stores no statistics, or one that does."""
    files = list[dict[str, Any]]()
    for number, value in enumerate(dict.fromkeys(rows.values()) if split.partition_by else [None]):
        part = {id_: v for id_, v in rows.items() if v == value} if split.partition_by else rows
        selected = (f"SELECT {id_}::BIGINT AS id, {'NULL' if v is None else literal(v)} AS v" for id_, v in part.items())
        text = f"SELECT {'id' if split.partition_by else '*'} FROM ({' UNION ALL '.join(selected)})"
        more: dict[str, Any] = {"stats": json.dumps({"numRecords": len(part)})} if counted else {}
        file = table.data(text, f"{name}-{number}.parquet", **more)
        files.append({"add": {**file, "partitionValues": {"v": value} if split.partition_by else {}}})
    table.commit(*files)


def rows_of(table: WrittenTable, con: duckdb.DuckDBPyConnection) -> Rows:
    """The rows as a reader has them that sees the log for the first time."""
    log, found = table.log(), Rows()
    for file in log.files(log.refresh()):
        named = f"read_parquet({literal(str(table.folder / file.path))}, hive_partitioning = false)"
        values = file.add["partitionValues"]
        for row in con.execute(f"SELECT {'id' if values else 'id, v'} FROM {named}").fetchall():
            assert row[0] not in found
            found[row[0]] = values["v"] if values else row[1]
    return found


def migrated(log: DeltaLog, con: duckdb.DuckDBPyConnection, layout: Layout, scratch: Path) -> None:
    """As `migrate`, with its rules of which error lets files go."""
    session = cast("DuckDBSession", SimpleNamespace(con=con))
    made = layout_migration._Migration(session, log, layout, TARGET_BYTES, scratch)  # pyright: ignore[reportPrivateUsage]
    try:
        log.commit(made.proposal, partitioned=True)
    except layout_migration.NOTHING_COMMITTED:
        made.withdraw()
        raise


def failing(work: Callable[..., Any], at: int, error: BaseException) -> Callable[..., Any]:
    """The function, whose call of that number fails, once."""
    calls = iter(range(at + 1))

    def run(*given: Any, **more: Any) -> Any:
        if next(calls, None) == at:
            raise error
        return work(*given, **more)

    return run


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))])
def test_rows_stay_whatever_fails(
    tmp_path: Path, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Layouts change back and forth beside another writer; any step of it may fail, on a log that has been read or not."""
    chance, table, rows, layout = random.Random(seed), new_table(tmp_path / "t"), Rows(), NO_LAYOUT  # noqa: S311
    log = table.log()
    for step in range(10):
        texts = TEXTS if chance.random() < 0.3 else TEXTS[3:]
        usable = [text for text in texts if text not in UNUSABLE] if layout.partition_by else texts
        new: Rows = {10 * step + n: chance.choice(usable) for n in range(chance.randint(1, 4))}
        added(table, new, f"step-{step}", counted=chance.random() < 0.7, split=layout)
        rows |= new
        if chance.random() < 0.6:
            log.refresh()
        wanted, version = chance.choice([BY_V, NO_LAYOUT]), table.latest
        files = set(table.folder.glob("*.parquet"))
        with monkeypatch.context() as patch:
            place = chance.choice(["put_data_file", "write_parquet", "live_rows", ""])
            if place:
                work = getattr(layout_migration, place)
                patch.setattr(layout_migration, place, failing(work, chance.randint(0, 3), chance.choice(FAULTS)))
            try:
                migrated(log, con, wanted, tmp_path)
            except (RatifyError, KeyboardInterrupt):
                assert table.latest == version
                assert set(table.folder.glob("*.parquet")) == files
            except NothingToCommit:
                assert wanted == layout
            else:
                assert table.latest == version + 1
                assert not (wanted.partition_by and UNUSABLE.intersection(rows.values()))
                layout = wanted
        assert rows_of(table, con) == rows
        assert layout_of(table.log().refresh()) == layout


@pytest.mark.parametrize("text", sorted(UNUSABLE))
@pytest.mark.parametrize("looked", [False, True], ids=["at first", "after a look"])
def test_a_refused_layout_leaves_the_rows(tmp_path: Path, con: duckdb.DuckDBPyConnection, text: str, looked: bool) -> None:
    table = new_table(tmp_path / "t")
    added(table, rows := {1: text, 2: "a"}, "one")
    log = table.log()
    if looked:
        log.refresh()
    for _ in range(2):
        with pytest.raises(UnsafeTable):
            migrated(log, con, BY_V, tmp_path)
    assert rows_of(table, con) == rows


@pytest.mark.parametrize("counted", [True, False])
def test_a_commit_that_only_moves_rows_adds_as_many_as_it_removes(tmp_path: Path, counted: bool) -> None:
    table = new_table(tmp_path / "t")
    for name in ("one", "two"):
        added(table, {1: "a", 2: "b"} if name == "one" else {3: "c"}, name, counted=counted)
    log = table.log()
    one, two = sorted(log.files(log.refresh()), key=lambda file: file.path)
    known = {one.key: 2, two.key: 1}

    def moves(rows: int, **more: Any) -> Proposal:
        adds = [DataFile("x.parquet", rows, 1, {"numRecords": rows})] if rows else []
        return Proposal(adds=adds, removes=[one, two], data_change=False, **{"counted": known, **more})

    for wrong in (moves(0), moves(2), moves(4), *([] if counted else [moves(3, counted={one.key: 2})])):
        with pytest.raises(UnsafeTable, match=r"c\.s\.t: (its files would have|nothing says how many)"):
            log.commit(lambda _, wrong=wrong: wrong)
    assert not (table.folder / "_delta_log" / "_staged_commits").exists()
    assert log.commit(lambda _: moves(3)).version == 3


def test_a_compacted_bin_knows_the_rows_of_its_files(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """Also where their writers stored no number."""
    table = new_table(tmp_path / "t")
    added(table, {1: "a", 2: "b"}, "one", counted=False)
    added(table, {3: "c"}, "two")
    log = table.log()
    files = log.files(snapshot := log.refresh())
    made = rewrite(con, log.storage, snapshot, Bin(tuple(files)), AS_THEY_COME, tmp_path)
    assert sorted(made.counted.values()) == [1, 2]


@pytest.mark.parametrize("error", [UnsafeTable("no"), CatalogUnavailable("no"), NothingToCommit()])
def test_a_refusal_stands_for_the_latest_version(tmp_path: Path, error: Exception) -> None:
    """It is raised as it is; only one of a version that is out of date is asked for again."""
    table = new_table(tmp_path / "t")
    log, seen = table.log(), list[int]()

    def plan(snapshot: Snapshot) -> Proposal:
        seen.append(snapshot.version)
        raise error

    def refused() -> list[int]:
        seen.clear()
        with pytest.raises(type(error)):
            log.commit(plan)
        return [*seen]

    assert [refused(), refused()] == [[0], [0]]
    added(table, {1: "a"}, "one")
    assert [refused(), refused()] == [[0, 1], [1]]
