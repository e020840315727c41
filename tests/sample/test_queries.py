"""The SQL of silver on rows made by hand and on real days: rules, UTC, duplicates, and the weather at departure."""

import csv
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.cli import sample_flights
from ratify_lakehouse.components.checks.row_reconciliation import rows_reconciled
from ratify_lakehouse.components.landing_order import landed_rows
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import new_source
from tests.sample.sample_tables import query_of, source_of, split, text_over, validated

pytestmark = [pytest.mark.stack, pytest.mark.locks("ledger of files")]

FLIGHTS = query_of("silver.flights")
HEADER = source_of("bronze.flights_raw").header
GOOD = dict(
    zip(
        HEADER,
        [
            "2013",
            "1",
            "1",
            "517",
            "515",
            "2",
            "830",
            "819",
            "11",
            "UA",
            "1545",
            "N14228",
            "EWR",
            "IAH",
            "227",
            "1400",
            "5",
            "15",
            "2013-01-01T10:00:00Z",
        ],
        strict=True,
    )
)
# Neither of the last two is a zone to every function of Spark.
ZONES = {
    "IAH": "America/Chicago",
    "LAX": "America/Los_Angeles",
    "BOS": "America/New_York",
    "PHX": "America/Phoenix",
    "MAR": "Mars/Phobos",
    "LOW": "america/phoenix",
}


