"""Which maintenance a table needs: its figures against its thresholds."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.delta.maintenance_need import MaintenanceNeed, MaintenanceStep, TableMaintenance, maintenance_need
from ratify_lakehouse.delta.table_figures import TableFigures

NONE = TableFigures(
    version=3,
    files=100,
    bytes=100 << 27,
    rows=1_000_000,
    small_files=0,
    mergeable_files=0,
    deletion_vectors=0,
    deleted_rows=0,
    droppable_rows=0,
    log_versions=4,
    since_checkpoint=4,
    unpublished=0,
)


@pytest.mark.parametrize(
    ("figures", "due"),
    [
        ({}, {}),
        ({"mergeable_files": 49}, {}),
        ({"mergeable_files": 50}, {"compact": "50 of 100 files can become fewer (limit 50 and 20%)"}),
        # Many, but a small part of a large table: not worth its while.
        ({"mergeable_files": 60, "files": 301}, {}),
        ({"mergeable_files": 60, "files": 300}, {"compact": "60 of 300 files can become fewer (limit 50 and 20%)"}),
        # A partition with one small file has nothing that it could be written together with.
        ({"small_files": 100}, {}),
        ({"deleted_rows": 52_000, "droppable_rows": 52_000}, {}),
        (
            {"deleted_rows": 53_000, "droppable_rows": 53_000},
            {"compact": "53,000 rows in its files are deleted, 5.0% (limit 10,000 and 5.0%)"},
        ),
        # In files of which each has too few to be rewritten.
        ({"deleted_rows": 60_000, "droppable_rows": 0}, {}),
        # A large part of a small table costs nobody anything.
        ({"rows": 5000, "deleted_rows": 9999, "droppable_rows": 9999}, {}),
        ({"since_checkpoint": 99}, {}),
        ({"since_checkpoint": 100}, {"checkpoint": "100 versions since the last checkpoint (limit 100)"}),
        (
            {"since_checkpoint": 100, "unpublished": 2},
            {"checkpoint": "100 versions since the last checkpoint (limit 100), 2 of them not published"},
        ),
        ({"files": 0, "rows": 0}, {}),
    ],
)
def test_what_is_due_and_why(figures: dict[str, Any], due: dict[str, str]) -> None:
    need = maintenance_need(replace(NONE, **figures), TableMaintenance())
    assert dict(need.due) == due
    assert (need.times_over >= 1) == bool(due)


def test_a_table_has_thresholds_of_its_own() -> None:
    figures = replace(NONE, files=3, mergeable_files=3, rows=1000, deleted_rows=20, droppable_rows=20, since_checkpoint=5)
    maintenance = TableMaintenance(small_files=2, small_ratio=1, deleted_rows=10, deleted_ratio=0.01, log_versions=5)
    need = maintenance_need(figures, maintenance)
    assert set(need.due) == {MaintenanceStep.COMPACT, MaintenanceStep.CHECKPOINT}
    assert need.reason == (
        "3 of 3 files can become fewer (limit 2 and 100%); 20 rows in its files are deleted, 2.0% (limit 10 and 1.0%); "
        "5 versions since the last checkpoint (limit 5)"
    )
    assert need.times_over == pytest.approx(1.961, abs=0.001)
    assert maintenance_need(figures, TableMaintenance()) == MaintenanceNeed({}, 0.06)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 200_000), st.integers(0, 300))
def test_what_is_worse_is_never_less_urgent(mergeable: int, others: int, deleted: int, versions: int) -> None:
    figures = replace(
        NONE,
        files=mergeable + others,
        mergeable_files=mergeable,
        deleted_rows=deleted,
        droppable_rows=deleted,
        since_checkpoint=versions,
    )
    now = maintenance_need(figures, TableMaintenance())
    assert bool(now.due) == (now.times_over >= 1)
    for worse in (
        replace(figures, files=figures.files + 1, mergeable_files=mergeable + 1),
        replace(figures, deleted_rows=deleted + 1, droppable_rows=deleted + 1),
        replace(figures, since_checkpoint=versions + 1),
    ):
        then = maintenance_need(worse, TableMaintenance())
        assert then.times_over >= now.times_over
        assert set(now.due) <= set(then.due)
