"""Strategy `scd2` by Spark: whatever happens to the input, to a pass and to the table, its history is that of a model.

`test_history_by_duckdb.py` has the same by DuckDB, and more of it; `test_history_rows.py` has short tests by Spark.
"""

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.components.history_tables import HistoryTable, history_sequence
from tests.components.incremental_tables import without_pictures
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation", "no_previews")]


# Rows with a time and without; where failing rows are dropped, and where they go to quarantine.
@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "one_pass"),
    [("m", HistoryTable.checked_pass), ("o", HistoryTable.killed_pass), ("k", HistoryTable.passes_at_once)],
)
def test_the_history_is_that_of_the_model(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: str, one_pass: Callable[[HistoryTable], None]
) -> None:
    without_pictures(monkeypatch)
    table = HistoryTable(lake, f"h_{uuid4().hex[:10]}", seed, monkeypatch)
    table.change(table.insert, table.insert)
    table.create()
    table.checked_pass()
    table.change(table.insert, table.update, table.delete)
    one_pass(table)
    # The input has not changed, or is read after a pass that died.
    table.checked_pass()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_the_history_is_that_of_the_model_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    history_sequence(HistoryTable(lake, f"h_{uuid4().hex[:10]}", str(seed), monkeypatch), 10)
