"""`ratify run` and `ratify check`: which runs they ask for, on the tables that ship; tests/smoke/test_demo.py runs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ratify_lakehouse.cli import table_run
from ratify_lakehouse.cli.recorded_runs import RecordedRuns
from ratify_lakehouse.cli.table_run import check_tables, run_tables
from ratify_lakehouse.errors import NotConfigured


@dataclass
class Asked:
    """What the runs were that a command asked for."""

    jobs: list[str] = field(default_factory=list[str])
    tables: list[set[str]] = field(default_factory=list[set[str]])
    checks: list[set[str]] = field(default_factory=list[set[str]])
    tags: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    config: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setenv("RATIFY_HOME", str(tmp_path))
    asked = Asked()

    def run(
        _: RecordedRuns,
        job: str,
        what: str,
        keys: Sequence[dg.AssetKey],
        request: dg.RunRequest,
        *,
        checks: Sequence[dg.AssetCheckKey] = (),
    ) -> None:
        assert what
        asked.jobs.append(job)
        asked.tables.append({".".join(key.path[-2:]) for key in keys})
        asked.checks.append({check.name for check in checks})
        asked.tags.append(request.tags)
        asked.config.append(request.run_config.get("ops", {}))

    monkeypatch.setattr(table_run.RecordedRuns, "run", run)
    return asked


def test_one_run_makes_a_table_with_its_quarantine(asked: Asked) -> None:
    run_tables(["silver.flights"])
    assert (asked.jobs, asked.tables) == (["ingest"], [{"silver.flights", "silver.flights_quarantine"}])
    assert asked.config == [{}]


def test_what_they_are_made_of_and_what_is_made_of_them_are_in_the_same_run(asked: Asked) -> None:
    run_tables(["silver.flights_weather"], upstream=True)
    run_tables(["silver.flights_weather"], downstream=True)
    run_tables(["gold.airport_daily", "syncs.planes"])
    above, below, both = asked.tables
    assert above >= {"bronze.weather", "bronze.flights_raw", "silver.flights", "silver.flights_quarantine"}
    assert "gold.airport_hourly" not in above
    assert below == {"silver.flights_weather", "gold.airport_hourly"}
    assert both == {"gold.airport_daily", "syncs.planes"}
    assert set(asked.jobs) == {"ingest"}


def test_all_rows_are_computed_of_the_named_tables_only(asked: Asked) -> None:
    run_tables(["silver.flights_weather"], downstream=True, full=True)
    assert asked.config == [{"silver__flights_weather": {"config": {"full_refresh": True}}}]
    run_tables(["gold.airport_daily"], full=True)
    days = asked.tags[-1]
    assert days["dagster/asset_partition_range_start"] == "2013-01-01"
    assert days["dagster/asset_partition_range_end"] == "2013-12-31"
    with pytest.raises(NotConfigured, match=r"bronze\.weather cannot recompute all its rows: leave --full out"):
        run_tables(["bronze.weather"], full=True)


def test_the_checks_of_a_table_are_executed_without_it(asked: Asked) -> None:
    check_tables(["gold.route_delay"])
    check_tables(["gold.route_delay"], full=True)
    assert asked.tables == [set(), set()]
    assert asked.checks[0] == asked.checks[1] >= {"table_is_intact", "written_as_reported", "maintained_as_declared"}
    assert [bool(tags) for tags in asked.tags] == [False, True]


@pytest.mark.parametrize("name", ["silver.flihgts", "flights", "ratify.silver.flights", "ops.landed_files"])
def test_a_name_that_is_unknown_is_said_with_those_that_are_known(asked: Asked, name: str) -> None:
    for command in (run_tables, check_tables):
        with pytest.raises(NotConfigured, match=rf"no table or sync called {name}\. Choose one of: .*silver\.flights, "):
            command([name])
    assert asked.jobs == []
