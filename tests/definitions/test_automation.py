"""When silver and gold are asked for, evaluated on a real instance as the daemon does."""

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.components.table_policies import (
    asked_for_as_a_whole,
    downstream_of_checked,
    whole_tables,
    without_condition,
)


class World:
    """Two tables: `down` is automated, `up` has a blocking check whose verdict is set by hand."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.passes = self.works = True
        self.version = 0
        self.cursor: Any = None

        @dg.asset
        def up() -> dg.MaterializeResult[Any]:
            return dg.MaterializeResult(data_version=dg.DataVersion(str(self.version)))

        @dg.asset_check(asset=up, blocking=True)
        def good() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=self.passes)

        @dg.asset(deps=[up], automation_condition=downstream_of_checked())
        def down() -> None:
            if not self.works:
                raise RuntimeError

        @dg.asset(deps=[down], automation_condition=downstream_of_checked())
        def further() -> None: ...

        self.assets = [up, down, further]
        self.defs = dg.Definitions(assets=self.assets, asset_checks=[good])

    def tick(self) -> set[str]:
        asked = dg.evaluate_automation_conditions(defs=self.defs, instance=self.instance, cursor=self.cursor)
        self.cursor = asked.cursor
        return {name for name in ("down", "further") if asked.get_num_requested(dg.AssetKey(name))}

    def make(self, *names: str, commits: bool = True) -> None:
        self.version += commits
        job = self.defs.resolve_implicit_global_asset_job_def()
        # As a run of the daemon, it names what it makes.
        selection = [dg.AssetKey(name) for name in names]
        job.execute_in_process(instance=self.instance, asset_selection=selection, raise_on_error=False)

    def check(self) -> None:
        job = self.defs.resolve_implicit_global_asset_job_def()
        checked = job.get_subset(asset_check_selection={dg.AssetCheckKey(dg.AssetKey("up"), "good")}, asset_selection=set())
        assert checked.execute_in_process(instance=self.instance).success


@pytest.fixture
def world() -> Generator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(instance)


def test_nothing_is_asked_for_before_the_inputs_are_there(world: World) -> None:
    assert world.tick() == set()
    assert world.tick() == set()


def test_a_new_input_is_carried_down_in_one_run(world: World) -> None:
    world.tick()
    world.make("up")
    assert world.tick() == {"down", "further"}
    world.make("down", "further")
    assert world.tick() == set()
    world.make("up")
    assert world.tick() == {"down", "further"}


def test_a_run_that_committed_nothing_starts_nothing(world: World) -> None:
    world.tick()
    world.make("up")
    assert world.tick() == {"down", "further"}
    world.make("down", "further", commits=False)
    world.tick()
    world.make("up", commits=False)
    assert world.tick() == set()
    world.make("up")
    assert world.tick() == {"down", "further"}


def test_a_failed_blocking_check_holds_back_until_it_passes(world: World) -> None:
    world.tick()
    world.passes = False
    world.make("up")
    assert world.tick() == set()
    assert world.tick() == set()
    world.passes = True
    world.make("up")
    assert world.tick() == {"down", "further"}


def test_an_input_that_changed_while_the_table_was_made_is_not_forgotten(world: World) -> None:
    world.tick()
    world.make("up")
    assert world.tick() == {"down", "further"}
    assert world.tick() == set()
    # Both happen between two ticks: `eager()` would take the one for an answer to the other.
    world.make("up")
    world.make("down", "further")
    assert "down" in world.tick()


def test_an_input_that_changes_before_the_next_look_is_not_forgotten(world: World) -> None:
    """The run that was asked for has read the input, and then that changes once more, all within one tick."""
    world.tick()
    world.make("up")
    assert world.tick() == {"down", "further"}
    world.make("down", "further")
    world.make("up")
    assert world.tick() == {"down", "further"}
    world.make("down", "further", commits=False)
    assert world.tick() == set()
    assert world.tick() == set()


def test_a_table_that_is_missing_though_its_inputs_are_there_is_asked_for_once(world: World) -> None:
    """A run was killed before it made the table, and its input may not change for a year."""
    world.make("up")
    assert world.tick() == {"down", "further"}
    assert world.tick() == set()
    world.make("down", "further")
    world.cursor = None
    assert world.tick() == set()


def test_a_table_with_partitions_is_asked_for_as_a_whole() -> None:
    """By itself it and its reader have no condition: one of Dagster's would ask for each partition, and wait for all."""
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-04")
    versions = Counter[str]()

    def made(name: str) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(data_version=dg.DataVersion(str(versions[name])))

    @dg.asset
    def up() -> dg.MaterializeResult[Any]:
        return made("up")

    @dg.asset(deps=[up], partitions_def=days, automation_condition=downstream_of_checked())
    def daily() -> Iterator[dg.AssetMaterialization | dg.MaterializeResult[Any]]:
        yield dg.AssetMaterialization("daily", partition=f"2013-01-0{versions['daily']}")
        yield made("daily")

    @dg.asset(deps=[daily], automation_condition=downstream_of_checked())
    def reader() -> None: ...

    @dg.asset(deps=[up], automation_condition=downstream_of_checked())
    def other() -> None: ...

    partitioned = [dg.AssetKey("daily")]
    written = [up, daily, reader, other]
    mapped = [*dg.map_asset_specs(without_condition(partitioned), written)]
    defs = dg.Definitions(assets=written)
    assert {spec.key.to_user_string() for asset in mapped for spec in asset.specs if spec.automation_condition} == {"other"}
    assert asked_for_as_a_whole(defs, partitioned) == [daily, reader]
    whole = whole_tables(defs)
    with dg.DagsterInstance.ephemeral() as instance:

        def make(*names: str) -> None:
            versions.update(names)
            job = whole.resolve_implicit_global_asset_job_def()
            job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(name) for name in names])

        def asked(cursor: Any = None) -> tuple[list[bool], Any]:
            found = dg.evaluate_automation_conditions(defs=whole, instance=instance, cursor=cursor)
            return [bool(found.get_num_requested(dg.AssetKey(name))) for name in ("daily", "reader", "other")], found.cursor

        requested, cursor = asked()
        assert requested == [False, False, False]
        make("up")
        requested, cursor = asked(cursor)
        assert requested == [True, True, True]
        # One of three partitions is there.
        make("daily", "reader", "other")
        requested, cursor = asked(cursor)
        assert requested == [False, False, False]
        make("daily")
        requested, cursor = asked(cursor)
        assert requested == [False, True, False]


def test_what_a_run_carried_down_itself_is_not_asked_for(world: World) -> None:
    world.tick()
    for _ in range(2):
        world.make("up", "down", "further")
        assert world.tick() == set()
        assert world.tick() == set()
    # By a run of its own, the next one.
    world.make("up")
    assert world.tick() == {"down", "further"}


def test_what_a_run_was_to_carry_down_waits_for_the_check_that_stopped_it(world: World) -> None:
    world.make("up", "down", "further")
    world.tick()
    world.passes = False
    world.make("up", "down", "further")
    assert world.tick() == set()
    assert world.tick() == set()
    world.passes = True
    world.check()
    assert world.tick() == {"down", "further"}
    world.make("down", "further")
    assert world.tick() == set()


def test_what_failed_in_the_run_that_was_to_carry_it_down_is_tried_once_more(world: World) -> None:
    world.tick()
    world.works = False
    world.make("up", "down", "further")
    assert world.tick() == {"down", "further"}
    world.make("down", "further")
    assert world.tick() == set()
    assert world.tick() == set()
    world.works = True
    world.make("up", "down", "further")
    assert world.tick() == set()
