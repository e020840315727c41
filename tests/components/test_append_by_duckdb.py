"""Strategy `append` by DuckDB: whatever happens to the inputs, to a pass and to the table, each row is taken once."""

from dataclasses import replace
from uuid import uuid4

import pytest

from ratify_lakehouse.components.strategies import append_pass
from ratify_lakehouse.errors import QueryMismatch
from tests.components.incremental_tables import moved, without_pictures
from tests.components.sparkless import Sparkless
from tests.components.tables_by_duckdb import AppendedByDuckDB
from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.server


def made(lake: Sparkless | Lakehouse, patch: pytest.MonkeyPatch, seed: str) -> AppendedByDuckDB:
    without_pictures(patch)
    table = AppendedByDuckDB(lake, f"p_{uuid4().hex[:10]}", seed, patch)
    table.insert()
    return table


def sequence(lake: Sparkless | Lakehouse, patch: pytest.MonkeyPatch, seed: str, steps: int) -> None:
    table = made(lake, patch, seed)
    for _ in range(steps):
        table.step()
    print(f"{seed}: {dict(table.done)}")


@pytest.mark.parametrize("seed", ["short", "shorter"])
def test_each_row_is_taken_once(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    sequence(sparkless, monkeypatch, seed, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_each_row_is_taken_once_at_length(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    sequence(sparkless, monkeypatch, str(seed), 20)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
@pytest.mark.parametrize("seed", range(5))
def test_each_row_is_taken_once_whatever_spark_does(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Rows by MERGE, erasures, deletion vectors, a log that begins late."""
    sequence(lake, monkeypatch, f"spark {seed}", 10)


def test_a_row_whose_key_is_there_is_an_error_and_nothing_is_written(
    sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(sparkless, monkeypatch, "keys")
    table.keys = ("id",)
    table.checked_pass()
    sparkless.quick(f"INSERT INTO {table.a} SELECT * FROM {table.a}")
    with pytest.raises(QueryMismatch, match="the table already has rows with the keys of new ones: id=1"):
        table.run()
    table.compare()


def test_an_input_that_moves_while_it_is_read_is_read_again(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(sparkless, monkeypatch, "moves")
    table.checked_pass()
    for step in table.steps[:2]:
        table.insert()
        with moved(monkeypatch, *step, table.insert):
            table.checked_pass()


def test_a_fault_is_found(sparkless: Sparkless, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that takes each row since the version before the last one it took."""
    table = made(sparkless, monkeypatch, "fault")
    table.keys = ()
    for _ in range(2):
        table.insert()
        table.checked_pass()
    last = append_pass.last_position

    def earlier(history: object) -> object:
        found = last(history)  # pyright: ignore[reportArgumentType]
        assert found.record
        inputs = {name: replace(read, version=read.version - 1) for name, read in found.record.inputs.items()}
        return replace(found, record=replace(found.record, inputs=inputs))

    table.insert()
    monkeypatch.setattr(append_pass, "last_position", earlier)
    with pytest.raises(AssertionError):
        table.checked_pass()
