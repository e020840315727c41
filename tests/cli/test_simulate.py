"""The simulator: what it says that it has sent is what is in the topic."""

import datetime as dt
import json
from collections import Counter
from itertools import chain

import pytest
import typer

from ratify_lakehouse.cli.simulate_command import BAD, EventKind, Record, Simulation, records, send, share
from ratify_lakehouse.kafka.kafka_client import Kafka

START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def simulated(**more: object) -> list[Record]:
    values = {"events": 20_000, "users": 50, "bad": 0.1, "seed": 7, "start": START}
    return list(chain.from_iterable(records(Simulation(**values | more))))  # type: ignore[arg-type]


def validated(record: Record, seen: set[tuple[str, str]]) -> EventKind:
    """What a record is, found without the simulator: by its content and its timestamp alone."""
    key, value, stamp, _ = record
    try:
        event = json.loads(value)
    except json.JSONDecodeError:
        return EventKind.MALFORMED
    assert set(event) == {"time", "version", "model", "heart_bpm", "kcal"}
    if not isinstance(event["heart_bpm"], int):
        return EventKind.WRONG_TYPE
    if (key, event["time"]) in seen:
        return EventKind.DUPLICATE
    seen.add((key, event["time"]))
    behind = stamp / 1000 - dt.datetime.fromisoformat(event["time"]).timestamp()
    if behind > 3600:
        return EventKind.LATE
    if behind < -300:
        return EventKind.FUTURE
    return EventKind.OUT_OF_ORDER if behind > 1 else EventKind.GOOD


def test_every_record_is_of_the_kind_that_it_is_counted_as() -> None:
    seen = set[tuple[str, str]]()
    sent = simulated()
    assert [validated(record, seen) for record in sent] == [record[3] for record in sent]
    counted = Counter(record[3] for record in sent)
    assert 1800 < sum(counted[kind] for kind in BAD) < 2200
    assert all(counted[kind] > 200 for kind in BAD)
    assert len({key for key, *_ in sent}) == 50


@pytest.mark.parametrize("rate", [0, 3, 1000, 70_000])
def test_good_events_of_a_user_never_share_a_time(rate: float) -> None:
    # One user, for whom all would be duplicates; validated as in silver.
    seen = set[tuple[str, str]]()
    sent = simulated(users=1, rate=rate, bad=0.9, events=5000)
    assert [validated(record, seen) for record in sent] == [record[3] for record in sent]


def test_the_same_seed_gives_the_same_records() -> None:
    assert simulated() == simulated()
    assert simulated() != simulated(seed=8)
    assert {record[3] for record in simulated(bad=0)} == {EventKind.GOOD}


def test_shares() -> None:
    assert (share("1%"), share("0.25"), share("100%")) == (0.01, 0.25, 1)
    for wrong in ("101%", "-1", "many"):
        with pytest.raises(typer.BadParameter, match="not a share between"):
            share(wrong)


@pytest.mark.stack
def test_all_that_was_sent_is_in_the_topic(kafka: Kafka, fresh_topic: str) -> None:
    sent = send(kafka, Simulation(events=5000, bad=0.05), fresh_topic)
    assert (sent.records, sum(sent.kinds.values())) == (5000, 5000)
    assert sent.accepted == 5000 - sum(sent.kinds[kind] for kind in BAD if kind is not EventKind.OUT_OF_ORDER)
    assert kafka.offset_range([fresh_topic]).behind({}) == 5000
