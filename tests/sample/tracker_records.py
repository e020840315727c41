"""The tracker's records in tests: made at random, validated by plain Python, and put into bronze."""

import datetime as dt
import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro

from tests.engines.lakehouse import Lakehouse
from tests.ingest.record_rows import put_records
from tests.sample.tracker_declared import AVRO_SCHEMA, TRACKER_EVENTS_RAW, UNIQUE

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
EVENT: dict[str, Any] = {"time": "2026-01-01T12:00:00Z", "version": "1.0", "model": "a", "heart_bpm": 70, "kcal": 3}
FIELDS = tuple(EVENT)
RAW_SCHEMA = ", ".join(f"`{column.name}` {column.type}" for column in TRACKER_EVENTS_RAW.columns)
# Where several expectations fail, the first of these decides: those that set aside, then those that drop.
DECISIVE = (
    *("value_is_readable", "types_as_declared", "user_is_given", "time_is_given", "not_from_the_future"),
    *("heart_rate_is_plausible", "kcal_is_not_negative", "on_time"),
)
ASIDE = DECISIVE[:5]
_BAD = 0.06
"""Of so many records each thing is not as it should be."""


@dataclass(frozen=True)
class Record:
    """A Kafka record."""

    offset: int
    value: bytes | None
    key: bytes | None = b"ada"
    at: dt.datetime = NOON
    partition: int = 0
    topic: str = "tracker-events"

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset

    @property
    def row(self) -> tuple[Any, ...]:
        return self.key, self.value, *self.place, self.at, 0, [("source", b"test")]


def text(**changes: Any) -> bytes:
    """An event in JSON."""
    return json.dumps(EVENT | changes).encode()


def wrapped(event: dict[str, Any]) -> bytes:
    """An event in the envelope of Kafka Connect."""
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": event}).encode()


