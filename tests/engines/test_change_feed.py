"""The change data feed: what changed in which version, and since when that is known."""

import datetime as dt
import json
import time
from collections.abc import Generator
from typing import Any

import pytest
from typer.testing import CliRunner

from ratify_lakehouse.cli.main import app
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.delta.table_log import TableLog
from ratify_lakehouse.engines.spark.change_feed import read_changes
from ratify_lakehouse.errors import ChangesNotRecorded, TableMissing
from tests.engines.lakehouse import Lakehouse, append, pairs

pytestmark = pytest.mark.stack

FEED = "delta.enableChangeDataFeed"


def changed(lake: Lakehouse, table: TableDeclaration, *versions: int) -> list[tuple[Any, ...]]:
    """Version, change, id and v, sorted."""
    rows = lake.spark.rows(read_changes(lake.spark, lake.full(table), *versions))
    return sorted((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in rows)


@pytest.fixture
def table(lake: Lakehouse) -> TableDeclaration:
    """Appended by DuckDB, then updated, deleted from and merged into by Spark."""
    made = lake.create(pairs(properties={FEED: "true", "delta.checkpointInterval": "3"}))
    append(lake.duckdb, made, "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) t(id, v)", "one")
    lake.run(f"UPDATE {lake.full(made)} SET v = 'B' WHERE id = 2")
    lake.run(f"DELETE FROM {lake.full(made)} WHERE id = 1")
    return made


ALL = [
    *((1, "insert", id_, v) for id_, v in ((1, "a"), (2, "b"), (3, "c"))),
    (2, "update_postimage", 2, "B"),
    (2, "update_preimage", 2, "b"),
    (3, "delete", 1, "a"),
]


def test_what_each_version_changed(lake: Lakehouse, table: TableDeclaration) -> None:
    assert changed(lake, table) == ALL
    assert changed(lake, table, 2) == ALL[3:]
    assert changed(lake, table, 1, 2) == ALL[:5]
    ranges = {
        (0, 9): "The latest version of .* is 3, so version 9 has no changes yet",
        (3, 2): "Version 3 of .* is not before version 2: swap them",
    }
    for versions, text in ranges.items():
        with pytest.raises(ChangesNotRecorded, match=text):
            changed(lake, table, *versions)
    with pytest.raises(TableMissing):
        read_changes(lake.spark, "ratify.bronze.none")
    check_the_command(f"bronze.{table.name}")


def check_the_command(name: str) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["changes", name, "--from", "2"])
    assert shown.exit_code == 0, shown.output
    assert [line.split("│")[1].strip() for line in shown.stdout.splitlines() if "│" in line] == ["2", "2", "3"]
    assert "update_preimage" in shown.stdout
    few = runner.invoke(app, ["changes", name, "--limit", "2", "--json"])
    assert few.stdout.count('"change"') == 2
    assert "Only the first 2 rows are shown" in few.stderr
    by_engine = [runner.invoke(app, ["changes", name, "--json", "--engine", engine]) for engine in ("spark", "duckdb")]
    assert [answer.exit_code for answer in by_engine] == [0, 0], by_engine[1].output
    rows = [sorted(map(str, json.loads(answer.stdout))) for answer in by_engine]
    assert rows[0] == rows[1]
    refused = runner.invoke(app, ["changes", name, "--to", "9"])
    assert (refused.exit_code, "ChangesNotRecorded" in refused.stderr) == (1, True)
    assert runner.invoke(app, ["changes", "bronze.none"]).exit_code == 1


@pytest.fixture
def in_berlin() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_the_command_shows_utc_wherever_it_runs(lake: Lakehouse, fresh_schema: str) -> None:
    # DuckDB does not attach a schema that has a table with a timestamp without a zone.
    table = pairs(layer=fresh_schema)
    lake.catalog.ensure_schemas((fresh_schema,))
    lake.run(
        f"CREATE TABLE {lake.full(table)} (at TIMESTAMP, plain TIMESTAMP_NTZ, deep ARRAY<STRUCT<t: TIMESTAMP>>) USING delta "
        f"TBLPROPERTIES ('{FEED}' = 'true', 'delta.columnMapping.mode' = 'none')"
    )
    # In Berlin both were half past two.
    hours = [f"2026-10-25 0{hour}:30:00" for hour in (0, 1)]
    each = (f"(TIMESTAMP'{h}Z', TIMESTAMP_NTZ'{h}', array(named_struct('t', TIMESTAMP'{h}Z')))" for h in hours)
    lake.run(f"INSERT INTO {lake.full(table)} VALUES {', '.join(each)}")
    (info,) = (action["commitInfo"] for action in lake.commit(table, 1) if "commitInfo" in action)
    committed = dt.datetime.fromtimestamp(info["inCommitTimestamp"] / 1000, dt.UTC)
    for engine in ("spark", "duckdb"):
        answer = CliRunner().invoke(app, ["changes", table.table_name, "--json", "--engine", engine])
        assert answer.exit_code == 0, answer.output
        rows = sorted(json.loads(answer.stdout), key=lambda row: row["at"])
        assert {row["committed at (UTC)"] for row in rows} == {f"{committed:%Y-%m-%d %H:%M:%S}"}
        shown = [(row["at"], row["plain"], [str(part["t"]) for part in row["deep"]]) for row in rows]
        assert shown == [(f"{hour}+00:00", hour, [f"{hour}+00:00"]) for hour in hours], engine


def test_since_when_it_is_recorded(lake: Lakehouse, table: TableDeclaration) -> None:
    def since() -> int | None:
        log = TableLog.opened(lake.catalog, lake.full(table))
        assert log is not None
        return log.feed_since()

    assert since() == 0
    lake.alter(table, {FEED: "false"})
    assert since() is None
    with pytest.raises(ChangesNotRecorded, match=r"records no changes\. Set delta\.enableChangeDataFeed = true"):
        changed(lake, table)
    append(lake.duckdb, table, "SELECT 4, 'd'", "two")
    # With a checkpoint.
    lake.run(f"ALTER TABLE {lake.full(table)} SET TBLPROPERTIES ('{FEED}' = 'true')")
    append(lake.duckdb, table, "SELECT 5, 'e'", "three")
    lake.alter(table, {"a": "b"})
    assert (since(), lake.version(table)) == (6, 8)
    with pytest.raises(ChangesNotRecorded, match="has recorded its changes since version 6: read from there on"):
        changed(lake, table, 5)
    assert changed(lake, table) == [(7, "insert", 5, "e")]
    storage = lake.another_duckdb().log(lake.full(table)).storage
    for version in range(7):
        storage.remove(f"_delta_log/{version:020d}.json")
    assert since() == 7, "the checkpoint of version 6 says that it is recorded then"
