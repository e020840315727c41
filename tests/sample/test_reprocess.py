"""Days that are computed again: which there are, in which tables and in which order."""

import datetime as dt

import pytest

from orchestration.cli.reprocess_run import run_reprocess
from orchestration.reprocess_job import checked_days, chosen_tables
from resources.errors import NotConfigured, PartitionMissing


@pytest.mark.parametrize("day", ["2012-12-31", "2014-01-01", "2013-02-30", "yesterday", ""])
def test_a_day_that_does_not_exist_is_an_error(day: str) -> None:
    """Before anything is started."""
    with pytest.raises(PartitionMissing, match=r"is no partition of the tables.*2013-01-01 to 2013-12-31"):
        run_reprocess(day, day, [])


def test_days_are_in_order() -> None:
    assert checked_days("2013-01-05", "2013-01-07") == (dt.date(2013, 1, 5), dt.date(2013, 1, 7))
    with pytest.raises(NotConfigured, match="The last day, 2013-01-05, is before the first, 2013-01-07"):
        checked_days("2013-01-07", "2013-01-05")


def test_each_table_comes_after_its_inputs() -> None:
    names = [table.table.declaration.table_name for table in chosen_tables([])]
    assert set(names) == {
        "silver.airports",
        "silver.flights",
        "silver.flights_weather",
        "gold.airport_daily",
        "gold.airport_hourly",
        "gold.carrier_daily",
        "gold.carrier_daily_snapshot",
        "gold.route_delay",
    }
    for before, after in (
        ("silver.airports", "silver.flights"),
        ("silver.flights", "silver.flights_weather"),
        ("silver.flights_weather", "gold.airport_hourly"),
        ("silver.flights", "gold.airport_daily"),
    ):
        assert names.index(before) < names.index(after)


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(NotConfigured, match=r"gold.carriers: no such table is computed again; there are silver.airports"):
        run_reprocess("2013-01-05", "2013-01-05", ["gold.carriers"])
