"""The table that ships for Flink, on a topic of its own: as a model says, through kills, once, and its checks see faults."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ratify_lakehouse.cli.simulate_command import EventKind
from ratify_lakehouse.components.flink.flink_checks import KEYS_UNIQUE
from ratify_lakehouse.components.table_asset import COMMITS, asset_key
from ratify_lakehouse.definitions.continuous_flink import ContinuousFlink
from ratify_lakehouse.definitions.continuous_state import ContinuousOptions
from ratify_lakehouse.definitions.stream_metrics import StreamMetrics
from ratify_lakehouse.engines.flink.flink_engine import Flink
from ratify_lakehouse.errors import FlinkStateLost, QueryChanged
from tests.components.conftest import no_previews
from tests.components.test_yaml_tables import project
from tests.engines.flink_client import eventually
from tests.engines.lakehouse import quick_creation
from tests.sample.heart_rates import EVENTS, SHIPPED, HeartRates, simulated

__all__ = ["no_previews", "project", "quick_creation"]

FEW = 1_200

pytestmark = [pytest.mark.stack, pytest.mark.server]


@pytest.mark.usefixtures("quick_creation", "no_previews")
def test_every_event_is_counted_once_and_the_checks_pass(rates: HeartRates) -> None:
    rates.send(simulated(FEW))
    made = rates.materialized()
    rates.check()
    assert (made["began at"], made["records read"]) == ("the start of the topics", FEW)
    assert made[COMMITS]["versions"]
    commits = [rates.lake.commit(rates.table.declaration, version) for version in made[COMMITS]["versions"] if version]
    txns = [(action["txn"]["appId"], action["txn"]["version"]) for commit in commits for action in commit if "txn" in action]
    assert len(txns) == len(set(txns)) == len(commits) > 0


@pytest.mark.long
def test_every_event_is_counted_once_through_a_kill_and_the_checks_see_faults(rates: HeartRates, tmp_path: Path) -> None:
    events = simulated()
    rates.send(events[: EVENTS // 2])
    killed = subprocess.run(
        [sys.executable, "-m", "tests.components.killed_flink", str(tmp_path), rates.project.root.name], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    first = rates.materialized()
    rates.check()
    assert first["began at"].startswith("checkpoint ")
    rates.send(events[EVENTS // 2 :])
    second = rates.materialized()
    rates.check()
    assert second["records read"] == EVENTS - EVENTS // 2
    assert second[COMMITS]["versions"]
    assert rates.materialized()[COMMITS]["versions"] == []
    _check_faults_are_seen(rates)


@pytest.mark.long
def test_a_state_that_does_not_fit_is_refused_until_a_full_refresh(rates: HeartRates) -> None:
    rates.send(simulated())
    rates.materialized()
    _check_lost_states(rates)


@pytest.mark.long
def test_it_runs_on_until_it_is_stopped(rates: HeartRates) -> None:
    events, ready, stop = simulated(), threading.Event(), threading.Event()
    rates.send(events[: EVENTS // 2])
    given = ContinuousOptions(every=10, round_seconds=5, metrics_port=0)
    engines = rates.kafka, rates.lake.spark, Flink(catalog=rates.lake.catalog)
    running = ContinuousFlink(rates.table, *engines, rates.instance, given, stop, StreamMetrics(), ready.set)
    working = threading.Thread(target=running.run)
    working.start()
    try:
        assert ready.wait(180)
        rates.send(events[EVENTS // 2 :])
        eventually(rates.is_complete, 120)
    finally:
        stop.set()
        working.join(180)
    assert not working.is_alive()
    rates.check()
    reports = rates.instance.fetch_materializations(asset_key(rates.table.declaration), limit=100).records
    reported = [version for each in reports for version in each.asset_materialization.metadata[COMMITS].value["versions"]]
    written = [commit["version"] for commit in rates.lake.run(f"DESCRIBE HISTORY {rates.full_name}") if commit["version"]]
    assert sorted(reported) == [0, *sorted(written)]
    # A run goes on where it stopped.
    rates.send([("user", "{", max(stamp for _, _, stamp, _ in rates.sent), EventKind.MALFORMED)])
    before = rates.stored()
    assert rates.materialized()["began at"].startswith("checkpoint ")
    assert rates.stored()[: len(before)] == before
    rates.check()


def _check_faults_are_seen(rates: HeartRates) -> None:
    other = f"ratify.{rates.project.schema('gold')}.by_spark"
    later = "max(minute_utc) + INTERVAL 3 HOURS, 'later', 1, 1, 1, 1, 1"
    columns = "minute_utc, model, events, users, mean_heart_bpm, min_heart_bpm, max_heart_bpm"
    rates.lake.run(
        f"CREATE TABLE {other} TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported') AS "
        f"SELECT {columns} FROM {rates.full_name} UNION ALL SELECT {later} FROM {rates.full_name}"
    )
    equal = f"equals_{rates.project.schema('gold')}_by_spark"
    assert equal not in rates.failed_checks()
    rates.lake.run(f"UPDATE {other} SET events = events + 1 WHERE model <> 'later'")
    assert equal in rates.failed_checks()
    twice = f"SELECT {columns} FROM {rates.full_name} LIMIT 1"
    rates.lake.run(f"INSERT INTO {rates.full_name} {twice}")
    assert KEYS_UNIQUE in rates.failed_checks()
    rates.lake.run(f"DROP TABLE {other}")


def _check_lost_states(rates: HeartRates) -> None:
    rates.declare((SHIPPED / f"{SHIPPED.name}.sql").read_text().replace("250", "249"))
    assert QueryChanged.__name__ in rates.failure()
    rates.declare((SHIPPED / f"{SHIPPED.name}.sql").read_text())
    folder = rates.table._folder(rates.lake.spark)
    shutil.rmtree(folder)
    rates.send([("user", "{", max(stamp for _, _, stamp, _ in rates.sent), EventKind.MALFORMED)])
    assert FlinkStateLost.__name__ in rates.failure()
    assert rates.materialized(full_refresh=True)["began at"] == "the start of the topics"
    rates.check()
