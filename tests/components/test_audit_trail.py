"""An audit trail has each change of its table once, with who made it; undone from the end, it gives every row back."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.feeds import audit_trail
from ratify_lakehouse.components.feeds.audit_trail import AuditedTable, append_changes, reported_runs
from ratify_lakehouse.components.feeds.audit_trail_component import AuditTrail
from ratify_lakehouse.components.strategies import pass_scope
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.erasure_fence import fencing
from ratify_lakehouse.errors import ChangesNotRecorded, QueryMismatch, UnsafeTable
from tests.components.begun_tables import begin_trail, record_changes
from tests.components.declared_followers import Followers
from tests.components.declared_projects import Project, metadata
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_feed_reading import FEED, RandomChanges

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


def no_runs(_: Mapping[int, dt.datetime]) -> Mapping[int, str]:
    return {}


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    made = pairs(properties={FEED: "true"})
    lake.ensure(made)
    append(lake.duckdb, made, "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) t(id, v)", "one")
    return made


def audited(table: TableDeclaration, tmp_path: Path, *, keys: tuple[str, ...] = ("id",)) -> AuditedTable:
    component = AuditTrail(description="D", table=table.table_name, keys=list(keys), external=True)
    component.place(tmp_path / "audit" / f"{table.name}_trail")
    return component.audited


def recorded(lake: Lakehouse, trail: AuditedTable, columns: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT {columns} FROM {lake.full(trail.trail)} ORDER BY version, key, number"
    return [tuple(row.values()) for row in lake.quick(sql)]


def image(id_: int, v: str | None) -> str:
    return json.dumps({"id": id_, "v": v}, separators=(",", ":"))


def id_of(number: int) -> str:
    return f'{{"id":{number}}}'


def inserted(table_id: str | None, version: int, *ids: int) -> str:
    """What a trail has of rows that were inserted, for DuckDB."""
    row = "('{}', {}, 1, NULL, 'insert', '{}', NULL, '{}', 'WRITE', 'DuckDB', NULL, NULL, NULL)"
    return "VALUES " + ", ".join(row.format(table_id, version, id_of(id_), image(id_, "x")) for id_ in ids)


def test_each_change_once_with_who_made_it(lake: Lakehouse, table: TableDeclaration, tmp_path: Path) -> None:
    trail = audited(table, tmp_path)
    lake.create(trail.trail)
    # A trail that has nothing yet may be altered.
    lake.quick(f"ALTER TABLE {lake.full(trail.trail)} SET TBLPROPERTIES ('a' = 'b')")
    lake.spark.commit(lake.full(table), lambda: lake.run(f"UPDATE {lake.full(table)} SET v = 'B' WHERE id = 2"))
    lake.run(f"DELETE FROM {lake.full(table)} WHERE id = 1")
    began = lake.version(trail.trail)

    # Another pass that reads the same versions commits first: this one starts again, and has nothing to add.
    def overtaken(_: Mapping[int, dt.datetime]) -> Mapping[int, str]:
        if lake.version(trail.trail) == began:
            append_changes(lake.spark, trail, lambda _: {1: "run of the load"})
        return {}

    done = append_changes(lake.spark, trail, overtaken)
    assert done.metadata is not None
    assert (done.metadata["rows appended"], lake.version(trail.trail)) == (0, began + 1)
    assert recorded(lake, trail, "version, change, key, before, after, operation, engine") == [
        *(
            (1, "insert", f'{{"id":{id_}}}', None, image(id_, v), "WRITE", "DuckDB")
            for id_, v in ((1, "a"), (2, "b"), (3, None))
        ),
        (2, "update", '{"id":2}', image(2, "b"), image(2, "B"), "UPDATE", "Spark"),
        (3, "delete", '{"id":1}', image(1, "a"), None, "DELETE", "Spark"),
    ]
    who = lake.catalog.principal()
    assert who
    # The statement that went to Spark without our resource left no word of its author.
    assert recorded(lake, trail, "version, principal, run_id")[2:] == [
        (1, who, "run of the load"),
        (2, who, None),
        (3, None, None),
    ]
    times = {commit.version: commit.timestamp for commit in lake.spark.history(lake.full(table))}
    reported = lake.quick(f"SELECT version, unix_millis(committed_at) AS at FROM {lake.full(trail.trail)}")
    assert {(row["version"], row["at"]) for row in reported} == {(v, round(times[v].timestamp() * 1000)) for v in (1, 2, 3)}


def test_what_a_killed_pass_leaves_and_what_is_refused(lake: Lakehouse, table: TableDeclaration, tmp_path: Path) -> None:
    trail = audited(table, tmp_path)
    lake.create(trail.trail)

    def killed(_: Mapping[int, dt.datetime]) -> Mapping[int, str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append_changes(lake.spark, trail, killed)
    assert recorded(lake, trail, "*") == []
    with pytest.raises(QueryMismatch, match="has no column other"):
        append_changes(lake.spark, replace(trail, keys=("other",)), no_runs)
    record_changes(lake, trail, inserted(lake.catalog.table(lake.full(table)).table_id, 1, 1, 2, 3))
    properties = f"ALTER TABLE {lake.full(table)} SET TBLPROPERTIES ('{FEED}' = '{{}}')"
    lake.quick(properties.format("false"))
    append(lake.duckdb, table, "SELECT 12, 'x'", "load 3")
    lake.quick(properties.format("true"))
    with pytest.raises(
        ChangesNotRecorded, match=r"up to version 1, and the feed has them since version 4 .* `from_version: 4`"
    ):
        append_changes(lake.spark, trail, no_runs)
    append(lake.duckdb, table, "SELECT 20, 'y'", "load 4")
    append_changes(lake.spark, replace(trail, from_version=4), no_runs)
    assert [version for (version,) in recorded(lake, trail, "version")] == [1, 1, 1, 5]


def versions(lake: Lakehouse, trail: AuditedTable) -> list[int]:
    return [version for (version,) in recorded(lake, trail, "version")]


def removable(lake: Lakehouse, trail: AuditedTable) -> None:
    """Let rows be removed from the trail, by others than Spark too."""
    lake.alter(trail.trail, {"delta.appendOnly": "false"})


restored = pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.long)])
"""By us, of a trail that permits it; and by Spark, which restores also one that only allows appends."""


def restore(lake: Lakehouse, trail: AuditedTable, to: str, *, by_spark: bool) -> None:
    (lake.run if by_spark else lake.quick)(f"RESTORE TABLE {lake.full(trail.trail)} TO {to}")


def restore_to_a_time(lake: Lakehouse, trail: AuditedTable, *, by_spark: bool) -> None:
    """Rows come and go, and the history does not say by version where they went."""
    name = lake.full(trail.trail)
    (info,) = [
        action["commitInfo"] for action in lake.commit(trail.trail, lake.version(trail.trail)) if "commitInfo" in action
    ]
    before = dt.datetime.fromtimestamp(info["inCommitTimestamp"] / 1000, dt.UTC).isoformat()
    lake.quick(f"INSERT INTO {name} SELECT * FROM {name}")
    restore(lake, trail, f"TIMESTAMP AS OF '{before}'", by_spark=by_spark)


def test_a_trail_goes_on_after_others_have_written_to_it(lake: Lakehouse, table: TableDeclaration, tmp_path: Path) -> None:
    trail = audited(table, tmp_path)
    name = lake.full(trail.trail)
    begin_trail(lake, trail, inserted(lake.catalog.table(lake.full(table)).table_id, 1, 1, 2, 3))
    lake.quick(f"INSERT INTO {name} SELECT * FROM {name} WHERE key LIKE '%2%'")
    append(lake.duckdb, table, "SELECT 20, 'x'", "load 2")
    # As an erasure does it.
    removable(lake, trail)
    lake.duckdb.log(name).commit(fencing, partitioned=True)
    lake.quick(f"DELETE FROM {name} WHERE key LIKE '%1%'")
    lake.run(f"ALTER TABLE {name} ADD CONSTRAINT later CHECK (version > 0)")
    append_changes(lake.spark, trail, no_runs)
    assert recorded(lake, trail, "version, key") == [(1, id_of(2)), (1, id_of(2)), (1, id_of(3)), (2, id_of(20))]


# `test_without_a_position_the_version_to_go_on_from_has_to_be_given` has a RESTORE of a trail in `make test`.
@pytest.mark.long
@restored
def test_what_a_restore_takes_back_is_appended_again(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path, *, by_spark: bool
) -> None:
    trail = audited(table, tmp_path)
    table_id = lake.catalog.table(lake.full(table)).table_id
    begin_trail(lake, trail, inserted(table_id, 1, 1, 2, 3))
    if not by_spark:
        removable(lake, trail)
    kept = lake.version(trail.trail)
    append(lake.duckdb, table, "SELECT 20, 'x'", "load 2")
    record_changes(lake, trail, inserted(table_id, 2, 20))
    restore(lake, trail, f"VERSION AS OF {kept}", by_spark=by_spark)
    assert versions(lake, trail) == [1, 1, 1]
    append_changes(lake.spark, trail, no_runs)
    assert versions(lake, trail) == [1, 1, 1, 2]
    # Nor does it miss a row, or have one twice, where it is not known which versions it has.
    restore_to_a_time(lake, trail, by_spark=by_spark)
    append(lake.duckdb, table, "SELECT 21, 'x'", "load 3")
    append_changes(lake.spark, trail, no_runs)
    assert versions(lake, trail) == [1, 1, 1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize(("limit", "value"), [("VERSIONS_READ_AGAIN", 2), ("READ_AGAIN_SECONDS", 0)])
def test_versions_without_changed_rows_are_read_once(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Not again when the log no longer has them."""
    trail = audited(table, tmp_path)
    append_changes(lake.spark, trail, no_runs)
    for number in range(2):
        lake.quick(f"ALTER TABLE {lake.full(table)} SET TBLPROPERTIES ('test.step' = '{number}')")
    before = lake.version(trail.trail)
    append_changes(lake.spark, trail, no_runs)
    assert lake.version(trail.trail) == before
    monkeypatch.setattr(pass_scope, limit, value)
    for _ in range(2):
        append_changes(lake.spark, trail, no_runs)
        assert lake.version(trail.trail) == before + 1
    assert versions(lake, trail) == [1, 1, 1]


