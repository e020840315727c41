"""Syncs of the strategy scd2: versions of rows, and the ends of those that are gone."""

import pytest

from ratify_lakehouse.components.syncs.sync_declaration import HistoryRules, SyncEngine, SyncStrategy
from tests.components.declared_syncs import declared, names, quick_lake, run, stored, table
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]

VERSIONS = "valid_from TIMESTAMP, valid_to TIMESTAMP, current BOOLEAN"


def late_and_new_rows(bronze: Lakehouse, engine: SyncEngine) -> None:
    """One comes late, and belongs between two; one follows, and one is the first of its key."""
    source, destination = names()
    bronze.catalog.ensure_schemas(("bronze", "ops"))
    days = {month: f"TIMESTAMP'2026-{month:02}-01 00:00:00Z'" for month in (1, 2, 3)}
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} (id INT, v STRING, at TIMESTAMP)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id INT, v STRING, at TIMESTAMP, {VERSIONS}) USING DELTA")
    before = [
        f"(1, 'a', {days[1]}, {days[1]}, {days[3]}, false)",
        f"(1, 'c', {days[3]}, {days[3]}, NULL, true)",
        f"(2, 'd', {days[1]}, {days[1]}, NULL, true)",
    ]
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES {', '.join(before)}")
    rows = f"(1, 'b', {days[2]}), (2, 'e', {days[3]}), (3, 'f', {days[2]})"
    bronze.quick(f"INSERT INTO ratify.bronze.{source} VALUES {rows}")
    rules = HistoryRules(updated_at="at", close_deleted=False)
    sync = declared(destination, SyncStrategy.SCD2, table(source), "id", history=rules, engine=engine)
    assert run(bronze, sync).commit is not None
    listed = "v, month(valid_from), month(valid_to), current"
    expected = [
        *(("a", 1, 2, False), ("b", 2, 3, False), ("c", 3, None, True)),
        *(("d", 1, 3, False), ("e", 3, None, True), ("f", 2, None, True)),
    ]
    assert sorted(stored(bronze, destination, listed)) == expected
    bronze.quick(f"INSERT OVERWRITE ratify.bronze.{source} VALUES {rows}")
    assert run(bronze, sync).commit is None
    assert sorted(stored(bronze, destination, listed)) == expected


@pytest.mark.server
def test_versions_of_rows_are_kept(quick_lake: Lakehouse) -> None:
    late_and_new_rows(quick_lake, SyncEngine.DUCKDB)


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
def test_spark_keeps_versions_of_rows(lake: Lakehouse) -> None:
    late_and_new_rows(lake, SyncEngine.SPARK)


@pytest.mark.server
def test_rows_that_are_gone_have_no_current_version(quick_lake: Lakehouse) -> None:
    bronze, (source, destination) = quick_lake, names()
    bronze.catalog.ensure_schemas(("bronze", "ops"))
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT id, 'a' AS v FROM range(1, 2)")
    sync = declared(destination, SyncStrategy.SCD2, table(source), "id", engine=SyncEngine.DUCKDB)
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (id BIGINT, v STRING, {VERSIONS}) USING DELTA")
    since = "TIMESTAMP'2020-01-01 00:00:00Z', NULL, true"
    bronze.quick(f"INSERT INTO ratify.bronze.{destination} VALUES (0, 'a', {since}), (1, 'a', {since})")
    assert run(bronze, sync).counts.updated == 1
    assert stored(bronze, destination, "id, current, valid_to IS NULL") == [(0, False, False), (1, True, True)]
    assert run(bronze, sync).commit is None
