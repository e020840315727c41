"""Syncs of the strategy `cdc`: events of change, in whatever order they come, compared with a model in plain Python."""

import random
from collections.abc import Sequence

import pytest

from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncStrategy
from ratify_lakehouse.errors import RowsNotConverted, TableMissing
from tests.components.declared_syncs import declared, names, run, stored, table
from tests.components.sync_model import Event, EventModel, random_events
from tests.engines.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]


def cdc_sequence(lake: Lakehouse, seed: str, passes: int, *, each_again: bool) -> None:
    source, destination = names()
    chance, model = random.Random(seed), EventModel()  # noqa: S311 events, not keys
    lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    if chance.random() < 0.5:
        lake.quick(f"CREATE TABLE ratify.bronze.{destination} (k STRING NOT NULL, seq BIGINT, v INT)")
    sync = declared(destination, SyncStrategy.CDC, table(source), "k", events=ChangeEvents("op", "seq", ("d",), ("t",)))
    made = dict[tuple[str, int], Event]()
    batches = [random_events(chance, number, made) for number in range(passes)]
    chance.shuffle(batches)
    for batch in batches:
        _append_events(lake, source, batch)
        try:
            before = lake.catalog.version(f"ratify.bronze.{destination}")
        except TableMissing:
            before = 0
        changed = model.apply(batch)
        result = run(lake, sync)
        assert stored(lake, destination, "k, seq, v") == sorted((k, seq, v) for k, (seq, v) in model.rows.items()), batch
        assert (result.version - before, result.commit is not None) == (changed, changed), batch
        if each_again or batch is batches[-1]:
            assert run(lake, sync).commit is None


def _append_events(lake: Lakehouse, source: str, batch: Sequence[Event]) -> None:
    rows = ((op, "NULL" if k is None else f"'{k}'", seq, "NULL" if v is None else v) for op, k, seq, v in batch)
    values = ", ".join(f"('{op}', {k}, {seq}, {v})" for op, k, seq, v in rows)
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES {values}")


def test_events_are_applied_in_their_order_whenever_they_come(bronze: Lakehouse) -> None:
    cdc_sequence(bronze, "ft", 2, each_again=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_events_are_applied_in_their_order_at_length(bronze: Lakehouse, seed: int) -> None:
    cdc_sequence(bronze, str(seed), 8, each_again=True)


def test_two_events_of_one_sequence_are_an_error(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    _append_events(bronze, source, [("c", "a", 1, 1), ("u", "a", 1, 2)])
    sync = declared(destination, SyncStrategy.CDC, table(source), "k", events=ChangeEvents("op", "seq"))
    with pytest.raises(RowsNotConverted, match="k='a', seq=1"):
        run(bronze, sync)
