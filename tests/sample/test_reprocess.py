"""Days that are computed again: which there are, in which tables and in which order."""

import datetime as dt

import dagster as dg
import pytest

from ratify_lakehouse.cli.reprocess_run import raise_if_faulty, run_reprocess
from ratify_lakehouse.definitions.reprocess_job import (
    checked_days,
    checks_of,
    chosen_tables,
    reprocess_checks_sensor,
    reprocess_job,
)
from ratify_lakehouse.errors import NotConfigured, PartitionMissing, TerminalError


@pytest.mark.parametrize("day", ["2012-12-31", "2014-01-01", "2013-02-30", "yesterday", ""])
def test_a_day_that_does_not_exist_is_an_error(day: str) -> None:
    """Before anything is started."""
    with pytest.raises(PartitionMissing, match=r"is not a partition of the tables.*2013-01-01 to 2013-12-31"):
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


def test_the_checks_are_those_of_the_tables_and_their_quarantines() -> None:
    found = checks_of(chosen_tables(["silver.flights"]))
    assert {check.asset_key.path[-1] for check in found} == {"flights", "flights_quarantine"}
    assert {"table_is_intact", "written_as_reported", "rows_reconciled"} <= {check.name for check in found}


@pytest.mark.parametrize(("tags", "requested"), [({}, True), ({"ratify/process": "1"}, False)])
def test_checks_are_requested_but_after_the_command(tags: dict[str, str], requested: bool) -> None:
    reprocess = reprocess_job()
    assert reprocess
    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.DagsterRun(job_name="reprocess", run_id="r", tags=tags)
        event = dg.DagsterEvent(event_type_value="PIPELINE_SUCCESS", job_name="reprocess")
        context = dg.build_run_status_sensor_context("s", event, instance, run)
        answer = reprocess_checks_sensor(reprocess)(context)
    assert isinstance(answer, dg.RunRequest) == requested


@dg.asset
def table() -> None:
    """An asset."""


def _result(passed: bool, severity: dg.AssetCheckSeverity) -> dg.ExecuteInProcessResult:
    @dg.asset_check(asset=table)
    def rows() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passed, severity=severity, description="two rows are lost")

    checks = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(rows))
    defs = dg.Definitions(assets=[table], asset_checks=[rows], jobs=[checks])
    return defs.resolve_job_def("checks").execute_in_process()


def test_a_fault_that_a_check_finds_is_an_error_that_names_it() -> None:
    raise_if_faulty(_result(True, dg.AssetCheckSeverity.ERROR), 1)
    raise_if_faulty(_result(False, dg.AssetCheckSeverity.WARN), 1)
    with pytest.raises(TerminalError, match=r"are computed, but checks failed:\ntable, rows: two rows are lost"):
        raise_if_faulty(_result(False, dg.AssetCheckSeverity.ERROR), 1)
    with pytest.raises(TerminalError, match="not all of their checks finished"):
        raise_if_faulty(_result(True, dg.AssetCheckSeverity.ERROR), 2)
