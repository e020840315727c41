"""The table that ships for Flink, in a project of its own and on a topic of its own, with a model of its rows."""

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import assets
from ratify_lakehouse.cli.simulate_command import PARTITIONS, EventKind, Record, Simulation, records
from tests.sample.flink_project import FlinkProject

SHIPPED = Path(assets.__file__).parent / "gold" / "heart_rate_minute_flink"
NAME = "heart_rates"
EVENTS = 6_000
_SECONDS = 12_000
ACCEPTED = {EventKind.GOOD, EventKind.OUT_OF_ORDER}


@dataclass
class HeartRates(FlinkProject):
    """The table of a project, its topic, and what was sent there."""

    name: str = NAME
    sent: list[Record] = field(default_factory=list[Record])

    def __post_init__(self) -> None:
        self.declare((SHIPPED / f"{SHIPPED.name}.sql").read_text())
        self.kafka.ensure_topic(self.topic, PARTITIONS)

    def declare(self, sql: str) -> None:
        text = (SHIPPED / "defs.yaml").read_text().replace("topic: tracker-events", f"topic: {self.topic}")
        other = f"equal_to: {{table: {self.project.schema('gold')}.by_spark"
        text = text.replace("equal_to: {table: gold.heart_rate_minute", other)
        self.project.write("gold", NAME, f"{text}  checkpoint_seconds: 1\n", sql)

    def send(self, simulated: Sequence[Record]) -> None:
        self.sent += simulated
        with self.kafka.producer() as producer:
            for key, value, stamp, _ in simulated:
                producer.produce(self.topic, value, key, timestamp=stamp)

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


def simulated(count: int = EVENTS) -> list[Record]:
    """Three hours of events, of which some are late, dated ahead, sent twice, or no events at all."""
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=4)
    simulation = Simulation(count, 40, 0.05, 7, rate=count / _SECONDS, start=start)
    return [each for chunk in records(simulation) for each in chunk]
