"""`ratify simulate tracker`: heart-rate events into Kafka, with the faults of such streams, and how many of each.

The tables made from the events are checked against these counts. The same seed and start give the same records.
"""

import datetime as dt
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratify_lakehouse.cli.terminal_output import Json, out, show, show_json

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from ratify_lakehouse.kafka.kafka_client import Kafka

TOPIC = "tracker-events"
VERSIONS = ("1.8.2", "1.9.0", "2.0.1")
MODELS = ("pulse-1", "pulse-2", "pulse-2-pro", "band-lite")

_US = 1_000_000
_CHUNK = 2_000
PARTITIONS = 4

simulate_app = typer.Typer(no_args_is_help=True, help="Send simulated events into Kafka.")


class EventKind(StrEnum):
    """Whether an event is good, or which fault of such streams it has."""

    GOOD = "good"
    OUT_OF_ORDER = "out of order"
    DUPLICATE = "duplicate"
    LATE = "late"
    FUTURE = "future-dated"
    MALFORMED = "malformed"
    WRONG_TYPE = "wrong type"


BAD = tuple(kind for kind in EventKind if kind is not EventKind.GOOD)
"""The kinds that share `bad` evenly."""

# Seconds from an event to its record, where they differ. Each kind adds a microsecond of its own, which makes all times
# distinct: user and time are the key of an event.
_DELAYS = {EventKind.OUT_OF_ORDER: 30, EventKind.LATE: 2 * 3600, EventKind.FUTURE: -600}


@dataclass(frozen=True)
class Simulation:
    """What to send.

    Attributes:
        rate: Events a second, in event time and, if it is not 0, in sending; 0 sends as fast as possible.
        bad: Share of the events that are not good.
        start: Time of the first event.
    """

    events: int
    users: int = 100
    bad: float = 0.01
    seed: int = 0
    rate: float = 0
    start: dt.datetime | None = None


@dataclass(frozen=True)
class Sent:
    """What was sent: how many records, how many of each kind, and in how many seconds."""

    records: int
    kinds: dict[str, int]
    seconds: float

    @property
    def accepted(self) -> int:
        """Events that silver accepts."""
        return self.kinds[EventKind.GOOD] + self.kinds[EventKind.OUT_OF_ORDER]


Record = tuple[str, str, int, EventKind]
"""Key, value, timestamp (milliseconds since 1970) and kind."""


@simulate_app.command()
def tracker(
    rate: Annotated[float, typer.Option(min=0, help="Events a second; 0: as fast as possible.")] = 1000,
    users: Annotated[int, typer.Option(min=1, help="How many users send.")] = 100,
    bad: Annotated[str, typer.Option(help="Share of bad events, such as 1% or 0.01.")] = "1%",
    events: Annotated[int, typer.Option(min=1, help="How many events in all.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed produces the same users, numbers and faults.")] = 0,
    topic: Annotated[str, typer.Option(help="Topic to send to; it is created if it does not exist.")] = TOPIC,
    as_json: Json = False,
) -> None:
    """Send heart-rate events of a tracker into Kafka, and show how many of each kind were sent."""
    from ratify_lakehouse.kafka.kafka_client import Kafka

    sent = send(Kafka(), Simulation(events, users, share(bad), seed, rate), topic)
    if as_json:
        show_json({"topic": topic, **asdict(sent), "accepted": sent.accepted})
        return
    show(f"Sent to {topic}", [{"kind": kind, "records": count} for kind, count in sent.kinds.items()])
    wanted = f" of {rate:,.0f} requested" if rate else ""
    out.print(
        f"{sent.records:,} records in {sent.seconds:.1f} s, {sent.records / sent.seconds:,.0f}/s{wanted}", highlight=False
    )


