"""Strategy `append` by Spark: whatever happens to the inputs, to a pass and to the table, each row is taken once.

`test_append_by_duckdb.py` has the same by DuckDB, and more of it.
"""

from uuid import uuid4

import pytest

from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.appended_tables import AppendedTable
from tests.components.incremental_tables import moved, without_pictures
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


def sequence(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: str, steps: int) -> None:
    without_pictures(patch)
    table = AppendedTable(lake, f"p_{uuid4().hex[:10]}", seed, patch)
    table.insert()
    for _ in range(steps):
        table.step()
    print(f"{seed}: {dict(table.done)}")


def test_each_row_is_taken_once(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    sequence(lake, monkeypatch, "short", 4)


def without_keys(lake: Lakehouse, patch: pytest.MonkeyPatch) -> AppendedTable:
    """By keys a row that is there already would be found."""
    without_pictures(patch)
    table = AppendedTable(lake, f"p_{uuid4().hex[:10]}", "lost log", patch)
    table.keys = ()
    table.insert()
    table.checked_pass()
    return table


@pytest.mark.long
def test_after_a_restore_no_row_is_missing_or_there_twice(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_keys(lake, monkeypatch)
    table.insert()
    table.checked_pass()
    for _ in range(2):
        table.insert()
        table.restored_pass()


def test_after_an_erasure_no_row_is_missing_or_there_twice(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence comes before a pass, and between its look for one and its statement."""
    table = without_keys(lake, monkeypatch)
    table.insert()
    table.fence()
    table.checked_pass()
    table.insert()
    with moved(monkeypatch, Spark, "_committed", table.fence):
        table.checked_pass()


def test_after_a_loss_of_the_log_no_row_is_there_twice(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_keys(lake, monkeypatch)
    table.lose_log()
    table.insert()
    table.refused_pass()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_each_row_is_taken_once_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(lake, monkeypatch, str(seed), 10)
