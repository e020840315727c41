"""Syncs of random declarations, compared with a model in plain Python: equal rows, in one version or none."""

from pathlib import Path

import pytest

from tests.components.synced_tables import SyncedTable
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


def sequence(lake: Lakehouse, folder: Path, patch: pytest.MonkeyPatch, seed: str, steps: int) -> None:
    table = SyncedTable(lake, folder, seed)
    for _ in range(steps):
        table.step(patch)
    print(f"{seed}: {[sync.strategy for sync in table.syncs]} {dict(table.done)}")


# One sync by Spark and one by DuckDB; a destination with partitions, which Spark alone writes; and longer ones by DuckDB,
# which takes a tenth of the time.
@pytest.mark.parametrize(
    ("seed", "steps"), [("short 0", 5), ("short 5", 4), ("short 6", 12), ("short 8", 12), ("short 12", 12)]
)
def test_the_table_is_as_the_model_says(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, steps: int
) -> None:
    sequence(lake, tmp_path, monkeypatch, seed, steps)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_the_table_is_as_the_model_says_at_length(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    sequence(lake, tmp_path, monkeypatch, str(seed), 10)
