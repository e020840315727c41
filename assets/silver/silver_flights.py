"""The silver tables: flights typed, keyed and validated, those that fail an expectation, and the weather at departure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from assets.bronze.landed_sources import FLIGHTS_RAW, WEATHER
from assets.silver.silver_airports import AIRPORTS, airports
from components.checks.reconciliation import Reconciliation
from components.expectations.expectation_checks import check_specs
from components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from components.expectations.validated_tables import quarantine_table, write_validated
from components.landing_order import LANDED_LAST, read_input
from components.table_asset import asset_key, spark_table, step_name, table_spec
from resources.declarations import Column, Engine, TableDeclaration
from resources.spark.spark_engine import Spark

MERGE = frozenset({"MERGE"})

_SQL = Path(__file__).parent


def _raw(*columns: str) -> tuple[str, ...]:
    return tuple(f"bronze.flights_raw.{column}" for column in columns)


_LOCAL_DAY = _raw("year", "month", "day")
_DEPARTURE = (*_LOCAL_DAY, *_raw("sched_dep_time"))
_ARRIVAL = (*_LOCAL_DAY, *_raw("sched_arr_time", "dest"), "silver.airports.zone")

FLIGHTS = TableDeclaration(
    layer="silver",
    name="flights",
    columns=(
        Column("flight_id", "string", "Carrier, number, origin and scheduled departure", _DEPARTURE),
        Column("flight_date", "date", "Local date of the scheduled departure", _LOCAL_DAY),
        Column("carrier", "string", "IATA code", _raw("carrier")),
        Column("flight_number", "int", sources=_raw("flight")),
        Column("tail_number", "string", sources=_raw("tailnum")),
        Column("origin", "string", "FAA code", _raw("origin")),
        Column("dest", "string", "FAA code", _raw("dest")),
        Column("scheduled_departure_utc", "timestamp", sources=_DEPARTURE),
        Column("departure_utc", "timestamp", sources=(*_DEPARTURE, *_raw("dep_delay"))),
        Column("scheduled_arrival_utc", "timestamp", "NULL where the destination's zone is not known", _ARRIVAL),
        Column("arrival_utc", "timestamp", sources=(*_ARRIVAL, *_raw("arr_delay"))),
        Column("departure_delay_min", "int", "Minutes; early is negative", _raw("dep_delay")),
        Column("arrival_delay_min", "int", "Minutes; early is negative", _raw("arr_delay")),
        Column("air_time_min", "int", "Minutes", _raw("air_time")),
        Column("distance_miles", "int", "Miles", _raw("distance")),
        Column("cancelled", "boolean", "It never departed", _raw("dep_time")),
        Column("diverted", "boolean", "It departed but did not arrive as planned", _raw("dep_time", "arr_delay")),
        Column("_source_file", "string", sources=_raw("_source_file")),
        Column("_source_row", "bigint", sources=_raw("_source_row")),
        Column("_batch_id", "string", sources=_raw("_batch_id")),
    ),
    comment="Flights that left New York, one row each, typed, in UTC",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("flight_id",),
)

FLIGHTS_QUARANTINE = quarantine_table(FLIGHTS, FLIGHTS_RAW.table, FLIGHTS_RAW.header[:16])

FLIGHTS_RECONCILIATION = Reconciliation(
    _SQL / "flights_reconciled.sql", {"bronze": FLIGHTS_RAW.table, "silver": FLIGHTS, "quarantine": FLIGHTS_QUARANTINE}
)


def _expect(name: str, predicate: str) -> Expectation:
    return Expectation(name, predicate, Action.QUARANTINE)


FLIGHTS_EXPECTATIONS = Expectations(
    rules=(
        _expect("date_is_valid", "flight_date IS NOT NULL"),
        _expect("scheduled_departure_is_a_time", "departure_local IS NOT NULL"),
        _expect("scheduled_arrival_is_a_time", "arrival_local IS NOT NULL"),
        _expect("carrier_is_given", "carrier IS NOT NULL"),
        _expect("flight_number_is_a_number", "flight_number IS NOT NULL"),
        _expect("origin_is_a_new_york_airport", "origin IN ('EWR', 'JFK', 'LGA')"),
        _expect("destination_is_an_airport_code", "dest RLIKE '^[A-Z0-9][A-Z0-9][A-Z0-9]$'"),
        _expect("distance_is_positive", "distance_miles > 0"),
        _expect("numbers_are_numbers", "NOT has_text_for_number"),
        _expect("arrived_flights_departed", "dep_time IS NOT NULL OR arr_time IS NULL"),
        _expect("departed_flights_have_a_delay", "dep_time IS NULL OR departure_delay_min IS NOT NULL"),
        _expect("air_time_is_positive", "air_time_min IS NULL OR air_time_min > 0"),
    ),
    identity=("_source_file", "_source_row"),
    example="landed",
    unique=Unique("one_row_for_flight", FLIGHTS.keys, LANDED_LAST),
)

FLIGHTS_VALIDATED = FLIGHTS_EXPECTATIONS.validated((_SQL / "flights_parsed.sql").read_text())
"""The query that gives every bronze flight, typed, with its key, as its expectations validate it."""


def _weather(*columns: str) -> tuple[str, ...]:
    return tuple(f"bronze.weather.{column}" for column in columns)


FLIGHTS_WEATHER = TableDeclaration(
    layer="silver",
    name="flights_weather",
    columns=(
        Column("flight_id", "string", sources=("silver.flights.flight_id",)),
        Column("origin", "string", sources=("silver.flights.origin",)),
        Column("scheduled_departure_utc", "timestamp", sources=("silver.flights.scheduled_departure_utc",)),
        Column("observed_at_utc", "timestamp", "At most three hours before departure", _weather("time_hour")),
        Column("temperature_f", "double", "Degrees Fahrenheit", _weather("temp")),
        Column("dew_point_f", "double", "Degrees Fahrenheit", _weather("dewp")),
        Column("humidity_pct", "double", "Relative, percent", _weather("humid")),
        Column("wind_direction_deg", "double", "Degrees", _weather("wind_dir")),
        Column("wind_speed_mph", "double", "Miles an hour", _weather("wind_speed")),
        Column("wind_gust_mph", "double", "Miles an hour", _weather("wind_gust")),
        Column("precipitation_in", "double", "Inches", _weather("precip")),
        Column("pressure_mb", "double", "Millibars", _weather("pressure")),
        Column("visibility_mi", "double", "Miles", _weather("visib")),
    ),
    comment="Each flight with the last weather observed at its origin before its scheduled departure",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("flight_id",),
)


@dg.multi_asset(
    name=step_name(FLIGHTS),
    specs=[
        table_spec(table, [asset_key(FLIGHTS_RAW.table), asset_key(AIRPORTS)]) for table in (FLIGHTS, FLIGHTS_QUARANTINE)
    ],
    check_specs=check_specs(FLIGHTS_EXPECTATIONS, asset_key(FLIGHTS)),
)
def flights(spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Split bronze into the flights that pass all expectations and the rows that fail one."""
    yield from write_validated(spark, validated_flights(spark), FLIGHTS_EXPECTATIONS, (FLIGHTS, FLIGHTS_QUARANTINE), _SQL)


def validated_flights(spark: Spark) -> Any:
    """Return every bronze flight, typed, with its key, as its expectations validate it."""
    return spark.sql(FLIGHTS_VALIDATED, flights_raw=read_input(spark, FLIGHTS_RAW.table), airports=spark.table(AIRPORTS))


flights_weather = spark_table(FLIGHTS_WEATHER, _SQL / "flights_weather.sql", {"flights": FLIGHTS, "weather": WEATHER.table})

silver_assets = [airports, flights, flights_weather]
