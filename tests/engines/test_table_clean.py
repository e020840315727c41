"""Files that no version needs are removed; every version of the table, and every writer's commit, is as before."""

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ratify_lakehouse.catalog import unity_catalog
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.delta_log import STAGED, DeltaLog
from ratify_lakehouse.delta.table_clean import clean, unneeded_files
from ratify_lakehouse.delta.table_storage import TableStorage
from ratify_lakehouse.delta.table_version import table_version
from ratify_lakehouse.engines.duckdb.live_rows import live_rows
from ratify_lakehouse.errors import UnsafeTable
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

_TEN_DAYS_S = 10 * 86_400
"""Longer than deleted files are kept for, and shorter than old versions are: Spark removes these from the log."""


class WriterKilled(BaseException):
    """What no `except` of the writer expects, as no process expects `kill -9`."""


@contextmanager
def kill(after_the_commit: bool) -> Iterator[None]:
    """Let a writer end before the catalog hears of its commit, or right after it has; nothing of its files is tidied up."""
    update = UnityCatalog.update_table

    def die(self: UnityCatalog, *request: Any) -> dict[str, Any]:
        if after_the_commit:
            update(self, *request)
        raise WriterKilled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UnityCatalog, "update_table", die)
        patch.setattr(TableStorage, "remove", lambda *_: None)
        with suppress(WriterKilled):
            yield
            pytest.fail("the writer lives")


@dataclass
class TableModel:
    """A table, the rows of each of its versions, and what may be done to it at random."""

    lake: Lakehouse
    table: TableDeclaration
    versions: list[list[tuple[int, str]]] = field(default_factory=lambda: [[]])
    next_id: int = 0
    quick: bool = False
    """Our own commits restore the table: Spark takes as long for that as for six other statements."""

    @property
    def folder(self) -> Path:
        return self.lake.folder(self.lake.full(self.table))

    def append(self) -> None:
        append(self.lake.duckdb, self.table, self._select(), f"load-{self.next_id}")
        self._appended()

    def killed_before_the_commit(self) -> None:
        with kill(after_the_commit=False):
            append(self.lake.another_duckdb(), self.table, self._select(), f"killed-{self.next_id}")

    def killed_after_the_commit(self) -> None:
        with kill(after_the_commit=True):
            append(self.lake.another_duckdb(), self.table, self._select(), f"load-{self.next_id}")
        self._appended()

    def delete_by_spark(self) -> None:
        """With a deletion vector, or of a whole file."""
        chosen = random.Random(self.next_id).sample(self.versions[-1], k=min(2, len(self.versions[-1])))  # noqa: S311
        if chosen:
            ids = ", ".join(str(id_) for id_, _ in chosen)
            self.lake.run(f"DELETE FROM {self.lake.full(self.table)} WHERE id IN ({ids})")
            self.versions.append([row for row in self.versions[-1] if row not in chosen])

    def restore(self) -> None:
        version = self.next_id % len(self.versions)
        before = self.lake.version(self.table)
        restore = self.lake.quick if self.quick else self.lake.run
        restore(f"RESTORE TABLE {self.lake.full(self.table)} TO VERSION AS OF {version}")
        if self.lake.version(self.table) > before:
            self.versions.append(self.versions[version])

    def _select(self) -> str:
        return f"SELECT i::BIGINT, 'row ' || i FROM range({self.next_id}, {self.next_id + 3}) r(i)"

    def _appended(self) -> None:
        new = [(id_, f"row {id_}") for id_ in range(self.next_id, self.next_id + 3)]
        self.versions.append(self.versions[-1] + new)
        self.next_id += 3

    def readable(self, by_spark: Sequence[int] | None = None) -> None:
        """Each version is as it was, and DuckDB reads the latest.

        `by_spark`: the versions that Spark reads, by default all; our own reader of the log reads the others.
        """
        number = len(self.versions)
        assert self.lake.version(self.table) == number - 1
        found = self._by_spark(range(number) if by_spark is None else by_spark)
        found |= {version: self._rows(version) for version in range(number) if version not in found}
        assert [sorted(found[version]) for version in range(number)] == self.versions
        assert self.lake.stored(self.table) == self.versions[-1]

    def _by_spark(self, versions: Sequence[int]) -> dict[int, list[tuple[int, str]]]:
        full_name = self.lake.full(self.table)
        found: dict[int, list[tuple[int, str]]] = {version: [] for version in versions}
        each = (f"SELECT {version} AS version, id, v FROM {full_name} VERSION AS OF {version}" for version in versions)
        for row in self.lake.run(" UNION ALL ".join(each)) if versions else ():
            found[row["version"]].append((row["id"], row["v"]))
        return found

    def _rows(self, version: int) -> list[tuple[int, str]]:
        log = log_of(self.lake, self.table)
        snapshot = log.refresh()
        files = list(table_version(log, version).files.values())
        if not files:
            return []
        with self.lake.duckdb.session() as session, live_rows(session.con, log.storage, snapshot, files) as live:
            return session.rows(f"SELECT id, v FROM ({live.select()})")


