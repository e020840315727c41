"""The kinds of files that land, each with the bronze table that holds its rows. Reading them builds no asset."""

from ingest.file_source import APPEND, LOAD_COLUMNS, LOADS_RETAINED, Source
from resources.declarations import Column, Engine, TableDeclaration


def _source(pattern: str, name: str, comment: str, header: str) -> Source:
    columns = tuple(header.split(","))
    table = TableDeclaration(
        layer="bronze",
        name=name,
        columns=(*(Column(column, "string") for column in columns), *LOAD_COLUMNS),
        comment=comment,
        writer=Engine.DUCKDB,
        operations=APPEND,
        properties=LOADS_RETAINED,
    )
    return Source(pattern, columns, table)


FLIGHTS_RAW = _source(
    "trips/*.csv",
    "flights_raw",
    "Flights that left New York, one landed file a day, as they came",
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,"
    "air_time,distance,hour,minute,time_hour",
)
AIRLINES = _source("reference/airlines*.csv", "airlines", "Names of the carriers", "carrier,name")
AIRPORTS = _source(
    "reference/airports*.csv", "airports", "Airports, with their time zones", "faa,name,lat,lon,alt,tz,dst,tzone"
)
PLANES = _source(
    "reference/planes*.csv",
    "planes",
    "Aircraft by tail number",
    "tailnum,year,type,manufacturer,model,engines,seats,speed,engine",
)
WEATHER = _source(
    "reference/weather*.csv",
    "weather",
    "Hourly weather at the three airports of New York",
    "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour",
)

SOURCES = (FLIGHTS_RAW, AIRLINES, AIRPORTS, PLANES, WEATHER)
