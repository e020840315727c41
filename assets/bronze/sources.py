"""What lands: each kind of CSV file, its header, and the bronze table that holds its rows as they came."""

from dataclasses import dataclass

from resources.history import Engine
from resources.tables import Column, TableDeclaration

APPEND = frozenset({"WRITE"})

LOAD_COLUMNS = (
    Column("_source_file", "string", "Path of the landed file, relative to the landing zone"),
    Column("_source_row", "bigint", "Number of the record in its file, from 1, header not counted"),
    Column("_loaded_at", "timestamp", "When the load batch was read (UTC)"),
    Column("_batch_id", "string", "Load batch: one batch is one commit"),
)
"""Columns that bronze adds to what landed."""


@dataclass(frozen=True)
class Source:
    """A kind of landed file.

    Attributes:
        pattern: Glob on the path relative to the landing zone.
        header: The header line's columns, just so and in this order.
        table: Bronze table of the same columns, all text: a value of the wrong type is a row's fault, found in silver,
            and must not keep the other rows of its file out.
    """

    pattern: str
    header: tuple[str, ...]
    table: TableDeclaration

    @property
    def table_name(self) -> str:
        """The bronze table as `schema.table`."""
        return f"{self.table.layer}.{self.table.name}"


def _source(pattern: str, name: str, comment: str, header: str) -> Source:
    columns = tuple(header.split(","))
    table = TableDeclaration(
        layer="bronze",
        name=name,
        columns=(*(Column(column, "string") for column in columns), *LOAD_COLUMNS),
        comment=comment,
        writer=Engine.DUCKDB,
        operations=APPEND,
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

LANDED_FILES = TableDeclaration(
    layer="ops",
    name="landed_files",
    columns=(
        Column("path", "string", "Path relative to the landing zone"),
        Column("fingerprint", "string", "What the listing said of this version of the file"),
        Column("sha256", "string", "SHA-256 of its bytes"),
        Column("bytes", "bigint"),
        Column("table_name", "string", "Bronze table that its rows are for, as schema.table"),
        Column("status", "string", "loaded, repeated (same bytes were loaded before) or quarantined"),
        Column("rows", "bigint", "Rows that it brought into bronze"),
        Column("reason", "string", "Why it was not loaded"),
        Column("batch_id", "string"),
        Column("recorded_at", "timestamp"),
    ),
    comment="The book of the landing zone: what became of each landed file",
    writer=Engine.DUCKDB,
    operations=APPEND,
)
