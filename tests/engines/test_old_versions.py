"""Files of old versions are removed, and no other: each version that is retained is as before, whatever its history."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.delta.commit_history import EVERY_COMMIT
from ratify_lakehouse.delta.computed_inputs import ComputedInputs, InputVersion, last_position
from ratify_lakehouse.delta.expired_log import LOG_RETENTION
from ratify_lakehouse.delta.table_clean import RETENTION, UnneededFile, unneeded_files
from ratify_lakehouse.engines.duckdb import duckdb_engine
from ratify_lakehouse.errors import LogUnreadable, UnsafeTable
from tests.engines.aged_table import AgedTable
from tests.engines.lakehouse import Lakehouse, pairs
from tests.engines.test_table_clean import TableModel, log_of

pytestmark = pytest.mark.stack


def made(lake: Lakehouse, patch: pytest.MonkeyPatch, log: bool = False, **more: str) -> AgedTable:
    properties = {
        RETENTION: "interval 1 hour",
        LOG_RETENTION: "interval 1 hour" if log else "interval 30 days",
        "delta.checkpointInterval": "4",
        "delta.enableDeletionVectors": "true",
        **more,
    }
    model = TableModel(lake, pairs(properties=properties))
    lake.create(model.table)
    return AgedTable(model, patch, log)


def clean_at_random(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: int, steps: int, log: bool = False) -> None:
    few = steps < 10
    chance = random.Random(seed)  # noqa: S311
    table = made(lake, patch, log, **{"delta.enableChangeDataFeed": str(seed % 3 == 0).lower()})
    model = table.model
    does = [
        *(model.append, model.append, model.delete_by_spark, model.delete_by_spark),
        *(model.killed_before_the_commit, model.killed_after_the_commit),
    ]
    for does_first in (model.append, model.append, model.delete_by_spark):
        does_first()
    for _ in range(steps):
        chance.choice(does)()
    # All rows of the files before are removed, so that old versions have files of their own.
    name = lake.full(model.table)
    lake.quick(f"INSERT OVERWRITE {name} SELECT id, v FROM {name}")
    model.versions.append(model.versions[-1])
    model.append()
    for first in sorted(chance.sample(range(1, table.latest + 1), k=2 if few else 3)):
        with lake.another_duckdb().session() as reader:
            read = f"SELECT id, v FROM uc.bronze.{model.table.name} ORDER BY id"
            opened = reader.rows(read)
            table.retain_from(first)
            planned = unneeded_files(lake.catalog, log_of(lake, model.table), old_versions=True, old_log=log)
            if len(planned) > 1:
                # Files that it removes stay removed: that all can be read is seen after the next one.
                table.killed(chance.randrange(len(planned)))
            table.cleaned()
            needed = table.check(first, () if few else None)
            if log:
                table.check_log(first)
            assert reader.con.execute(read).fetchall() == opened, "a reader that opened before"
        old = {path.name for path in model.folder.glob("*.parquet") if path.stat().st_mtime < table.committed_at(first)}
        assert old <= needed, "files that no retained version needs"
    patch.undo()
    model.append()
    table.check(first, (first, table.latest) if few else None)


def test_retained_versions_are_as_before(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_at_random(lake, monkeypatch, 3, 2, log=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 32))
def test_retained_versions_are_as_before_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    clean_at_random(lake, monkeypatch, seed, 40, log=seed % 2 == 0)


@pytest.fixture
def table(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> AgedTable:
    """With a version 2 that deleted the only file of version 1."""
    aged = made(lake, monkeypatch)
    aged.model.append()
    lake.quick(f"DELETE FROM {lake.full(aged.model.table)}")
    aged.model.versions.append([])
    aged.model.append()
    return aged


def old_versions(table: AgedTable) -> list[UnneededFile]:
    log = log_of(table.model.lake, table.model.table)
    return [file for file in unneeded_files(table.model.lake.catalog, log, old_versions=True) if file.kind == "old version"]


def test_a_file_stays_as_long_as_a_retained_version_needs_it(lake: Lakehouse, table: AgedTable) -> None:
    (file,) = [action["add"]["path"] for action in lake.commit(table.model.table, 1) if "add" in action]
    table.retain_from(1)
    assert old_versions(table) == []
    table.retain_from(2)
    assert [found.path for found in old_versions(table)] == [file]
    kinds = {found.kind for found in unneeded_files(lake.catalog, log_of(lake, table.model.table))}
    assert "old version" not in kinds, "they stay unless it is asked for"
    table.cleaned()
    table.check(2)
    assert file not in table.data_files()


def test_what_a_staged_commit_may_bring_back_stays(lake: Lakehouse, table: AgedTable) -> None:
    """A RESTORE that waits for its version."""
    actions = lake.commit(table.model.table, 1)
    staged = table.model.folder / "_delta_log/_staged_commits" / f"{4:020d}.{'0' * 8}-0000-4000-8000-{'0' * 12}.json"
    staged.write_text("".join(json.dumps(action) + "\n" for action in actions))
    table.retain_from(3)
    assert old_versions(table) == []
    staged.unlink()
    assert len(old_versions(table)) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("interval 10 minutes", "set it to an hour or more"),
        ("interval 1 week 2 days", "set it to a number of one unit"),
    ],
)
def test_a_retention_that_is_not_safe(lake: Lakehouse, table: AgedTable, change: str, text: str) -> None:
    lake.alter(table.model.table, {RETENTION: change})
    before: Any = table.data_files()
    with pytest.raises(UnsafeTable, match=text):
        table.cleaned()
    assert table.data_files() == before


def test_a_log_that_does_not_go_back_far_enough(lake: Lakehouse, table: AgedTable) -> None:
    table.model.delete_by_spark()
    table.model.append()
    log: Path = table.model.folder / "_delta_log"
    assert list(log.glob(f"{4:020d}.checkpoint.*"))
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    table.retain_from(5)
    assert old_versions(table) != []
    table.patch.setattr(time, "time", lambda: table.committed_at(5))
    with pytest.raises(UnsafeTable, match="does not reach back as far"):
        table.cleaned()


@pytest.fixture
def logged(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> AgedTable:
    """With a checkpoint of version 4, and 6 versions."""
    aged = made(lake, monkeypatch, log=True)
    monkeypatch.setattr(duckdb_engine, "_CHECKPOINT_EVERY", 4)
    for _ in range(6):
        aged.model.append()
    assert list((aged.model.folder / "_delta_log").glob(f"{4:020d}.checkpoint.*"))
    return aged


def expired(table: AgedTable, **more: bool) -> list[int]:
    log = log_of(table.model.lake, table.model.table)
    files = unneeded_files(table.model.lake.catalog, log, **{"old_log": True, **more})
    names = [Path(file.path).name for file in files if file.kind == "log file" and "_sidecars" not in file.path]
    return sorted({int(name.lstrip(".")[:20]) for name in names})


def test_the_log_begins_with_a_checkpoint_that_is_old_enough(lake: Lakehouse, logged: AgedTable) -> None:
    logged.retain_from(3)
    assert expired(logged) == [], "version 3 is read from its first commit on"
    logged.retain_from(5)
    assert expired(logged) == [0, 1, 2, 3]
    assert expired(logged, old_log=False) == [], "they stay unless it is asked for"
    logged.cleaned()
    logged.check(4, (4, 6))
    history = lake.run(f"DESCRIBE HISTORY {lake.full(logged.model.table)}")
    assert [row["version"] for row in history] == [6, 5, 4]
    logged.patch.undo()
    logged.model.append()
    logged.check(4, (4, 7))


def rewrite(table: AgedTable, version: int, **info: Any) -> None:
    """Let a commit say something else of itself."""
    path = table.model.folder / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    (said,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    said.update(info)
    written = path.stat().st_mtime
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    os.utime(path, (written, written))


@pytest.mark.parametrize("restored", [False, True])
def test_the_log_keeps_what_says_from_which_versions_the_rows_are(
    lake: Lakehouse, logged: AgedTable, *, restored: bool
) -> None:
    logged.retain_from(5)
    assert expired(logged) == [0, 1, 2, 3]
    computed = ComputedInputs("q", 2, {"ratify.bronze.a": InputVersion("id", 7)})
    rewrite(logged, 3, userMetadata=f"ratify:of a test {computed.to_json()}")
    if restored:
        # A later one was taken away by a RESTORE.
        later = ComputedInputs("another", 4, {"ratify.bronze.a": InputVersion("id", 8)})
        rewrite(logged, 5, userMetadata=f"ratify:of a test {later.to_json()}")
        rewrite(logged, 6, operation="RESTORE", operationParameters={"version": "3", "timestamp": None})
    assert expired(logged) == [], "version 3 is read from its first commit on"
    logged.cleaned()
    assert last_position(lake.spark.recent_commits(lake.full(logged.model.table), EVERY_COMMIT)).record == computed


def test_the_log_stays_as_long_as_it_is_declared(lake: Lakehouse, logged: AgedTable) -> None:
    logged.retain_from(6)
    assert expired(logged) != []
    changes = [
        ("delta.enableExpiredLogCleanup", "false", "true"),
        (LOG_RETENTION, "interval 30 days", "interval 1 hour"),
    ]
    for name, longer, shorter in changes:
        for value in (longer, shorter):
            lake.alter(logged.model.table, {name: value})
            assert (expired(logged) == []) == (value == longer), (name, value)


def test_sidecars_go_with_their_checkpoint(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake, monkeypatch, log=True, **{"delta.checkpointPolicy": "v2"})
    name = lake.full(table.model.table)
    for version in range(1, 10):
        # Spark writes a checkpoint with each fourth version.
        if version % 4:
            lake.insert(table.model.table, f"VALUES ({version}, 'row')")
        else:
            lake.run(f"INSERT INTO {name} VALUES ({version}, 'row')")
        table.model.versions.append([*table.model.versions[-1], (version, "row")])
    sidecars = table.model.folder / "_delta_log/_sidecars"
    before = {path.name for path in sidecars.glob("*.parquet")}
    table.retain_from(9)
    assert expired(table) == list(range(8))
    table.cleaned()
    after = {path.name for path in sidecars.glob("*.parquet")}
    assert len(before) > len(after) > 0
    table.check(8)
    for path in sidecars.glob("*.parquet"):
        path.unlink()
    with pytest.raises(LogUnreadable):
        expired(table)