def avro(event: dict[str, Any], *, header: bool = False) -> bytes:
    """An event in Avro, whose time is a datetime, after Confluent's header or not."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO_SCHEMA)), event)
    return (b"\0\0\0\0\7" if header else b"") + out.getvalue()


def append(lake: Lakehouse, records: Iterable[Record]) -> None:
    """Put records into bronze, in one commit."""
    put_records(lake, TRACKER_EVENTS_RAW, [record.row for record in records])


def made(seed: int, count: int, first: int = 0) -> list[Record]:
    """Records of all kinds, the same for the same seed; offsets from `first`."""
    chance = random.Random(seed)  # noqa: S311 records, not keys
    return [_record(chance, first + number) for number in range(count)]


def _record(chance: random.Random, offset: int) -> Record:
    def one(good: Sequence[Any], bad: Sequence[Any]) -> Any:
        return chance.choice(bad if chance.random() < _BAD else good)

    sent = NOON + dt.timedelta(minutes=chance.randrange(30), seconds=chance.randrange(60))
    # Few minutes and users, so that keys meet.
    early = one([sent.second, sent.second, 30], [3600, 3601, 7200, -300, -301])
    measured = sent - dt.timedelta(seconds=early)
    event: dict[str, Any] = {
        "time": _time(chance, measured),
        "version": one(["1.0", "2.0"], [None, 3]),
        "model": one(["a", "b", "ö", ""], [None]),
        "heart_bpm": one([60, 70, 20, 250, None], [19, 251, "72", 72.5, True, 2**31, -(2**31), [1]]),
        "kcal": one([0, 1, 5, None], [-1, "x", {}]),
    }
    for name in [name for name in FIELDS if chance.random() < 0.02]:
        del event[name]
    if chance.random() < _BAD:
        event[chance.choice(["steps", "Time", "x y"])] = chance.choice([1, None, {"a": [1]}])
    key = one([b"ada", b"bo", "ö".encode()], [b"", None, b"\xff"])
    return Record(offset, _value(chance, event, measured), key, sent, chance.randrange(2))


def _time(chance: random.Random, at: dt.datetime) -> Any:
    elsewhere = at.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    forms = [at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.isoformat(), elsewhere.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S")]
    odd = [None, "soon", "10:00", "2026-13-01T00:00:00Z", 2**63, 1e3, False, str(int(at.timestamp() * 1000))]
    return chance.choice(odd if chance.random() < _BAD else [*forms, int(at.timestamp() * 1000)])


def _value(chance: random.Random, event: dict[str, Any], measured: dt.datetime) -> bytes | None:
    plain = json.dumps(event, ensure_ascii=chance.random() < 0.5).encode()
    kind = chance.random()
    if kind < 0.8:
        return plain
    if kind < 0.88:
        return wrapped(event)
    if kind < 0.96:
        typed = EVENT | {"time": chance.choice([measured, None]), "heart_bpm": chance.choice([60, 300, None])}
        return avro(typed, header=chance.random() < 0.5)
    broken = [
        plain[: len(plain) // 2],
        b"",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"\xff" + plain,
        None,
        b"\0",
        b"\2\xff",
        b"{}",
        b"[" * 2000,
    ]
    return chance.choice([*broken, plain + b" ", wrapped(event)[:-1], b'{"schema":{},"payload":null}'])


@dataclass(frozen=True)
class Validated:
    """A record as plain Python validates it."""

    record: Record
    event: dict[str, Any]
    failed: tuple[str, ...]

    @property
    def decided_by(self) -> str | None:
        return next((name for name in DECISIVE if name in self.failed), None)

    @property
    def key(self) -> tuple[Any, Any]:
        return self.event["user_id"], self.event["time"]

    @property
    def order(self) -> tuple[Any, ...]:
        return self.record.at, self.record.partition, self.record.offset, self.record.topic


def validate(record: Record) -> Validated:
    """Validate one record, with nothing of Spark."""
    given, unknown, readable, typed = _read(record.value)
    event = {name: given.get(name) for name in FIELDS} | {"user_id": _text(record.key)}
    time, bpm, kcal = event["time"], event["heart_bpm"], event["kcal"]
    passed = {
        "value_is_readable": readable,
        "types_as_declared": not readable or typed,
        "user_is_given": bool(event["user_id"]),
        "time_is_given": not (readable and typed) or time is not None,
        "not_from_the_future": time is None or time <= record.at + dt.timedelta(minutes=5),
        "heart_rate_is_plausible": bpm is None or 20 <= bpm <= 250,
        "kcal_is_not_negative": kcal is None or kcal >= 0,
        "fields_are_known": not unknown,
        "model_is_given": not (readable and typed) or event["model"] is not None,
        "on_time": time is None or time >= record.at - dt.timedelta(hours=1),
    }
    return Validated(record, event, tuple(name for name, ok in passed.items() if not ok))


def _text(given: bytes | None) -> str | None:
    try:
        return None if given is None else given.decode()
    except UnicodeDecodeError:
        return None


def _read(value: bytes | None) -> tuple[dict[str, Any], set[str], bool, bool]:
    """The fields, the names of unknown ones, whether it could be read, and whether all are of their types."""
    if value and value[:1] in (b"\0", b"\2"):
        body = io.BytesIO(value[5:] if value[:1] == b"\0" else value)
        try:
            event: dict[str, Any] = fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(AVRO_SCHEMA)))  # type: ignore[assignment]
        except (EOFError, IndexError, ValueError, OverflowError, StopIteration):
            return {}, set(), False, False
        return event, set(), True, True
    try:
        whole = json.loads(_text(value) or "")
    except (ValueError, RecursionError):
        return {}, set(), False, False
    if not isinstance(whole, dict):
        return {}, set(), False, False
    inside = whole.get("schema") is not None and isinstance(whole.get("payload"), dict)
    found: dict[str, Any] = whole["payload"] if inside else whole
    known = {name: _typed(name, found.get(name)) for name in FIELDS}
    right = all(known[name] is not None or found.get(name) is None for name in FIELDS)
    return known, set(found) - set(FIELDS), True, right


def _typed(name: str, given: Any) -> Any:
    """A value of the declared type; None where it is of another."""
    if given is None:
        return None
    if name in {"heart_bpm", "kcal"}:
        return given if type(given) is int and -(2**31) <= given < 2**31 else None
    shown = given if isinstance(given, str) else json.dumps(given)
    return _instant(shown) if name == "time" else shown


def _instant(shown: str) -> dt.datetime | None:
    if re.fullmatch(r"[+-]?\d+", shown):
        ms = int(shown)
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC) if abs(ms) < 10**14 else None
    try:
        at = dt.datetime.fromisoformat(shown) if re.match(r"\d{4}-\d\d-\d\d", shown) else None
    except ValueError:
        return None
    return at and (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)


@dataclass
class Expected:
    """What should become of records, by plain Python."""

    silver: dict[tuple[Any, Any], Validated] = field(default_factory=dict[tuple[Any, Any], Validated])
    aside: list[Validated] = field(default_factory=list[Validated])
    failed: Counter[str] = field(default_factory=Counter[str])
    numbers: Counter[str] = field(default_factory=Counter[str])

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Silver's rows, as `silver_rows` gives them."""
        return sorted(
            (
                one.event["user_id"],
                f"{one.event['time']:%Y-%m-%dT%H:%M:%S}",
                *(str(one.event[n]) for n in FIELDS[1:]),
                *one.record.place,
            )
            for one in self.silver.values()
        )


def expected(records: Sequence[Record]) -> Expected:
    """Validate records one after the other, in any order."""
    all_of = Expected()
    for one in map(validate, records):
        all_of.failed.update(one.failed)
        if one.decided_by is None:
            there = all_of.silver.get(one.key)
            all_of.numbers["duplicates"] += there is not None
            if there is None or one.order > there.order:
                all_of.silver[one.key] = one
        elif one.decided_by in ASIDE:
            all_of.aside.append(one)
        else:
            all_of.numbers["late" if one.decided_by == "on_time" else "dropped"] += 1
    all_of.numbers |= Counter(records=len(records), accepted=len(all_of.silver), quarantined=len(all_of.aside))
    return all_of


def without_unique(failed: Iterable[str]) -> tuple[str, ...]:
    """Names of failed expectations but for uniqueness, which one record does not know of."""
    return tuple(name for name in failed if name != UNIQUE)
