"""This project's sink for Flink, for real: its cluster, the catalog, and the other engines."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from resources.declarations import Engine, TableDeclaration
from resources.flink.flink_engine import Flink
from resources.flink.flink_sql import Insert
from tests.resources.lakehouse import Lakehouse, pairs


@pytest.fixture
def lake(lake: Lakehouse, jars_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """With a home that shares the jars of all runs."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "jars").symlink_to(jars_dir)
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path / "home"))
    return lake


pytestmark = pytest.mark.stack


def insert(table: TableDeclaration, rows: int, columns: Sequence[str], rate: int = 10_000) -> Insert:
    return Insert(table, f"uid-{table.name}", rows, rate, columns)


def test_rows_are_exact(lake: Lakehouse) -> None:
    table = pairs(writer=Engine.SPARK)
    lake.spark.ensure_table(table)
    flink = Flink(catalog=lake.catalog, checkpoint_seconds=0.5)
    run = flink.insert([insert(table, 1000, ["seq", "CONCAT('v', CAST(seq AS STRING))"], rate=500)])
    print(run)
    assert lake.rows(table) == [(n, f"v{n}") for n in range(1, 1001)]
    print(lake.spark.history(lake.full(table)))
