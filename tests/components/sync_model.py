"""What a sync has to do, in plain Python: the destination as a dictionary, and each pass as one function."""

import datetime as dt
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from ratify_lakehouse.components.syncs.sync_declaration import RowErrors, SyncDeclaration, SyncStrategy

Text = str | None
SourceRow = Mapping[str, Text]
Key = tuple[Any, ...]
Row = dict[str, Any]

TYPES = {"k": "string", "n": "decimal(10,2)", "t": "timestamp", "v": "int", "w": "string"}
"""Columns that the source gives, as text, and their types in the destination. It has `x`, too, which no sync writes."""

NO_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")


class Misfit(ValueError):
    """A value that is none of the column's type."""


def converted(column: str, text: Text) -> Any:
    """Return the value that a text has in the destination."""
    if text is None:
        return None
    number = TYPES[column] in {"int", "decimal(10,2)"}
    if number and (text[0] == "+" or text.removeprefix("-").startswith(tuple(f"0{digit}" for digit in range(10)))):
        # A number does not give the zero or the sign back.
        raise Misfit
    try:
        match TYPES[column]:
            case "int":
                value = int(text)
                if abs(value) > 2**31 - 1:
                    raise Misfit
                return value
            case "decimal(10,2)":
                found = Decimal(text)
                if abs(found) >= 10**8 or found != found.quantize(Decimal("0.01")):
                    raise Misfit
                return found.quantize(Decimal("0.01"))
            case "timestamp":
                return dt.datetime.fromisoformat(text)
            case _:
                return text
    except (ValueError, InvalidOperation) as error:
        raise Misfit from error


@dataclass
class ModelledPass:
    """What a pass does: an error by its name, or how many rows it inserts, updates and deletes."""

    error: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def changed(self) -> bool:
        return bool(self.inserted + self.updated + self.deleted)


@dataclass
class SyncModel:
    """A destination, and the syncs that write to it.

    Attributes:
        rows: By their number, which distinguishes rows without keys.
        owned: By sync: the keys that it has written.
        failed: By sync: the rows among its dead letters.
        partitioned: The destination is partitioned by `w`, in which some texts would be NULL.
    """

    rows: list[Row] = field(default_factory=list[Row])
    owned: dict[str, set[Key]] = field(default_factory=dict[str, set[Key]])
    failed: dict[str, int] = field(default_factory=dict[str, int])
    partitioned: bool = False

    def run(self, sync: SyncDeclaration, source: Sequence[SourceRow]) -> ModelledPass:
        """A pass over a source that is read as a whole."""
        good, lost, withheld, failed = list[Row](), False, set[Key](), 0
        for given in source:
            row, misfits = self._converted(given)
            if not misfits:
                good.append(row)
                continue
            failed += 1
            if misfits.intersection(sync.keys):
                lost = True
            else:
                withheld.add(_key(sync, row))
        if failed and sync.row_errors is RowErrors.FAIL:
            return ModelledPass("RowsNotConverted")
        if sync.strategy.keyed:
            chosen = _deduplicated(sync, good)
            if chosen is None:
                return ModelledPass("RowsNotConverted")
            good = chosen
        outcome = self._apply(sync, good, lost=lost, withheld=withheld, empty=not source)
        if not outcome.error:
            self.failed[sync.name] = failed + (self.failed.get(sync.name, 0) if sync.strategy is SyncStrategy.APPEND else 0)
        return outcome

    def _converted(self, given: SourceRow) -> tuple[Row, set[str]]:
        """The values that fit, and the columns whose values do not."""
        row, misfits = dict[str, Any](), set[str]()
        for column, text in given.items():
            try:
                row[column] = converted(column, text)
            except Misfit:
                misfits.add(column)
            if self.partitioned and column == "w" and text in NO_PARTITIONS:
                misfits.add(column)
        return row, misfits

    def _apply(self, sync: SyncDeclaration, good: list[Row], *, lost: bool, withheld: set[Key], empty: bool) -> ModelledPass:
        if sync.strategy is SyncStrategy.APPEND:
            self.rows += [_full(row) for row in good]
            return ModelledPass(inserted=len(good))
        if sync.strategy is SyncStrategy.FULL:
            wanted, before = [_full(row) for row in good], self.rows
            if _counted(wanted) == _counted(before):
                return ModelledPass()
            self.rows = wanted
            return ModelledPass(inserted=len(wanted), deleted=len(before))
        stored = {_key(sync, row): row for row in self.rows}
        wanted = {_key(sync, row): row for row in good}
        inserted = {key: _full(row) for key, row in wanted.items() if key not in stored}
        updated = {
            key: {**stored[key], **row}
            for key, row in wanted.items()
            if key in stored and any(stored[key][name] != value for name, value in row.items())
        }
        deleted = set[Key]()
        if sync.strategy is SyncStrategy.MIRROR and not lost:
            parents = {tuple(row[name] for name in sync.guards.scope) for row in good}
            absent = {key: row for key, row in stored.items() if key not in wanted and key not in withheld}
            deleted = {key for key, row in absent.items() if self._deletable(sync, key, row, parents)}
            if deleted and empty and not sync.guards.empty_source:
                return ModelledPass("SyncRefused")
            if len(deleted) > sync.guards.max_fraction * len(stored):
                return ModelledPass("SyncRefused")
        result = {key: row for key, row in stored.items() if key not in deleted} | updated | inserted
        self.rows = list(result.values())
        if sync.guards.tracked:
            self.owned[sync.name] = (self.owned.get(sync.name, set()) | set(inserted) | set(updated)) - deleted
        return ModelledPass(inserted=len(inserted), updated=len(updated), deleted=len(deleted))

    def _deletable(self, sync: SyncDeclaration, key: Key, row: Row, parents: set[Key]) -> bool:
        guards = sync.guards
        if guards.scope and tuple(row[name] for name in guards.scope) not in parents:
            return False
        return not guards.tracked or key in self.owned.get(sync.name, set())