@restored
def test_without_a_position_the_version_to_go_on_from_has_to_be_given(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path, *, by_spark: bool
) -> None:
    trail = audited(table, tmp_path)
    begin_trail(lake, trail, inserted(lake.catalog.table(lake.full(table)).table_id, 1, 1, 2, 3))
    if not by_spark:
        removable(lake, trail)
    properties = f"ALTER TABLE {lake.full(table)} SET TBLPROPERTIES ('{FEED}' = '{{}}')"
    lake.quick(properties.format("false"))
    lake.quick(properties.format("true"))
    append(lake.duckdb, table, "SELECT 20, 'x'", "load 2")
    restore_to_a_time(lake, trail, by_spark=by_spark)
    with pytest.raises(UnsafeTable, match=r"is a RESTORE to a time.* RESTORE it to a version .* `from_version: 3`"):
        append_changes(lake.spark, trail, no_runs)
    append_changes(lake.spark, replace(trail, from_version=3), no_runs)
    assert versions(lake, trail) == [1, 1, 1, 4]


# `test_what_a_killed_pass_leaves_and_what_is_refused` goes on from a version; test_topic_position.py has new tables.
@pytest.mark.long
def test_a_version_to_go_on_from_is_one_of_the_table_that_there_was(
    lake: Lakehouse, table: TableDeclaration, tmp_path: Path
) -> None:
    trail = replace(audited(table, tmp_path), from_version=3)
    lake.create(trail.trail)
    with pytest.raises(ChangesNotRecorded, match=r"from version 3 of .*, whose latest version is 1: leave out"):
        append_changes(lake.spark, trail, no_runs)
    for number in (2, 3):
        append(lake.duckdb, table, f"SELECT {number}, 'x'", f"load {number}")
    append_changes(lake.spark, trail, no_runs)
    assert versions(lake, trail) == [3]
    lake.quick(f"DROP TABLE {lake.full(table)}")
    lake.ensure(table)
    for number in (1, 2):
        append(lake.duckdb, table, f"SELECT {number}, 'y'", f"load {number} again")
        append_changes(lake.spark, trail, no_runs)
    assert versions(lake, trail) == [1, 2, 3]


