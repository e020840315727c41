"""Syncs of the mode `cdc`: events of change, in whatever order they come, compared with a model in plain Python."""

import random
from collections.abc import Sequence

import pytest

from components.syncs.sync_declaration import ChangeEvents, SyncMode
from resources.errors import RowsNotConverted, TableMissing
from tests.components.declared_syncs import declared, names, run, stored, table
from tests.components.sync_model import EventModel
from tests.resources.lakehouse import Lakehouse

pytestmark = pytest.mark.stack


def events_of(chance: random.Random, number: int) -> list[tuple[str, str, int, int | None]]:
    """Events in random order, with sequences of their own, a few of them twice."""
    made = list[tuple[str, str, int, int | None]]()
    for sequence in range(number * 10, number * 10 + chance.randint(1, 8)):
        operation = chance.choices("cudt", (4, 4, 3, 0.4))[0]
        made.append((operation, chance.choice("abc"), sequence, chance.choice((1, 2, None))))
    made += chance.sample(made, min(len(made), 2))
    chance.shuffle(made)
    return made


def cdc_sequence(lake: Lakehouse, seed: str, passes: int) -> None:
    source, destination = names()
    chance, model = random.Random(seed), EventModel()  # noqa: S311 events, not keys
    lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    sync = declared(destination, SyncMode.CDC, table(source), "k", events=ChangeEvents("op", "seq", ("d",), ("t",)))
    batches = [events_of(chance, number) for number in range(passes)]
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
        assert run(lake, sync).commit is None


def _append_events(lake: Lakehouse, source: str, batch: Sequence[tuple[str, str, int, int | None]]) -> None:
    values = ", ".join(f"('{op}', '{k}', {seq}, {'NULL' if v is None else v})" for op, k, seq, v in batch)
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES {values}")


def test_events_are_applied_in_their_order_whenever_they_come(bronze: Lakehouse) -> None:
    cdc_sequence(bronze, "short", 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_events_are_applied_in_their_order_at_length(bronze: Lakehouse, seed: int) -> None:
    cdc_sequence(bronze, str(seed), 8)


def test_two_events_of_one_sequence_are_an_error(bronze: Lakehouse) -> None:
    source, destination = names()
    bronze.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    _append_events(bronze, source, [("c", "a", 1, 1), ("u", "a", 1, 2)])
    sync = declared(destination, SyncMode.CDC, table(source), "k", events=ChangeEvents("op", "seq"))
    with pytest.raises(RowsNotConverted, match="k='a', seq=1"):
        run(bronze, sync)
