"""Strategy `append` by Spark: whatever happens to the inputs, to a pass and to the table, each row is taken once.

`test_append_by_duckdb.py` has the same by DuckDB, and more of it.
"""

from uuid import uuid4

import pytest

from ratify_lakehouse.engines.spark.spark_engine import Spark
from tests.components.appended_tables import AppendedTable
from tests.components.incremental_tables import moved, without_pictures
from tests.components.tables_by_duckdb import AppendedByDuckDB
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


def sequence(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: str, steps: int) -> None:
    without_pictures(patch)
    table = AppendedTable(lake, f"p_{uuid4().hex[:10]}", seed, patch)
    table.insert()
    for _ in range(steps):
        table.step()
    print(f"{seed}: {dict(table.done)}")


def without_keys(
    lake: Lakehouse, patch: pytest.MonkeyPatch, kind: type[AppendedTable] = AppendedTable, *, begun: bool = True
) -> AppendedTable:
    """A table that has had its first pass. By keys a row that is there already would be found."""
    without_pictures(patch)
    table = kind(lake, f"p_{uuid4().hex[:10]}", "lost log", patch)
    table.keys = ()
    table.insert()
    if begun:
        table.begin()
    else:
        table.checked_pass()
    return table


def test_each_row_is_taken_once(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_keys(lake, monkeypatch)
    table.insert()
    table.killed_pass()
    table.weigh()
    table.passes_at_once()


@pytest.mark.long
def test_each_row_is_taken_once_in_a_short_sequence(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    sequence(lake, monkeypatch, "short", 4)


@pytest.mark.long
def test_after_a_restore_no_row_is_missing_or_there_twice(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_keys(lake, monkeypatch, begun=False)
    table.insert()
    table.checked_pass()
    for _ in range(2):
        table.insert()
        table.restored_pass()


@pytest.mark.parametrize("begun", [True, pytest.param(False, marks=pytest.mark.long)])
def test_after_an_erasure_no_row_is_missing_or_there_twice(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """The fence comes before a pass, and between its look for one and its statement."""
    table = without_keys(lake, monkeypatch, begun=begun)
    table.insert()
    table.fence()
    if not begun:
        table.checked_pass()
    table.insert()
    with moved(monkeypatch, Spark, "_committed", table.fence):
        table.checked_pass()


@pytest.mark.parametrize("kind", [AppendedByDuckDB, pytest.param(AppendedTable, marks=pytest.mark.long)])
def test_after_a_loss_of_the_log_no_row_is_there_twice(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, kind: type[AppendedTable]
) -> None:
    table = without_keys(lake, monkeypatch, kind, begun=kind is AppendedByDuckDB)
    table.lose_log()
    table.insert()
    table.refused_pass()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_each_row_is_taken_once_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(lake, monkeypatch, str(seed), 10)
