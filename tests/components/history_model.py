"""The history of rows in plain Python: what a table of the strategy `scd2` has to be after each pass."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

Key = Hashable
Value = int | None


@dataclass(frozen=True)
class SourceRow:
    """A row of the query; `time` is in microseconds, and None where no column dates it."""

    key: Key
    value: Value
    note: Value
    time: int | None = None


@dataclass(frozen=True)
class RowVersion:
    """A version of a row. Its note is of an ignored column; `read` is whether the last pass read a row for it.

    Attributes:
        dated: The time of the row that it began with: before `since`, if it began because that row was there again.
    """

    value: Value
    note: Value
    since: int
    until: int | None = None
    dated: int = 0
    read: bool = False


@dataclass
class HistoryModel:
    """The table.

    Attributes:
        close: Whether the version of a row that is not there any more ends.
        versions: By key, in the order of time.
    """

    close: bool = True
    versions: dict[Key, list[RowVersion]] = field(default_factory=dict[Key, list[RowVersion]])

    def pass_over(self, rows: Iterable[SourceRow], at: int, failing: Iterable[Key] = ()) -> None:
        """A pass over the rows at a time; of `failing` there are rows that an expectation takes out."""
        given = defaultdict[Key, list[SourceRow]](list)
        for row in rows:
            given[row.key].append(row)
        there = {*given, *failing}
        for key in {*self.versions, *given}:
            made = history(self.versions.get(key, []), given.get(key, []), at)
            if self.close and key not in there and made[-1].until is None:
                made[-1] = replace(made[-1], until=max(at, made[-1].since))
            self.versions[key] = made

    @property
    def rows(self) -> list[tuple[Key, Value, Value, int, int | None, int]]:
        return [(key, v.value, v.note, v.since, v.until, v.dated) for key, made in self.versions.items() for v in made]


def history(stored: Sequence[RowVersion], rows: Sequence[SourceRow], at: int) -> list[RowVersion]:
    """The versions of one key, by going through all times at which something is known of it."""
    begun: Mapping[int, RowVersion] = {version.since: version for version in stored}
    ended = {version.until for version in stored if version.until is not None}
    # An end at which the next version begins is none.
    ended = {each for each in ended if each not in begun or begun[each].until == each}
    after = max((*begun, *ended), default=-1) + 1
    read = {max(at, after) if row.time is None else row.time: row for row in rows}
    made, is_open = _versions(begun, ended, read)
    # The row was not there, and is there again: since now, or since the start of the current version, which says how old
    # the row was when it came back.
    back = _returned(stored) if is_open else None
    again = back.since if back else None if is_open else max(at, *ended)
    if read and again is not None and (not is_open or max(read) < again):
        newest = read[max(read)]
        made, _ = _versions(begun, ended, {**read, again: replace(newest, time=back.dated) if back else newest})
    return [replace(version, read=False) for version in made]


def _returned(stored: Sequence[RowVersion]) -> RowVersion | None:
    """The current version, if it did not begin at the time of its row."""
    last = stored[-1] if stored else None
    return last if last and last.until is None and last.dated < last.since else None


def _versions(
    begun: Mapping[int, RowVersion], ended: Collection[int], read: Mapping[int, SourceRow]
) -> tuple[list[RowVersion], bool]:
    """What is known at these times as versions, and whether the last one is current."""
    made, is_open = list[RowVersion](), False
    for time in sorted({*begun, *ended, *read}):
        row, version = read.get(time), begun.get(time)
        if row:
            if is_open and made[-1].value == row.value:
                made[-1] = replace(made[-1], note=row.note, read=True)
                continue
            new = RowVersion(row.value, row.note, time, None, time if row.time is None else row.time, read=True)
            made, is_open = [*_ended(made, time, is_open=is_open), new], True
            continue
        if version:
            if is_open and made[-1].value == version.value:
                made[-1] = made[-1] if made[-1].read else replace(made[-1], note=version.note)
            else:
                new = RowVersion(version.value, version.note, time, None, version.dated)
                made, is_open = [*_ended(made, time, is_open=is_open), new], True
        if time in ended and is_open:
            made, is_open = _ended(made, time, is_open=True), False
    return made, is_open


def _ended(made: list[RowVersion], time: int, *, is_open: bool) -> list[RowVersion]:
    return [*made[:-1], replace(made[-1], until=time)] if is_open else made
