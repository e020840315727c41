"""The airports in silver: the last good row of each, and the rows that fail an expectation.

A row that silver cannot use, such as one with a time zone that does not exist, must not stop the flights: the airport
stays as it was before that row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from assets.bronze.landed_sources import AIRPORTS as LANDED_AIRPORTS
from components.expectations.expectation_checks import check_specs
from components.expectations.expectation_rules import Action, Expectation, Expectations, Unique
from components.expectations.validated_tables import quarantine_table, write_validated
from components.landing_order import LANDED_LAST, read_input
from components.table_asset import asset_key, step_name, table_spec
from resources.declarations import Column, Engine, TableDeclaration
from resources.spark.spark_engine import Spark

_SQL = Path(__file__).parent


def _raw(*columns: str) -> tuple[str, ...]:
    return tuple(f"bronze.airports.{column}" for column in columns)


AIRPORTS = TableDeclaration(
    layer="silver",
    name="airports",
    columns=(
        Column("faa", "string", "FAA code", _raw("faa")),
        Column("name", "string", sources=_raw("name")),
        Column("zone", "string", "Time zone as IANA names it; NULL where it is not known", _raw("tzone")),
        Column("_source_file", "string", sources=_raw("_source_file")),
        Column("_source_row", "bigint", sources=_raw("_source_row")),
        Column("_batch_id", "string", sources=_raw("_batch_id")),
    ),
    comment="Airports, one row each: the last landed row that passes all expectations",
    writer=Engine.SPARK,
    operations=frozenset({"MERGE"}),
    keys=("faa",),
)

AIRPORTS_QUARANTINE = quarantine_table(AIRPORTS, LANDED_AIRPORTS.table, LANDED_AIRPORTS.header)

AIRPORTS_EXPECTATIONS = Expectations(
    rules=(
        Expectation("code_is_given", "faa IS NOT NULL", Action.QUARANTINE),
        Expectation(
            "zone_exists",
            "zone IS NULL OR try_to_timestamp('2000-01-01 00:00 ' || zone, 'yyyy-MM-dd HH:mm VV') IS NOT NULL",
            Action.QUARANTINE,
            "A time zone that Spark knows",
        ),
    ),
    identity=("_source_file", "_source_row"),
    example="landed",
    unique=Unique("one_row_for_airport", AIRPORTS.keys, LANDED_LAST),
)

AIRPORTS_VALIDATED = AIRPORTS_EXPECTATIONS.validated((_SQL / "airports_parsed.sql").read_text())
"""The query that gives every landed row of an airport, as its expectations validate it."""


@dg.multi_asset(
    name=step_name(AIRPORTS),
    specs=[table_spec(table, [asset_key(LANDED_AIRPORTS.table)]) for table in (AIRPORTS, AIRPORTS_QUARANTINE)],
    check_specs=check_specs(AIRPORTS_EXPECTATIONS, asset_key(AIRPORTS)),
)
def airports(spark: Spark) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Split bronze into the airports and the rows that fail an expectation."""
    validated = spark.sql(AIRPORTS_VALIDATED, airports=read_input(spark, LANDED_AIRPORTS.table))
    yield from write_validated(spark, validated, AIRPORTS_EXPECTATIONS, (AIRPORTS, AIRPORTS_QUARANTINE), _SQL)