def replayed(lake: Lakehouse, trail: AuditedTable) -> Counter[str]:
    rows = Counter[str]()
    for before, after in recorded(lake, trail, "before, after"):
        rows.update([after] if after else [])
        rows.subtract([before] if before else [])
    return Counter({row: number for row, number in rows.items() if number})


def check_replayed(lake: Lakehouse, tmp_path: Path, seed: int, passes: int, steps: int) -> None:
    lake.catalog.ensure_schemas(("bronze",))
    table = pairs(
        columns=(*pairs().columns, replace(pairs().columns[0], name="day", type="date")), properties={FEED: "true"}
    )
    lake.ensure(table)
    changes = RandomChanges(lake, table, seed, partitioned=False)
    lake.quick(f"INSERT INTO {lake.full(table)} SELECT * FROM {changes.rows(30)}")
    trail = audited(table, tmp_path)
    lake.create(trail.trail)
    for _ in range(passes):
        for _ in range(steps):
            changes.step()
        append_changes(lake.spark, trail, no_runs)
        stored = lake.quick(f"SELECT id, v, day FROM {lake.full(table)}")
        shown = Counter(json.dumps(row, default=str, separators=(",", ":")) for row in stored)
        assert replayed(lake, trail) == shown, (seed, changes.done)


def test_replayed_it_gives_the_table(lake: Lakehouse, tmp_path: Path) -> None:
    check_replayed(lake, tmp_path, 1, passes=1, steps=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 115))
