"""The declarations of the flights: what is derived from their SQL, and which checks they have."""

import dagster as dg
import pytest

from orchestration.definitions import defs
from ratify_lakehouse.definitions.project_tables import declared_tables
from tests.sample.sample_tables import query_of

RAW = "bronze.flights_raw."
DAY = {f"{RAW}{part}" for part in ("year", "month", "day")}
DEPARTURE = {*DAY, f"{RAW}sched_dep_time"}
ARRIVAL = {*DAY, f"{RAW}sched_arr_time", "silver.airports.zone"}

LINEAGE = {
    "silver.airports": {"faa": {"bronze.airports.faa"}, "zone": {"bronze.airports.tzone"}},
    "silver.flights": {
        "flight_id": {*DEPARTURE, f"{RAW}carrier", f"{RAW}flight", f"{RAW}origin"},
        "flight_date": DAY,
        "tail_number": {f"{RAW}tailnum"},
        "departure_utc": {*DEPARTURE, f"{RAW}dep_delay"},
        # By the departure the day of the arrival is known.
        "arrival_utc": {*ARRIVAL, *DEPARTURE, f"{RAW}arr_delay"},
        "diverted": {f"{RAW}dep_time", f"{RAW}arr_delay"},
        "_source_row": {f"{RAW}_source_row"},
    },
    "gold.carrier_daily": {
        "flight_date": {"silver.flights.flight_date"},
        "miles_flown": {"silver.flights.distance_miles", "silver.flights.cancelled"},
        "on_time_share": {"silver.flights.arrival_delay_min"},
    },
    "gold.route_delay": {
        "dest_name": {"silver.airports.name"},
        "p90_arrival_delay_min": {"silver.flights.arrival_delay_min"},
    },
    "gold.airport_hourly": {
        "hour_utc": {"silver.flights.scheduled_departure_utc"},
        "visibility_mi": {"silver.flights_weather.visibility_mi"},
    },
}

# What is derived of fields of a struct is all that the struct is made of.
AMONG_OTHERS = {
    "silver.flights_weather": {
        "flight_id": {"silver.flights.flight_id"},
        "temperature_f": {"bronze.weather.temp"},
        "observed_at_utc": {"bronze.weather.time_hour"},
    },
    "gold.carrier_daily": {"carrier_name": {"bronze.airlines.name"}},
}


def derived(table: str) -> dict[str, set[str]]:
    known = {each.table_name: [*each.column_names, "_landing"] for each in declared_tables().declarations.values()}
    return {column: set(sources) for column, sources in query_of(table).query.lineage(known).items()}


@pytest.mark.parametrize("table", LINEAGE)
def test_where_columns_come_from_is_read_from_the_sql(table: str) -> None:
    found = derived(table)
    assert {column: found[column] for column in LINEAGE[table]} == LINEAGE[table]


@pytest.mark.parametrize("table", AMONG_OTHERS)
def test_a_column_that_is_taken_out_of_a_struct_comes_from_all_in_it(table: str) -> None:
    found = derived(table)
    assert {column: sources & found[column] for column, sources in AMONG_OTHERS[table].items()} == AMONG_OTHERS[table]


def checks_of(table: str) -> set[str]:
    graph = defs.resolve_asset_graph()
    return {key.name for key in graph.asset_check_keys if ".".join(key.asset_key.path[1:]) == table}


def test_what_is_daily_and_what_is_reconciled() -> None:
    tables = {table.table_name for table in declared_tables().declarations.values()}
    assert {table for table in tables if "data_is_fresh" in checks_of(table)} == {"bronze.flights_raw", "silver.flights"}
    assert {table for table in tables if "rows_reconciled" in checks_of(table)} == {"silver.flights", "silver.airports"}


def test_a_snapshot_is_append_only() -> None:
    assert "rows were only ever appended" in intact("gold.carrier_daily_snapshot")
    assert "appended" not in intact("gold.carrier_daily")


def intact(table: str) -> str:
    """What the check `table_is_intact` of a table asks."""
    key = dg.AssetCheckKey(dg.AssetKey(["ratify", *table.split(".")]), "table_is_intact")
    (found,) = [each.get_spec_for_check_key(key) for each in defs.asset_checks or () if key in each.check_keys]
    return found.description or ""
