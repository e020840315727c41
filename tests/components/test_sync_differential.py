"""Syncs of random declarations, compared with a model in plain Python: equal rows, in one version or none."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ratify_lakehouse.components.syncs.sync_declaration import SyncEngine
from tests.components.declared_syncs import quick_lake
from tests.components.synced_tables import SyncedTable
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]


def sequence(
    lake: Lakehouse,
    folder: Path,
    patch: pytest.MonkeyPatch,
    seed: str,
    steps: int,
    engines: Sequence[SyncEngine] = (SyncEngine.SPARK, SyncEngine.DUCKDB),
) -> None:
    table = SyncedTable(lake, folder, seed, engines)
    for _ in range(steps):
        table.step(patch)
    print(f"{seed}: {[sync.strategy for sync in table.syncs]} {dict(table.done)}")


# By DuckDB, which takes a tenth of the time.
@pytest.mark.server
@pytest.mark.parametrize("seed", [2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1))])
def test_the_table_is_as_the_model_says(
    quick_lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    sequence(quick_lake, tmp_path, monkeypatch, f"short {seed}", 12, [SyncEngine.DUCKDB])


@pytest.mark.server
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_the_table_is_as_the_model_says_by_duckdb_at_length(
    quick_lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    sequence(quick_lake, tmp_path, monkeypatch, str(seed), 30, [SyncEngine.DUCKDB])


# One sync by Spark and one by DuckDB: in two steps DuckDB merges rows, and a mirror of Spark is killed and made again. And
# a destination with partitions, which Spark alone writes.
@pytest.mark.stack
@pytest.mark.parametrize(
    ("seed", "steps"),
    [("short 0", 2), *(pytest.param(*each, marks=pytest.mark.long) for each in (("short 0", 4), ("short 5", 3)))],
)
def test_the_table_is_as_the_model_says_by_both(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, steps: int
) -> None:
    sequence(lake, tmp_path, monkeypatch, seed, steps)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_the_table_is_as_the_model_says_at_length(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    sequence(lake, tmp_path, monkeypatch, str(seed), 10)
