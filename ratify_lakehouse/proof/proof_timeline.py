"""The timeline of the proof's commits: a lane for each table, and on it a dot for each commit at its time."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratify_lakehouse.declarations import Engine
from ratify_lakehouse.delta.commit_history import Commit

# Distinguishable by the colour-blind too, on light and on dark (Okabe and Ito, "Color Universal Design").
_COLOURS = ("#d55e00", "#0072b2", "#cc79a7", "#009e73", "#7f7f7f", "#e69f00")
# In the units of the drawing, of which a letter of the labels takes about seven.
_WIDTH, _RIGHT, _LANE, _TOP, _AXIS, _LETTER, _TICKS = 900, 40, 34, 12, 34, 7, 5


@dataclass(frozen=True)
class Tick:
    """A time on the axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Dot:
    """A commit."""

    x: float
    colour: str
    label: str


@dataclass(frozen=True)
class Lane:
    """A table."""

    table: str
    y: float
    dots: Sequence[Dot]


@dataclass(frozen=True)
class Timeline:
    """Where everything is drawn."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    ticks: Sequence[Tick]
    lanes: Sequence[Lane]


def colour(engine: Engine) -> str:
    """Return the colour of an engine's commits."""
    return _COLOURS[list(Engine).index(engine) % len(_COLOURS)]


def timeline(commits: Mapping[str, Sequence[Commit]]) -> Timeline | None:
    """Return the timeline of tables' commits; None if there are none."""
    times = [commit.timestamp for of_table in commits.values() for commit in of_table]
    if not times:
        return None
    first, last = min(times), max(times)
    span = (last - first).total_seconds() or 1.0
    bottom, left = _TOP + _LANE * len(commits), 30 + _LETTER * max(map(len, commits))

    def x(at: dt.datetime) -> float:
        return round(left + (_WIDTH - left - _RIGHT) * (at - first).total_seconds() / span, 1)

    def tick(number: int) -> Tick:
        at = first + (last - first) * number / max(1, _TICKS - 1)
        return Tick(x(at), f"{at.astimezone(dt.UTC):{'%H:%M:%S' if span < 86_400 else '%m-%d %H:%M'}}")

    def dot(table: str, commit: Commit) -> Dot:
        label = f"{table} version {commit.version}: {commit.operation} by {commit.engine_info}, {commit.timestamp:%H:%M:%S}"
        return Dot(x(commit.timestamp), colour(commit.engine), label)

    lanes = [
        Lane(
            table,
            _TOP + _LANE * (number + 0.5),
            [dot(table, commit) for commit in sorted(of_table, key=lambda commit: commit.version)],
        )
        for number, (table, of_table) in enumerate(commits.items())
    ]
    ticks = [tick(number) for number in range(_TICKS if last > first else 1)]
    return Timeline(_WIDTH, bottom + _AXIS, left, _WIDTH - _RIGHT, _TOP, bottom, ticks, lanes)