def log_of(lake: Lakehouse, table: TableDeclaration) -> DeltaLog:
    return lake.another_duckdb().log(lake.full(table))


def aged(folder: Path, seconds: float = _TEN_DAYS_S) -> None:
    """Let all files be as old as that but for one, the table's newest."""
    (folder / "newest").touch()
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "newest":
            os.utime(path, (time.time() - seconds,) * 2)


def named(folder: Path) -> set[str]:
    """Data and change files that the published versions name."""
    lines = [line for path in (folder / "_delta_log").glob("0*[0-9].json") for line in path.read_text().splitlines()]
    actions = [json.loads(line) for line in lines]
    return {a[kind]["path"] for a in actions for kind in ("add", "remove", "cdc") if kind in a}


def check_at_random(lake: Lakehouse, seed: int, steps: int, *, quick: bool = False) -> None:
    properties = {"delta.checkpointInterval": "3"} | ({"delta.enableChangeDataFeed": "true"} if seed % 2 else {})
    model = TableModel(lake, pairs(properties=properties), quick=quick)
    lake.create(model.table)
    choose = random.Random(seed)  # noqa: S311
    does = [
        model.append,
        model.killed_before_the_commit,
        model.killed_after_the_commit,
        model.delete_by_spark,
        model.restore,
    ]
    model.append()
    model.killed_before_the_commit()
    for _ in range(steps):
        choose.choice(does)()
        if choose.random() < 0.2:
            aged(model.folder)
            clean(lake.catalog, log_of(lake, model.table))
    # The killed writer's staged commit is of a version that another has by now.
    model.append()
    model.append()
    aged(model.folder)
    planned = unneeded_files(lake.catalog, log_of(lake, model.table))
    assert planned
    assert clean(lake.catalog, log_of(lake, model.table)) == planned
    left = {path.relative_to(model.folder).as_posix() for path in model.folder.rglob("*.parquet")}
    assert {path for path in left if not path.startswith("_delta_log")} <= named(model.folder)
    (last,) = [path.name for path in (model.folder / STAGED).glob("*.json")]
    # The catalog lists the last commit, and readers read it where it was staged.
    assert last.startswith(f"{len(model.versions) - 1:020d}.")
    if seed % 2:
        feed = lake.run(f"SELECT * FROM table_changes('{lake.full(model.table)}', 0)")
        inserted = sum(row["_change_type"] == "insert" for row in feed)
        assert inserted >= model.next_id
    assert clean(lake.catalog, log_of(lake, model.table)) == []
    model.append()
    # All versions, those before the clean included.
    last = len(model.versions) - 1
    model.readable(sorted({1, last // 2, last}) if quick else None)


def test_every_version_is_as_before(lake: Lakehouse) -> None:
    # It has a kill before and after a commit, RESTORE, DELETE and a clean in between.
    check_at_random(lake, 1107, 4, quick=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_every_version_is_as_before_at_length(lake: Lakehouse, seed: int) -> None:
    check_at_random(lake, seed, 20)


@pytest.fixture
def model(lake: Lakehouse) -> TableModel:
    made = TableModel(lake, pairs())
    lake.create(made.table)
    made.append()
    return made


read = pytest.mark.parametrize("by_spark", [(), pytest.param(None, marks=pytest.mark.long)], ids=["by_us", "by_spark"])


@read
def test_what_a_writer_may_still_commit_stays(lake: Lakehouse, model: TableModel, by_spark: Sequence[int] | None) -> None:
    model.killed_before_the_commit()
    assert unneeded_files(lake.catalog, log_of(lake, model.table)) == [], "its files are new"
    aged(model.folder)
    (staged, _) = sorted(path.name for path in (model.folder / STAGED).glob("*.json"))[::-1]
    names = {file.path for file in unneeded_files(lake.catalog, log_of(lake, model.table))}
    assert not names, f"{staged} is of a version that nobody has yet, and names the data file"
    model.append()
    model.append()
    removed = clean(lake.catalog, log_of(lake, model.table))
    kinds = sorted(file.kind for file in removed)
    assert kinds == ["data file", "staged commit", "staged commit"], "those of the writer, and version 1, which is published"
    model.readable(by_spark)


@read
def test_the_files_of_a_change_data_feed_stay(lake: Lakehouse, by_spark: Sequence[int] | None) -> None:
    model = TableModel(lake, pairs(properties={"delta.enableChangeDataFeed": "true"}))
    lake.create(model.table)
    model.append()
    lake.quick(f"UPDATE {lake.full(model.table)} SET v = 'new' WHERE id = 1")
    model.versions.append([(0, "row 0"), (1, "new"), (2, "row 2")])
    assert list((model.folder / "_change_data").rglob("*.parquet"))
    aged(model.folder)
    clean(lake.catalog, log_of(lake, model.table))
    feed = lake.run(f"SELECT v, _change_type FROM table_changes('{lake.full(model.table)}', 2) ORDER BY _change_type")
    assert [tuple(row.values()) for row in feed] == [("new", "update_postimage"), ("row 1", "update_preimage")]
    model.readable(by_spark)


def test_files_that_only_a_checkpoint_names_stay(lake: Lakehouse) -> None:
    model = TableModel(lake, pairs(properties={"delta.checkpointInterval": "3"}))
    lake.create(model.table)
    for _ in range(2):
        model.append()
    model.delete_by_spark()
    model.append()
    model.append()
    log = model.folder / "_delta_log"
    assert list(log.glob(f"{3:020d}.checkpoint.*"))
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    aged(model.folder)
    assert "data file" not in {file.kind for file in clean(lake.catalog, log_of(lake, model.table))}
    assert lake.stored(model.table) == model.versions[-1]


def test_a_clock_that_is_ahead_makes_no_file_old(
    lake: Lakehouse, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.killed_before_the_commit()
    model.append()
    model.append()
    ahead = time.time() + _TEN_DAYS_S
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert unneeded_files(lake.catalog, log_of(lake, model.table)) == []


@read
def test_files_of_other_kinds(lake: Lakehouse, model: TableModel, by_spark: Sequence[int] | None) -> None:
    leftover = {
        f"_ratify/requests/{1:015d}-{uuid4().hex}.json": "commit request",
        "_delta_log/.abcd_123": "partial file",
        "part-0-gone.parquet": "data file",
        ".part-0-gone.parquet.crc": "partial file",
        f"deletion_vector_{uuid4()}.bin": "data file",
        f"_change_data/cdc-{uuid4()}.parquet": "data file",
    }
    others = ["notes.txt", "_delta_log/_last_checkpoint", ".notes.txt.crc", "_delta_log/_commits/x"]
    for path in [*leftover, *others]:
        (model.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (model.folder / path).write_text("{}")
    aged(model.folder)
    found = clean(lake.catalog, log_of(lake, model.table))
    assert {file.path: file.kind for file in found} == leftover
    assert all(file.size == 2 for file in found)
    assert [path for path in others if not (model.folder / path).exists()] == []
    assert [path for path in leftover if (model.folder / path).exists()] == []
    model.readable(by_spark)


def test_where_it_is_refused(lake: Lakehouse, model: TableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.alter(model.table, {"delta.deletedFileRetentionDuration": "interval 1 week 2 days"})
    with pytest.raises(UnsafeTable, match="set it to a number of one unit, as 'interval 7 days'"):
        unneeded_files(lake.catalog, log_of(lake, model.table))
    lake.alter(model.table, {"delta.deletedFileRetentionDuration": "interval 1 day"})
    (model.folder / "gone.parquet").touch()
    aged(model.folder, 2 * 86_400)
    assert [file.path for file in unneeded_files(lake.catalog, log_of(lake, model.table))][-1] == "gone.parquet"

    monkeypatch.setattr(unity_catalog, "_MAINTENANCE", "GET /v1/what/another/server/does/not/list")
    with pytest.raises(UnsafeTable, match="does not permit its clients to remove files"):
        clean(lake.catalog, log_of(lake, model.table))
    assert (model.folder / "gone.parquet").exists()