def frame(lake: Lakehouse, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Any:
    """Rows as silver reads them from bronze: text, then where they came from; later ones landed later."""
    schema = ", ".join(f"{name} string" for name in columns)
    made = [
        (
            *(row.get(name) for name in columns),
            row.get("_source_file", "f.csv"),
            number,
            "batch",
            (number, 0, number),
        )
        for number, row in enumerate(rows, 1)
    ]
    landing = "_landing struct<version: bigint, position: int, entry: bigint>"
    load = f"_source_file string, _source_row bigint, _batch_id string, {landing}"
    return lake.spark.session.createDataFrame(made, f"{schema}, {load}")


def airports(lake: Lakehouse, zones: dict[str, str] = ZONES) -> Any:
    """The airports of silver."""
    return lake.spark.session.createDataFrame(list(zones.items()), "faa string, zone string")


BROKEN = [
    ({"month": "13"}, "date_is_valid"),
    ({"day": "30", "month": "2"}, "date_is_valid"),
    ({"year": "MMXIII"}, "date_is_valid"),
    ({"sched_dep_time": "2460"}, "scheduled_departure_is_a_time"),
    ({"sched_dep_time": None}, "scheduled_departure_is_a_time"),
    ({"sched_arr_time": "noon"}, "scheduled_arrival_is_a_time"),
    ({"carrier": None}, "carrier_is_given"),
    ({"flight": "UA1"}, "flight_number_is_a_number"),
    ({"origin": "BOS"}, "origin_is_a_new_york_airport"),
    ({"origin": None}, "origin_is_a_new_york_airport"),
    ({"dest": "Houston"}, "destination_is_an_airport_code"),
    ({"distance": "0"}, "distance_is_positive"),
    ({"distance": "far"}, "distance_is_positive"),
    ({"arr_delay": "late"}, "numbers_are_numbers"),
    ({"air_time": "x"}, "numbers_are_numbers"),
    ({"dep_time": "NA", "dep_delay": "NA"}, "arrived_flights_departed"),
    ({"dep_delay": "NA"}, "departed_flights_have_a_delay"),
    ({"air_time": "-1"}, "air_time_is_positive"),
]


SEVERAL = {"carrier": None, "distance": "-5", "air_time": "0"}
TIMES: dict[str, tuple[dict[str, str], str, str | None]] = {
    "winter": ({}, "2013-01-01T10:15Z", "2013-01-01T14:19Z"),
    "the day that clocks go forward": ({"month": "3", "day": "10"}, "2013-03-10T09:15Z", "2013-03-10T13:19Z"),
    "the day before": ({"month": "3", "day": "9"}, "2013-03-09T10:15Z", "2013-03-09T14:19Z"),
    "the day that clocks go back": ({"month": "11", "day": "3"}, "2013-11-03T10:15Z", "2013-11-03T14:19Z"),
    "over midnight": (
        {"sched_dep_time": "2330", "sched_arr_time": "45", "dest": "BOS"},
        "2013-01-02T04:30Z",
        "2013-01-02T05:45Z",
    ),
    "into the night that clocks go forward": (
        {"month": "3", "day": "9", "sched_dep_time": "2355", "sched_arr_time": "325", "dest": "BOS"},
        "2013-03-10T04:55Z",
        "2013-03-10T07:25Z",
    ),
    "a zone without summer time": (
        {"month": "7", "sched_dep_time": "800", "sched_arr_time": "1000", "dest": "PHX"},
        "2013-07-01T12:00Z",
        "2013-07-01T17:00Z",
    ),
    "an unknown zone": ({"dest": "ZZZ"}, "2013-01-01T10:15Z", None),
    "a zone that does not exist": ({"dest": "MAR"}, "2013-01-01T10:15Z", None),
}
"""Changes of the good row, and its scheduled departure and arrival then."""

NEVER = {"dep_time": "NA", "dep_delay": "NA", "arr_time": "NA", "arr_delay": "NA", "air_time": "NA", "tailnum": "NA"}
ASTRAY = {"arr_delay": "NA", "air_time": "NA"}
Parsed = dict[str, list[dict[str, Any]]]


def real_days() -> list[dict[str, str]]:
    days = {dt.date(2013, 1, 1), dt.date(2013, 3, 10), dt.date(2013, 11, 3)}
    return [row for day, text in sample_flights._days() if day in days for row in csv.DictReader(text.splitlines())]


@pytest.fixture(scope="module")
def parsed(engines: Lakehouse) -> Parsed:
    """The rows of all of these tests, by one query."""
    given = {
        "rules": [GOOD, *(GOOD | change for change, _ in BROKEN), GOOD | SEVERAL],
        "times": [GOOD | change for change, _, _ in TIMES.values()],
        "days": real_days(),
        "fates": [GOOD, GOOD | NEVER, GOOD | ASTRAY],
    }
    flights = frame(engines, HEADER, [row for rows in given.values() for row in rows])
    # As text: PySpark gives timestamps in the zone of this process.
    found = validated(engines, FLIGHTS, flights_raw=flights, airports=airports(engines))
    shown = [f"date_format({c}, \"yyyy-MM-dd'T'HH:mm'Z'\") AS {c}" if c.endswith("_utc") else c for c in found.columns]
    # Rows of several tests have one key.
    rule = "nullif(array_join(array_remove(failed, 'one_row_for_each_key'), ', '), '') AS rule"
    rows = iter(engines.spark.rows(found.selectExpr(*shown, rule).orderBy("_source_row")))
    return {group: [next(rows) for _ in of] for group, of in given.items()}


def test_each_rule_finds_its_row(parsed: Parsed) -> None:
    good, *broken, several = parsed["rules"]
    assert good["rule"] is None
    for (change, rule), row in zip(BROKEN, broken, strict=True):
        assert rule in (row["rule"] or "").split(", "), change
    assert several["rule"] == "carrier_is_given, distance_is_positive, air_time_is_positive"


def test_times_are_utc(parsed: Parsed) -> None:
    rows = parsed["times"]
    found = {
        name: (row["scheduled_departure_utc"], row["scheduled_arrival_utc"]) for name, row in zip(TIMES, rows, strict=True)
    }
    assert found == {name: (departs, arrives) for name, (_, departs, arrives) in TIMES.items()}
    assert {row["rule"] for row in rows} == {None}
    assert (rows[0]["departure_utc"], rows[0]["arrival_utc"]) == ("2013-01-01T10:17Z", "2013-01-01T14:30Z")
    assert rows[0]["flight_id"] == "UA-1545-EWR-20130101T1015Z"


def test_real_days_agree_with_the_times_of_their_source(parsed: Parsed) -> None:
    given, rows = real_days(), parsed["days"]
    assert len(given) > 2500
    hours = [f"{row['scheduled_departure_utc'][:13]}:00:00Z" for row in rows]
    assert hours == [row["time_hour"] for row in given]
    assert {row["rule"] for row in rows} == {None}
    assert len({row["flight_id"] for row in rows}) == len(rows)


def test_cancelled_and_diverted(parsed: Parsed) -> None:
    rows = parsed["fates"]
    assert [(row["cancelled"], row["diverted"], row["rule"]) for row in rows] == [
        (False, False, None),
        (True, False, None),
        (False, True, None),
    ]
    assert (rows[1]["tail_number"], rows[1]["departure_utc"], rows[1]["arrival_utc"]) == (None, None, None)


def test_of_duplicates_the_last_good_row_is_kept_and_all_are_accounted_for(lake: Lakehouse) -> None:
    given = [GOOD | {"dep_delay": "1"}, GOOD | {"flight": "7"}, GOOD | {"dep_delay": "9"}, GOOD | {"air_time": "0"}]
    raw = frame(lake, HEADER, given)
    flights, quarantine = split(lake, FLIGHTS, flights_raw=raw, airports=airports(lake))
    assert tuple(flights.columns) == FLIGHTS.declaration.column_names
    assert FLIGHTS.quarantine is not None
    assert tuple(quarantine.columns) == FLIGHTS.quarantine.column_names
    assert FLIGHTS.quarantine.keys == ("_source_file", "_source_row")
    # Computed once, and then looked at and spoiled by DuckDB.
    made = {"bronze": raw.toArrow(), "silver": flights.toArrow(), "quarantine": quarantine.toArrow()}
    kept = {row["flight_number"]: row["departure_delay_min"] for row in made["silver"].to_pylist()}
    assert kept == {1545: 9, 7: 2}
    kept_back = [(row["_source_row"], row["rule"]) for row in made["quarantine"].to_pylist()]
    assert kept_back == [(4, "air_time_is_positive")]

    def counts(**queries: str) -> Any:
        assert FLIGHTS.reconciled is not None
        with lake.duckdb.session() as session:
            for name, rows in made.items():
                session.con.register(f"made_{name}", rows)
                session.con.execute(f"CREATE TEMP VIEW {name} AS {queries.get(name, f'FROM made_{name}')}")
            return rows_reconciled(FLIGHTS.reconciled.counts(session, "bronze", "silver", "quarantine"))

    found = counts()
    assert (found.passed, found.numbers["duplicates"]) == (True, 1)
    lost = counts(silver="FROM made_silver WHERE flight_number <> 7")
    assert (lost.passed, lost.numbers["unaccounted"]) == (False, 1)
    assert not counts(quarantine="FROM made_quarantine WHERE false").numbers["quarantine"]
    # One row three times, and one both in silver and in quarantine.
    seven = "FROM made_silver WHERE flight_number = 7"
    thrice = counts(silver=f"FROM made_silver UNION ALL {seven} UNION ALL {seven}")
    assert (thrice.passed, thrice.numbers["output"], thrice.numbers["doubled"]) == (False, 4, 2)
    both = counts(quarantine=f"FROM made_quarantine UNION ALL BY NAME SELECT _source_file, _source_row {seven}")
    assert (both.passed, both.numbers["doubled"]) == (False, 1)
    # A row is lost and another is there twice: the sums agree.
    assert not counts(silver=f"{seven} UNION ALL {seven}").passed
    # Two rows of one flight, each once.
    same_flight = "SELECT * REPLACE (CAST(1 AS BIGINT) AS _source_row) FROM made_silver WHERE flight_number = 1545"
    keyed = counts(silver=f"FROM made_silver UNION ALL {same_flight}")
    assert (keyed.passed, keyed.numbers["doubled"], keyed.numbers["duplicates"]) == (False, 1, 0)
    orphans = counts(bronze="FROM made_bronze WHERE _source_row <> 2")
    assert (orphans.passed, orphans.numbers["orphans"]) == (False, 1)


def test_the_last_weather_before_departure(lake: Lakehouse) -> None:
    observed = [
        {"origin": "EWR", "temp": "30", "time_hour": "2013-01-01T09:00:00Z"},
        {"origin": "EWR", "temp": "31", "time_hour": "2013-01-01T10:00:00Z"},
        {"origin": "EWR", "temp": "32", "time_hour": "2013-01-01T11:00:00Z"},
        {"origin": "JFK", "temp": "99", "time_hour": "2013-01-01T10:10:00Z"},
        {"origin": "LGA", "temp": "NA", "time_hour": "2013-01-01T07:15:00Z"},
        {"origin": "EWR", "temp": "33", "time_hour": "2013-01-01T11:00:00Z"},
        {"origin": "EWR", "temp": "1", "time_hour": "soon"},
    ]
    departures = [
        ("between", "EWR", "2013-01-01T10:59:00Z"),
        ("just then, a corrected one", "EWR", "2013-01-01T11:00:00Z"),
        ("three hours", "EWR", "2013-01-01T14:00:00Z"),
        ("too old", "EWR", "2013-01-01T14:01:00Z"),
        ("before all", "JFK", "2013-01-01T10:00:00Z"),
        ("no value", "LGA", "2013-01-01T10:00:00Z"),
    ]
    values = ", ".join(f"('{name}', '{origin}', TIMESTAMP '{at}')" for name, origin, at in departures)
    flights = lake.spark.sql(f"SELECT * FROM VALUES {values} AS t(flight_id, origin, scheduled_departure_utc)")
    weather, table = frame(lake, source_of("bronze.weather").header, observed), query_of("silver.flights_weather")
    found = lake.spark.sql(text_over(table), flights=flights, weather=weather)
    assert tuple(found.columns) == table.declaration.column_names
    rows = {row["flight_id"]: row for row in lake.spark.rows(found)}
    assert {name: row["temperature_f"] for name, row in rows.items()} == {
        "between": 31.0,
        "just then, a corrected one": 33.0,
        "three hours": 33.0,
        "too old": None,
        "before all": None,
        "no value": None,
    }
    assert rows["no value"]["observed_at_utc"] is not None
    assert rows["too old"]["observed_at_utc"] is None


def test_a_value_of_the_wrong_type_passes_bronze_and_ends_in_quarantine(lake: Lakehouse, tmp_path: Path) -> None:
    source = new_source(*HEADER)
    path = tmp_path / source.pattern.replace("*", "day")
    path.parent.mkdir()
    lines = [",".join((GOOD | change).values()) for change in ({}, {"distance": "far"}, {"flight": "2"})]
    path.write_text("\n".join([",".join(source.header), *lines, ""]))
    for table in (LANDED_FILES, source.table):
        lake.ensure(table)
    zone = LandingZone(url=str(tmp_path))
    outcome = load_batch(lake.duckdb, zone, source, zone.files(source.pattern))
    assert (outcome.rows, outcome.version) == (3, 1)
    raw = lake.spark.sql(landed_rows(lake.spark, lake.full(source.table)))
    flights, quarantine = split(lake, FLIGHTS, flights_raw=raw, airports=airports(lake))
    (row,) = lake.spark.rows(quarantine)
    assert (row["_source_row"], row["rule"]) == (2, "distance_is_positive")
    # As it landed, for the person who corrects it.
    landed = json.loads(row["row"])["landed"]
    assert landed == {name: value for name, value in (GOOD | {"distance": "far"}).items() if name in HEADER[:16]}
    assert flights.count() == 2
