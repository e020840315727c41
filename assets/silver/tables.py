"""The silver tables: flights typed, keyed and checked by rule, those that break one, and the weather at departure."""

from pathlib import Path
from typing import Any

import dagster as dg

from assets.bronze.sources import AIRPORTS, FLIGHTS_RAW, WEATHER
from assets.tables import asset_key, mirrored, result, spark_table, table_spec
from resources.history import Engine
from resources.spark import Spark
from resources.tables import Column, TableDeclaration

MERGE = frozenset({"MERGE"})

_SQL = Path(__file__).parent


def _raw(*columns: str) -> tuple[str, ...]:
    return tuple(f"bronze.flights_raw.{column}" for column in columns)


_LOCAL_DAY = _raw("year", "month", "day")
_DEPARTURE = (*_LOCAL_DAY, *_raw("sched_dep_time"))
_ARRIVAL = (*_LOCAL_DAY, *_raw("sched_arr_time", "dest"), "bronze.airports.tzone")

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

FLIGHTS_QUARANTINE = TableDeclaration(
    layer="silver",
    name="flights_quarantine",
    columns=(
        Column("_source_file", "string", sources=_raw("_source_file")),
        Column("_source_row", "bigint", sources=_raw("_source_row")),
        Column("rule", "string", "Names of the rules that it breaks, by comma"),
        Column("landed", "string", "The row as it landed, JSON", _raw(*FLIGHTS_RAW.header[:16])),
        Column("_batch_id", "string", sources=_raw("_batch_id")),
    ),
    comment="Bronze flights that break a rule, with the rule's name",
    writer=Engine.SPARK,
    operations=MERGE,
    keys=("_source_file", "_source_row"),
)


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
    name="flights",
    specs=[
        table_spec(table, [asset_key(FLIGHTS_RAW.table), asset_key(AIRPORTS.table)])
        for table in (FLIGHTS, FLIGHTS_QUARANTINE)
    ],
)
def flights(spark: Spark) -> tuple[dg.MaterializeResult[Any], dg.MaterializeResult[Any]]:
    """Split bronze into the flights that keep all rules and the rows that break one."""

    with spark.kept(parsed(spark)) as rows:

        def write(table: TableDeclaration) -> dg.MaterializeResult[Any]:
            created = spark.ensure_table(table)
            query = (_SQL / f"{table.name}.sql").read_text()
            return result(table, mirrored(created, spark.mirror(table, lambda: spark.sql(query, parsed=rows))))

        return write(FLIGHTS), write(FLIGHTS_QUARANTINE)


def parsed(spark: Spark) -> Any:
    """Return every bronze flight, typed, with its key and the rules that it breaks (see flights_parsed.sql)."""
    return spark.sql(
        (_SQL / "flights_parsed.sql").read_text(),
        flights_raw=spark.table(FLIGHTS_RAW.table),
        airports=spark.table(AIRPORTS.table),
    )


flights_weather = spark_table(FLIGHTS_WEATHER, _SQL / "flights_weather.sql", {"flights": FLIGHTS, "weather": WEATHER.table})

silver_assets = [flights, flights_weather]