def test_replayed_it_gives_the_table_after_many_changes(lake: Lakehouse, tmp_path: Path, seed: int) -> None:
    check_replayed(lake, tmp_path, seed, passes=6, steps=3)


def test_a_run_has_reported_a_version_of_this_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of a table that was dropped; of the runs whose rows share a version each one; however many came since."""
    monkeypatch.setattr(audit_trail, "PAGE", 2)
    key = dg.AssetKey(["ratify", "bronze", "t"])

    def reporting(*versions: int) -> str:
        @dg.asset(key=key)
        def table() -> dg.MaterializeResult[Any]:
            return dg.MaterializeResult(metadata={COMMITS: dg.MetadataValue.json({"versions": list(versions)})})

        return dg.materialize([table], instance=instance).run_id

    with dg.DagsterInstance.ephemeral() as instance:
        reporting(0, 1)
        dropped = reporting(2, 3)
        created = dt.datetime.now(dt.UTC)
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        runs = [reporting(0, 1), reporting(1), reporting(2), reporting(5), reporting()]
        found = reported_runs(instance, key, dict.fromkeys(range(5), created))
        assert found == {0: runs[0], 1: ",".join(sorted(runs[:2])), 2: runs[2]}
        assert dropped not in found.values()
        assert reported_runs(instance, key, {}) == {}


@pytest.fixture
def followers(lake: Lakehouse, project: Project, table: TableDeclaration) -> Iterator[Followers]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Followers(lake, project, table, instance)


def test_a_declared_trail_knows_the_runs_of_its_table(followers: Followers) -> None:
    """The commit says which run has made it, and so does the trail."""
    followers.declare("AuditTrail", "trail")
    lake = followers.lake

    @dg.asset(key=["ratify", *followers.table.key_path("ratify")[1:]])
    def updated(spark: dg.ResourceParam[Any]) -> None:
        spark.commit(lake.full(followers.table), lambda: lake.run(f"DELETE FROM {lake.full(followers.table)} WHERE id = 1"))

    written = dg.materialize([updated], resources={"spark": lake.spark}, instance=followers.instance)
    done = followers.run()
    shown = metadata(done, "gold", "trail")
    assert (shown["rows appended"], shown["versions read"]) == (4, "0 to 2")
    found = lake.quick(f"SELECT run_id FROM {followers.project.schema('gold')}.trail WHERE version = 2")
    assert [row["run_id"] for row in found] == [written.run_id]
