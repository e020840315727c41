"""The table that ships for Flink, on a topic of its own: as a model says, through kills, once, and its checks see faults."""

import datetime as dt
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import assets
from components.flink.flink_checks import KEYS_UNIQUE
from components.flink.flink_table import FlinkTable
from components.table_asset import COMMITS, asset_key
from orchestration.cli.simulate_command import PARTITIONS, EventKind, Record, Simulation, records
from orchestration.continuous_flink import ContinuousFlink
from orchestration.continuous_state import ContinuousOptions
from orchestration.stream_metrics import StreamMetrics
from resources.errors import FlinkStateLost, QueryChanged
from resources.flink.flink_engine import Flink
from resources.kafka.kafka_client import Kafka
from tests.components.test_yaml_tables import Project, project
from tests.resources.flink_client import eventually
from tests.resources.lakehouse import Lakehouse

__all__ = ["project"]

pytestmark = [pytest.mark.stack, pytest.mark.server]

SHIPPED = Path(assets.__file__).parent / "gold" / "heart_rate_minute_flink"
NAME = "heart_rates"
EVENTS = 6_000
ACCEPTED = {EventKind.GOOD, EventKind.OUT_OF_ORDER}


@dataclass
class HeartRates:
    """The table of a project, its topic, and what was sent there."""

    lake: Lakehouse
    project: Project
    kafka: Kafka
    topic: str
    sent: list[Record] = field(default_factory=list[Record])

    def __post_init__(self) -> None:
        self.declare((SHIPPED / f"{SHIPPED.name}.sql").read_text())
        self.kafka.ensure_topic(self.topic, PARTITIONS)
        self.instance = dg.DagsterInstance.ephemeral()

    def declare(self, sql: str) -> None:
        text = (SHIPPED / "defs.yaml").read_text().replace("topic: tracker-events", f"topic: {self.topic}")
        other = f"equal_to: {{table: {self.project.schema('gold')}.by_spark"
        text = text.replace("equal_to: {table: gold.heart_rate_minute", other)
        self.project.write("gold", NAME, f"{text}  checkpoint_seconds: 1\n", sql)

    @property
    def table(self) -> FlinkTable:
        (table,) = self.project.tables.flink_tables
        return table

    @property
    def full_name(self) -> str:
        return self.lake.full(self.table.declaration)

    def send(self, simulated: Sequence[Record]) -> None:
        self.sent += simulated
        with self.kafka.producer() as producer:
            for key, value, stamp, _ in simulated:
                producer.produce(self.topic, value, key, timestamp=stamp)

    def job(self, **config: Any) -> dg.ExecuteInProcessResult:
        engines = {"spark": self.lake.spark, "duckdb": self.lake.duckdb, "kafka": self.kafka}
        resources = {**engines, "flink": Flink(catalog=self.lake.catalog), "catalog": self.lake.catalog}
        defs = dg.Definitions.merge(self.project.tables.definitions, dg.Definitions(resources=resources))
        ops = {"ops": {f"{self.project.schema('gold')}__{NAME}": {"config": config}}} if config else None
        return defs.resolve_implicit_global_asset_job_def().execute_in_process(
            run_config=ops, instance=self.instance, raise_on_error=False
        )

    def materialized(self, **config: Any) -> dict[str, Any]:
        """A run whose checks pass; what it reports."""
        done = self.job(**config)
        assert done.success, causes(done)
        wrong = [check for check in done.get_asset_check_evaluations() if not check.passed]
        assert not wrong
        (made,) = done.get_asset_materialization_events()
        return {name: value.value for name, value in made.materialization.metadata.items()}

    def failure(self) -> str:
        done = self.job()
        assert not done.success
        return causes(done)

    def failed_checks(self) -> set[str]:
        return {check.check_name for check in self.job().get_asset_check_evaluations() if not check.passed}

    def stored(self) -> list[tuple[Any, ...]]:
        with self.lake.duckdb.session() as session:
            session.attach()
            name = f"uc.{self.table.declaration.layer}.{NAME}"
            return session.rows(f"SELECT minute_utc AT TIME ZONE 'UTC', * EXCLUDE (minute_utc) FROM {name} ORDER BY ALL")

    def modelled(self, until: dt.datetime) -> list[tuple[Any, ...]]:
        """The rows of all minutes up to one, from what was sent."""
        groups = defaultdict[tuple[dt.datetime, str], list[tuple[str, int]]](list)
        for key, value, _, kind in self.sent:
            if kind in ACCEPTED:
                event = json.loads(value)
                minute = dt.datetime.fromisoformat(event["time"]).replace(second=0, microsecond=0, tzinfo=None)
                if minute <= until:
                    groups[minute, event["model"]].append((key, event["heart_bpm"]))
        return sorted(
            (*group, len(events), len({user for user, _ in events}), sum(rates) / len(rates), min(rates), max(rates))
            for group, events in groups.items()
            if (rates := [bpm for _, bpm in events])
        )

    def is_complete(self) -> bool:
        """Whether the table has the minutes that no event can be on time for any more, but for the last ones."""
        stored = self.stored()
        closed = dt.datetime.fromtimestamp(max(stamp for _, _, stamp, _ in self.sent) / 1000, dt.UTC) - dt.timedelta(hours=1)
        return bool(stored) and closed.replace(tzinfo=None) - stored[-1][0] < dt.timedelta(minutes=5)

    def check(self) -> None:
        """It is complete, and each of its minutes is as modelled."""
        assert self.is_complete()
        stored = self.stored()
        assert stored == self.modelled(stored[-1][0])


def causes(done: dg.ExecuteInProcessResult) -> str:
    """What a failed run is shown with: the errors of its steps and their causes."""
    found = list[str]()
    for event in done.all_events:
        error = event.step_failure_data.error if event.is_step_failure else None
        while error:
            found.append(error.message)
            error = error.cause
    return "\n".join(found)


@pytest.fixture
def rates(lake: Lakehouse, project: Project, kafka: Kafka, fresh_topic: str) -> HeartRates:
    return HeartRates(lake, project, kafka, fresh_topic)


def simulated() -> list[Record]:
    """Three hours of events, of which some are late, dated ahead, sent twice, or no events at all."""
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=4)
    return [each for chunk in records(Simulation(EVENTS, 40, 0.05, 7, rate=0.5, start=start)) for each in chunk]


def test_every_event_is_counted_once_and_the_checks_see_faults(rates: HeartRates, tmp_path: Path) -> None:
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