def share(text: str) -> float:
    """Return a share that is written as 1% or as 0.01.

    Raises:
        typer.BadParameter: it is neither, or not between 0 and 1.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is not a share between 0% and 100%, such as 1% or 0.01.")
    return value


def records(simulation: Simulation) -> Iterator[list[Record]]:
    """Yield the records in chunks; the same simulation gives the same records."""
    chance = random.Random(simulation.seed)  # noqa: S311 made-up events, no secrets
    users = [f"user-{number:06d}" for number in range(simulation.users)]
    # Each event has four microseconds of its own, one for each delay. Sending takes longer than that, so that the events of
    # the next simulation begin after the last ones of this.
    step = max(1, round(_US / simulation.rate / 4)) * 4 if simulation.rate else 4
    began = int((simulation.start or dt.datetime.now(dt.UTC)).timestamp() * _US) // 4 * 4
    tags = [f'"version":"{version}","model":"{model}"' for version in VERSIONS for model in MODELS]
    second = _seconds()
    last: Record | None = None
    # Ten chunks a second, so that a record is sent at about its timestamp.
    size = min(_CHUNK, max(1, round(simulation.rate / 10))) if simulation.rate else _CHUNK
    for first in range(0, simulation.events, size):
        count = min(size, simulation.events - first)
        keys = chance.choices(users, k=count)
        described = chance.choices(tags, k=count)
        numbers = chance.choices(range(48, 190), k=count)
        kinds = _kinds(chance, simulation.bad, count)
        chunk = list[Record]()
        for at, (key, tag, bpm, kind) in enumerate(zip(keys, described, numbers, kinds, strict=True), first):
            stamp = began + at * step
            if kind is EventKind.GOOD:
                whole, micros = divmod(stamp, _US)
                value = f'{{"time":"{second(whole)}.{micros:06d}Z",{tag},"heart_bpm":{bpm},"kcal":{bpm // 12}}}'
                last = (key, value, stamp // 1000, kind)
                chunk.append(last)
            else:
                chunk.append(_bad(kind, key, tag, bpm, stamp, second, last))
        yield chunk


def send(kafka: "Kafka", simulation: Simulation, topic: str = TOPIC) -> Sent:
    """Send the events of a simulation, and return their counts when all have arrived.

    Raises:
        BrokerUnavailable, BrokerDenied: not all arrived.
    """
    kafka.ensure_topic(topic, PARTITIONS)
    counted = Counter[EventKind]()
    began = time.monotonic()
    with kafka.producer(**{"queue.buffering.max.messages": 200_000, "linger.ms": 50}) as producer:
        for chunk in records(simulation):
            _produce(producer, topic, chunk)
            counted.update(kind for _, _, _, kind in chunk)
            if simulation.rate:
                due = began + counted.total() / simulation.rate
                time.sleep(max(0.0, due - time.monotonic()))
    return Sent(counted.total(), {kind.value: counted[kind] for kind in EventKind}, time.monotonic() - began)


def _produce(producer: "Producer", topic: str, chunk: list[Record]) -> None:
    produce = producer.produce
    for key, value, stamp, _ in chunk:
        while True:
            try:
                produce(topic, value, key, timestamp=stamp)
                break
            except BufferError:
                producer.poll(0.05)
    producer.poll(0)


def _kinds(chance: random.Random, bad: float, count: int) -> list[EventKind]:
    kinds = [EventKind.GOOD] * count
    for at in range(count) if bad else ():
        if chance.random() < bad:
            kinds[at] = chance.choice(BAD)
    return kinds


def _bad(
    kind: EventKind, key: str, tag: str, bpm: int, stamp: int, second: Callable[[int], str], last: Record | None
) -> Record:
    """Return an event with a fault; a first event cannot be a duplicate, and is malformed instead."""
    if kind is EventKind.DUPLICATE and last:
        return (last[0], last[1], stamp // 1000, kind)
    offset = 1 + list(_DELAYS).index(kind) if kind in _DELAYS else 0
    whole, micros = divmod(stamp - _DELAYS.get(kind, 0) * _US + offset, _US)
    shown: Any = '"fast"' if kind is EventKind.WRONG_TYPE else bpm
    value = f'{{"time":"{second(whole)}.{micros:06d}Z",{tag},"heart_bpm":{shown},"kcal":{bpm // 12}}}'
    if kind in {EventKind.MALFORMED, EventKind.DUPLICATE}:
        return (key, value[: len(value) // 2], stamp // 1000, EventKind.MALFORMED)
    return (key, value, stamp // 1000, kind)


def _seconds() -> Callable[[int], str]:
    """Return a function that formats seconds since 1970 as ISO 8601; it caches, because most events share a second."""
    known = dict[int, str]()

    def second(whole: int) -> str:
        text = known.get(whole)
        if text is None:
            if len(known) > 100:
                known.clear()
            text = known[whole] = dt.datetime.fromtimestamp(whole, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return text

    return second
