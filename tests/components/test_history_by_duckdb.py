"""Strategy `scd2` by DuckDB: whatever happens to the input, to a pass and to the table, its history is that of a model."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.components.history_tables import history_sequence
from tests.components.incremental_tables import without_pictures
from tests.components.sparkless import Sparkless
from tests.components.tables_by_duckdb import HistoryByDuckDB

pytestmark = pytest.mark.server


# Rows with a time and without; where failing rows are dropped, and where they go to quarantine.
@pytest.mark.parametrize("one_pass", [HistoryByDuckDB.killed_pass, HistoryByDuckDB.passes_at_once])
@pytest.mark.parametrize("seed", ["o", "k", "m"])
def test_the_history_is_that_of_the_model(
    sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch, seed: str, one_pass: Callable[[HistoryByDuckDB], None]
) -> None:
    without_pictures(monkeypatch)
    table = HistoryByDuckDB(sparkless, f"h_{uuid4().hex[:10]}", seed, monkeypatch)
    table.change(table.insert, table.insert)
    table.checked_pass()
    table.change(table.insert, table.update, table.delete)
    one_pass(table)
    # The input has not changed, or is read after a pass that died.
    table.checked_pass()


def test_the_history_is_that_of_the_model_in_a_sequence(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch) -> None:
    history_sequence(HistoryByDuckDB(sparkless, f"h_{uuid4().hex[:10]}", "short", monkeypatch), 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_the_history_is_that_of_the_model_at_length(
    sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    history_sequence(HistoryByDuckDB(sparkless, f"h_{uuid4().hex[:10]}", str(seed), monkeypatch), 20)
