"""Full lists by date in plain Python, and the history of rows that follows from them."""

import datetime as dt
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

Key = int | None


@dataclass(frozen=True)
class ListedRow:
    """What a list has of a key. A note makes no version, and a row that fails an expectation leaves its history as it is."""

    value: int | None
    note: int
    fails: bool = False


Lists = Mapping[dt.date, Mapping[Key, ListedRow]]


@dataclass(frozen=True)
class ListedVersion:
    """A version of a row, from the date of a list until that of another one; None while it is current."""

    value: int | None
    note: int
    since: dt.date
    until: dt.date | None = None


def versions(lists: Lists) -> list[tuple[Key, int | None, int, dt.date, dt.date | None]]:
    """Return all versions, by going through the lists in the order of their dates."""
    made = list[tuple[Key, ListedVersion]]()
    for key in {key for rows in lists.values() for key in rows}:
        current: ListedVersion | None = None
        for date in sorted(lists):
            row = lists[date].get(key)
            if row and row.fails:
                continue
            if row and current and current.value == row.value:
                current = replace(current, note=row.note)
                continue
            made += [(key, replace(current, until=date))] if current else []
            current = ListedVersion(row.value, row.note, date) if row else None
        made += [(key, current)] if current else []
    return sorted(((key, *vars(version).values()) for key, version in made), key=str)


def some_list(chance: random.Random) -> dict[Key, ListedRow]:
    """A list of some of a few keys, so that they change, are missing, and come back."""
    keys: tuple[Key, ...] = (None, 1, 2, 3, 4)
    return {
        key: ListedRow(chance.choice((None, 1, 2)), chance.randint(1, 2), chance.random() < 0.1)
        for key in keys
        if chance.random() < 0.7
    }