@dataclass
class EventModel:
    """The destination of a sync of the strategy cdc: by key the sequence and the value of the newest event that counts."""

    rows: dict[Text, tuple[int, int | None]] = field(default_factory=dict[Text, tuple[int, int | None]])
    deleted: dict[Text, int] = field(default_factory=dict[Text, int])
    truncated: int = -1

    def apply(self, events: Sequence["Event"]) -> bool:
        """Apply events, in whatever order; return whether the destination changes."""
        before = dict(self.rows)
        for operation, key, sequence, value in events:
            if operation == "t":
                self.truncated = max(self.truncated, sequence)
            elif operation == "d":
                self.deleted[key] = max(self.deleted.get(key, -1), sequence)
            elif sequence > self.rows.get(key, (-1, None))[0]:
                self.rows[key] = (sequence, value)
        self.rows = {
            key: (sequence, value)
            for key, (sequence, value) in self.rows.items()
            if sequence >= self.truncated and sequence > self.deleted.get(key, -1)
        }
        return self.rows != before


Event = tuple[str, str | None, int, int | None]
"""Operation, key, sequence and value. A truncation may have no key."""


def random_events(chance: random.Random, number: int, made: dict[tuple[str, int], Event]) -> list[Event]:
    """Events of a batch in random order, a few of them twice, several of one sequence: a truncation may have that of any.

    `made`: those of other batches, which get these; a pass may read the events of all batches.
    """
    events = list[Event]()
    for _ in range(chance.randint(1, 8)):
        key, sequence = chance.choice("abc"), number * 4 + chance.randint(0, 6)
        event = (chance.choice("ccuud"), key, sequence, chance.choice((1, 2, None)))
        # Two different events of one key and sequence are an error.
        event = made.setdefault((key, sequence), event)
        if event not in events:
            events.append(event)
    if chance.random() < 0.25:
        events.append(("t", chance.choice((None, "a", "b")), chance.choice(events)[2], None))
    events += chance.sample(events, min(len(events), 2))
    chance.shuffle(events)
    return events


def _key(sync: SyncDeclaration, row: Row) -> Key:
    return tuple(row[name] for name in sync.keys)


def _full(row: Row) -> Row:
    return {**{name: row.get(name) for name in TYPES}, "x": None}


def _counted(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in (*TYPES, "x")) for row in rows)


def _deduplicated(sync: SyncDeclaration, rows: list[Row]) -> list[Row] | None:
    """The row of each key; None if it is not known which it is."""
    by_key = dict[Key, list[Row]]()
    for row in rows:
        by_key.setdefault(_key(sync, row), []).append(row)
    chosen = list[Row]()
    for same in by_key.values():
        best = same
        if sync.latest:
            ranks = [tuple((row[name] is not None, _orderable(row[name])) for name in sync.latest) for row in same]
            best = [row for row, rank in zip(same, ranks, strict=True) if rank == max(ranks)]
            best = [row for number, row in enumerate(best) if row not in best[:number]]
        if len(best) > 1:
            return None
        chosen += best
    return chosen


def _orderable(value: Any) -> Any:
    return 0 if value is None else value
