"""What the run of a landing carries down to gold, on the tables that ship and a real instance."""

from collections.abc import Generator, Iterable

import dagster as dg
import pytest

from orchestration.definitions import defs
from ratify_lakehouse.components.table_asset import asset_key
from ratify_lakehouse.definitions.project_tables import sources
from ratify_lakehouse.definitions.sensors.landed_run import made_of

BRONZE = {source.table.name: asset_key(source.table) for source in sources()}


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def named(keys: Iterable[dg.AssetKey]) -> set[str]:
    return {"/".join(key.path) for key in keys}


def report(instance: dg.DagsterInstance, *keys: dg.AssetKey, passed: bool = True) -> None:
    """Report that tables were materialized, and what their checks found."""
    for key in keys:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        for check in defs.resolve_asset_graph().asset_check_keys:
            if check.asset_key == key:
                found = dg.AssetCheckEvaluation(asset_key=key, check_name=check.name, passed=passed, metadata={})
                instance.report_runless_asset_event(found)


def test_all_that_is_made_of_the_first_files_is_made_by_their_run(instance: dg.DagsterInstance) -> None:
    carried = named(made_of(instance, list(BRONZE.values())))
    # With a quarantine, partitions, and a table elsewhere.
    assert carried >= {
        "ratify/silver/flights",
        "ratify/silver/flights_quarantine",
        "ratify/silver/flights_weather",
        "ratify/gold/carrier_daily",
        "ratify/gold/airport_daily",
        "syncs/airports",
    }
    assert carried.isdisjoint(named(BRONZE.values()))
    # It is one job, which has all of it.
    job = defs.resolve_job_def("ingest").asset_layer.executable_asset_keys
    assert carried | named(BRONZE.values()) == named(job)


def test_what_lacks_an_input_is_left_to_the_conditions(instance: dg.DagsterInstance) -> None:
    without_weather = [key for name, key in BRONZE.items() if name != "weather"]
    carried = named(made_of(instance, without_weather))
    assert "ratify/silver/flights" in carried
    assert carried.isdisjoint({"ratify/silver/flights_weather", "ratify/gold/airport_hourly"})
    report(instance, BRONZE["weather"])
    assert carried < named(made_of(instance, without_weather))


def test_what_has_an_input_that_failed_a_blocking_check_is_left_to_the_conditions(instance: dg.DagsterInstance) -> None:
    report(instance, *BRONZE.values(), *made_of(instance, list(BRONZE.values())))
    weather = {"ratify/silver/flights_weather", "ratify/gold/airport_hourly"}
    assert named(made_of(instance, [BRONZE["weather"]])) == weather
    report(instance, dg.AssetKey(["ratify", "silver", "flights"]), passed=False)
    assert made_of(instance, [BRONZE["weather"]]) == []


def test_what_a_run_in_progress_makes_is_left_to_the_conditions(instance: dg.DagsterInstance) -> None:
    report(instance, *BRONZE.values(), *made_of(instance, list(BRONZE.values())))
    weather = "ratify/silver/flights_weather"
    assert weather in named(made_of(instance, [BRONZE["flights_raw"]]))
    instance.create_run_for_job(
        defs.resolve_job_def("ingest").get_subset(asset_selection={BRONZE["weather"]}),
        status=dg.DagsterRunStatus.STARTED,
        asset_selection=frozenset({BRONZE["weather"]}),
    )
    assert weather not in named(made_of(instance, [BRONZE["flights_raw"]]))
