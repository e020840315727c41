"""The log alone says what a RESTORE would do; what cannot be restored is refused, with the reason."""

import datetime as dt
import random

import pytest

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.restore_plan import RestorePlan, planned_restore
from ratify_lakehouse.delta.table_repair import repair
from ratify_lakehouse.errors import TableMissing, VersionMissing
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_table_clean import TableModel

pytestmark = pytest.mark.stack


def plan_of(lake: Lakehouse, table: TableDeclaration, version: int | None = None, **more: dt.datetime) -> RestorePlan:
    return planned_restore(lake.another_duckdb().log(lake.full(table)), version, **more)


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    return lake.create(pairs())


@pytest.mark.parametrize("steps", [8, pytest.param(40, marks=pytest.mark.long)])
def test_random_histories(lake: Lakehouse, steps: int) -> None:
    """For each version: rows before, less those that go, and those that come back, are the rows that it had."""
    model = TableModel(lake, pairs(properties={"delta.checkpointInterval": "4"}), quick=steps < 40)
    lake.create(model.table)
    chance = random.Random(7)  # noqa: S311
    does = (model.append, model.append, model.delete_by_spark, model.restore, model.killed_after_the_commit)
    for _ in range(steps):
        chance.choice(does)()
    latest = len(model.versions) - 1
    for version, rows in enumerate(model.versions):
        plan = plan_of(lake, model.table, version)
        assert plan.rows == (len(model.versions[-1]), len(rows))
        assert plan.removed.rows is not None
        assert plan.added.rows is not None
        assert plan.rows[0] - plan.removed.rows + plan.added.rows == len(rows)  # type: ignore[operator]
        lost, back = set(model.versions[-1]) - set(rows), set(rows) - set(model.versions[-1])
        # No engine has moved a row.
        assert (plan.removed.rows, plan.added.rows) == (len(lost), len(back)), version
        assert [commit.version for commit in plan.undone] == list(range(latest, version, -1))
        assert plan.changes == (set(rows) != set(model.versions[-1]))
        # The time of its commit names it, too.
        assert plan_of(lake, model.table, time=plan.committed_at).version == version
    model.restore()
    model.readable()


def test_the_loads_of_undone_versions(lake: Lakehouse, table: TableDeclaration) -> None:
    append(lake.duckdb, table, "SELECT 1::BIGINT, 'a'", "one")
    append(lake.duckdb, table, "SELECT 2::BIGINT, 'b'", "two", "three")
    log = lake.another_duckdb().log(lake.full(table))
    (file,) = [file for file in log.files(log.refresh()) if file.version == 2]
    content = log.storage.read(file.path)
    log.storage.remove(file.path)
    assert repair(log)
    plan = plan_of(lake, table, 1)
    assert (plan.loads, plan.withdrawn) == ((), ())
    with pytest.raises(VersionMissing, match=rf"version 2: 1 file of it is gone, {file.path}. The earliest .* is 0\."):
        plan_of(lake, table, 2)
    log.storage.write(file.path, content)
    # A copy of the file was found: its rows come back, and the loads may not be loaded again.
    plan = plan_of(lake, table, 2)
    assert (plan.loads, plan.withdrawn, plan.rows) == ((), ("three", "two"), (1, 2))
    assert plan_of(lake, table, 0).loads == ("one",)
    (author, *_) = plan.undone
    assert (author.operation, author.engine.value) == ("FSCK", "DuckDB")


def test_columns_and_properties_of_the_version(lake: Lakehouse, table: TableDeclaration) -> None:
    name = lake.full(table)
    lake.run(f"ALTER TABLE {name} ADD COLUMN more INT COMMENT 'added'")
    lake.alter(table, {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"})
    plan = plan_of(lake, table, 0)
    assert plan.metadata == (
        "column more goes",
        "delta.appendOnly is not set, in place of true",
        "delta.enableChangeDataFeed is not set, in place of true",
    )
    assert (plan.changes_rows, plan.changes, plan.append_only, plan.change_feed) == (False, True, True, True)
    assert not plan_of(lake, table, 2).changes
    lake.run(f"RESTORE TABLE {name} TO VERSION AS OF 0")
    assert plan_of(lake, table, 1).metadata == ("column more comes back",)
    assert not plan_of(lake, table, 0).changes


def test_what_cannot_be_restored(lake: Lakehouse, table: TableDeclaration) -> None:
    name = lake.full(table)
    with pytest.raises(TableMissing):
        plan_of(lake, pairs(), 1)
    with pytest.raises(VersionMissing, match="has no version 1, only 0 to 0: `ratify history"):
        plan_of(lake, table, 1)
    for number in range(1, 6):
        append(lake.duckdb, table, f"SELECT i::BIGINT, 'a' FROM range({number}, {number + 2}) r(i)", f"load {number}")
    lake.run(f"DELETE FROM {name} WHERE id = 1")
    first, last = plan_of(lake, table, 0).committed_at, plan_of(lake, table, 6).committed_at
    with pytest.raises(VersionMissing, match=r"is before the first version .*, 0 of"):
        plan_of(lake, table, time=first - dt.timedelta(milliseconds=1))
    with pytest.raises(VersionMissing, match=r"is after the latest version .*, 6 of .* it is as it was then"):
        plan_of(lake, table, time=last + dt.timedelta(seconds=1))
    assert plan_of(lake, table, time=last - dt.timedelta(milliseconds=1)).version == 5

    log = lake.another_duckdb().log(name)
    snapshot = log.refresh()
    # The file of a deletion vector counts as one of the version.
    (vector,) = [each for each in log.storage.names("") if each.startswith("deletion_vector_") and each.endswith(".bin")]
    log.storage.remove(vector)
    with pytest.raises(VersionMissing, match=f"1 file of it is gone, {vector}. The earliest .* is 0"):
        plan_of(lake, table, 6)
    assert plan_of(lake, table, 5).rows[1] == 10
    # The older part of the log was cleaned up after a checkpoint.
    with lake.duckdb.session() as session:
        assert session.checkpoint(table.table_name)
    append(lake.duckdb, table, "SELECT 9::BIGINT, 'a'", "load 9")
    for version in range(3):
        log.storage.remove(f"_delta_log/{version:020d}.json")
    with pytest.raises(
        VersionMissing, match=r"no longer reaches back to version 5: it begins with version 6. No version before"
    ):
        plan_of(lake, table, 5)
    assert snapshot.version == 6
