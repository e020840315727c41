"""Syncs of the strategy `cdc`: events of change, in whatever order they come, compared with a model in plain Python."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ratify_lakehouse.components.syncs.sync_declaration import ChangeEvents, SyncEngine, SyncStrategy
from ratify_lakehouse.errors import RowsNotConverted, TableMissing
from tests.components.declared_syncs import declared, names, quick_lake, run, stored, table
from tests.components.sync_model import Event, EventModel, random_events
from tests.engines.lakehouse import Lakehouse

__all__ = ["quick_lake"]


def cdc_sequence(
    lake: Lakehouse, seed: str, passes: int, engine: SyncEngine, *, before_the_last: SyncEngine | None = None
) -> None:
    """`before_the_last`: makes the passes before the last one, by an engine of its own; none is repeated then."""
    source, destination = names()
    lake.catalog.ensure_schemas(("bronze", "ops"))
    chance, model = random.Random(seed), EventModel()  # noqa: S311 events, not keys
    lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    if chance.random() < 0.5:
        lake.quick(f"CREATE TABLE ratify.bronze.{destination} (k STRING NOT NULL, seq BIGINT, v INT)")
    given = {"events": ChangeEvents("op", "seq", ("d",), ("t",)), "engine": engine}
    sync = declared(destination, SyncStrategy.CDC, table(source), "k", **given)
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
        last = batch is batches[-1]
        result = run(lake, sync if last or not before_the_last else replace(sync, engine=before_the_last))
        assert stored(lake, destination, "k, seq, v") == sorted((k, seq, v) for k, (seq, v) in model.rows.items()), batch
        assert (result.version - before, result.commit is not None) == (changed, changed), batch
        if last or not before_the_last:
            assert run(lake, sync).commit is None


def _append_events(lake: Lakehouse, source: str, batch: Sequence[Event]) -> None:
    rows = ((op, "NULL" if k is None else f"'{k}'", seq, "NULL" if v is None else v) for op, k, seq, v in batch)
    values = ", ".join(f"('{op}', {k}, {seq}, {v})" for op, k, seq, v in rows)
    lake.quick(f"INSERT INTO ratify.bronze.{source} VALUES {values}")


@pytest.mark.server
@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 3))])
def test_events_are_applied_in_their_order_whenever_they_come(quick_lake: Lakehouse, seed: int) -> None:
    cdc_sequence(quick_lake, str(seed), 5, SyncEngine.DUCKDB)


@pytest.mark.server
@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 104))
def test_events_are_applied_in_their_order_at_length(quick_lake: Lakehouse, seed: int) -> None:
    cdc_sequence(quick_lake, str(seed), 10, SyncEngine.DUCKDB)


@pytest.mark.stack
@pytest.mark.usefixtures("quick_creation")
def test_spark_applies_events_in_their_order(lake: Lakehouse) -> None:
    cdc_sequence(lake, "ft", 2, SyncEngine.SPARK, before_the_last=SyncEngine.DUCKDB)


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.usefixtures("quick_creation")
@pytest.mark.parametrize("seed", range(30))
def test_spark_applies_events_in_their_order_at_length(lake: Lakehouse, seed: int) -> None:
    cdc_sequence(lake, str(seed), 8, SyncEngine.SPARK)


@pytest.mark.server
def test_two_events_of_one_sequence_are_an_error(quick_lake: Lakehouse) -> None:
    source, destination = names()
    quick_lake.catalog.ensure_schemas(("bronze", "ops"))
    quick_lake.quick(f"CREATE TABLE ratify.bronze.{source} (op STRING, k STRING, seq BIGINT, v INT)")
    _append_events(quick_lake, source, [("c", "a", 1, 1), ("u", "a", 1, 2)])
    given = {"events": ChangeEvents("op", "seq"), "engine": SyncEngine.DUCKDB}
    with pytest.raises(RowsNotConverted, match="k='a', seq=1"):
        run(quick_lake, declared(destination, SyncStrategy.CDC, table(source), "k", **given))
