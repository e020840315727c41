"""The checks of syncs: they fail where a run reported other rows than its commit has, and where dead letters wait."""

import datetime as dt
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.syncs.sync_assets import (
    AS_COMMITTED,
    NO_DEAD_LETTERS,
    rows_as_committed,
    sync_definitions,
    sync_key,
)
from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncStrategy
from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit
from tests.components.declared_syncs import declared, names, table
from tests.engines.lakehouse import Lakehouse

KEY = sync_key("orders")
MERGED = {"numTargetRowsInserted": 3, "numTargetRowsUpdated": 2, "numTargetRowsDeleted": 1}


def commit(operation: str, metrics: dict[str, int], version: int = 7) -> Commit:
    return Commit(version, dt.datetime.now(dt.UTC), operation, Engine.SPARK, "", metrics)


def reported(inserted: int, updated: int = 0, deleted: int = 0, *, version: int = 7, committed: bool = True) -> Any:
    given = {"inserted": inserted, "updated": updated, "deleted": deleted, "Delta version": version, "committed": committed}
    return {name: dg.MetadataValue.int(value) for name, value in given.items()}


@pytest.mark.parametrize(
    ("metadata", "history", "passed"),
    [
        ({}, [commit("MERGE", MERGED)], False),
        (reported(3, 2, 1), [commit("WRITE", {}, 8), commit("MERGE", MERGED)], True),
        (reported(4, 2, 1), [commit("MERGE", MERGED)], False),
        (reported(3, 2, 0), [commit("MERGE", MERGED)], False),
        (reported(3, 1, 1), [commit("MERGE", MERGED)], False),
        (reported(3, 2, 1), [commit("MERGE", MERGED, 6)], False),
        (reported(3), [commit("MERGE", {})], False),
        (reported(5), [commit("WRITE", {"numOutputRows": 5})], True),
        (reported(5), [commit("WRITE", {"numOutputRows": 4})], False),
        (reported(5), [commit("WRITE", {"numOutputRows": 6})], False),
        # All rows of a table are written again: the metrics have no deleted ones.
        (reported(5, deleted=9), [commit("WRITE", {"numOutputRows": 5})], True),
        (reported(0, committed=False), [], True),
        (reported(1, committed=False), [], False),
    ],
)
def test_a_run_reports_what_its_commit_has(metadata: Any, history: list[Commit], passed: bool) -> None:
    assert rows_as_committed(KEY, metadata, lambda: history).passed is passed


@pytest.mark.parametrize(("others", "passed"), [([3], True), ([2], False), ([4], False), ([], False)])
def test_a_run_may_have_made_several_commits(others: list[int], passed: bool) -> None:
    metadata = {**reported(5), "Delta versions": dg.MetadataValue.json([5, 7])}
    history = [commit("WRITE", {"numOutputRows": 2}), *(commit("WRITE", {"numOutputRows": rows}, 5) for rows in others)]
    assert rows_as_committed(KEY, metadata, lambda: history).passed is passed


def test_a_commit_by_duckdb_may_have_rows_of_others() -> None:
    history = [commit("WRITE", {"numOutputRows": 6})]
    assert [rows_as_committed(KEY, reported(rows), lambda: history, shared=True).passed for rows in (5, 6, 7)] == [
        *(True, True, False)
    ]


@pytest.mark.stack
def test_checks_fail_where_rows_are_missing(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} AS SELECT * FROM VALUES ('1'), ('x') AS t(n)")
    bronze.quick(f"CREATE TABLE ratify.bronze.{destination} (n INT) USING DELTA")
    sync = declared(destination, SyncStrategy.APPEND, table(source), row_errors=RowErrors.SKIP)
    defs = sync_definitions(sync, {}, "")
    resources = {"spark": bronze.spark, "duckdb": bronze.duckdb}

    def checked(instance: dg.DagsterInstance, selection: dg.AssetSelection) -> dict[str, bool]:
        defined: Any = [*(defs.assets or ()), *(defs.asset_checks or ())]
        run = dg.materialize(defined, selection=selection, instance=instance, resources=resources)
        assert run.success
        return {each.check_name: each.passed for each in run.get_asset_check_evaluations()}

    with dg.DagsterInstance.ephemeral() as instance:
        assert checked(instance, dg.AssetSelection.all()) == {AS_COMMITTED: True, NO_DEAD_LETTERS: False}
        wrong = dg.AssetMaterialization(sync_key(sync.name), metadata=reported(2, version=1))
        instance.report_runless_asset_event(wrong)
        assert checked(instance, dg.AssetSelection.checks_for_assets(sync_key(sync.name))) == {
            AS_COMMITTED: False,
            NO_DEAD_LETTERS: False,
        }
