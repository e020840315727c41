"""How a range of versions of a change data feed is read across changes of the table's schema and of its partitions.

Delta reads a range with one schema: of a table with column mapping that of the range's end, of any other one the latest.
Where the schema changed otherwise than by new columns, it refuses that, or reads what a REPLACE removed as NULL. It also
reads the partitions as they are then: where a table was divided otherwise, their columns are NULL. So the range is divided,
and the changes of versions that cannot be read so are found by comparing the rows before and after.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, cast

from ratify_lakehouse.delta.row_changes import adds_rows, removes_rows
from ratify_lakehouse.delta.table_log import TableLog

_MAPPING = "delta.columnMapping.mode"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class FeedParts:
    """A range of versions.

    Attributes:
        ranges: First and last version of each part that the feed gives.
        compared: Versions whose changes are the difference to the version before.
    """

    ranges: tuple[tuple[int, int], ...]
    compared: tuple[int, ...]


def feed_parts(log: TableLog, first: int, last: int) -> FeedParts:
    """Divide a range of versions; `last` is the one that the log is as of.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    found = _versions(log, first, last)
    breaks = list(_breaks(log, found, _extends_layout))
    mapped = _mapped(log)
    # A version that changes rows with the schema has them of both.
    compared = {version for version in breaks if found[version].changes_rows}
    if breaks and not mapped:
        compared |= {version for version in range(first, breaks[-1]) if found[version].changes_rows}
        begins = [breaks[-1]]
    else:
        begins = [first, *(version for version in breaks if version > first)]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    begins = [begin + (begin in compared) for begin in begins]
    return FeedParts(tuple((a, b) for a, b in zip(begins, ends, strict=True) if a <= b), tuple(sorted(compared)))


def partitions_known_since(log: TableLog, first: int, last: int) -> int:
    """Return the first version of a range of which Delta reads the columns that are partitions, and not NULL in them.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    return _since_last_break(log, first, last if _mapped(log) else log.version, _same_partitions)


def last_division(log: TableLog, first: int, last: int) -> int | None:
    """Return the last version of a range in which a table got other partitions; None if it got none.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    return max(_breaks(log, _versions(log, first, last), _same_partitions), default=None)


def changes_rows(log: TableLog, first: int, last: int) -> bool:
    """Return whether one of these versions changes rows.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    return any(version.changes_rows for version in _versions(log, first, last).values())


def values_readable_since(log: TableLog, first: int) -> int:
    """Return the first version, of those from one on, whose values the columns that the table has now can have.

    A version that is replaced by one with other types, or without a field, has values that these columns cannot have.

    Raises:
        LogUnreadable: the log no longer has one of the versions.
        StorageUnavailable.
    """
    return _since_last_break(log, first, log.version, lambda old, new: _has_all_values(old.schema, new.schema))


def _mapped(log: TableLog) -> bool:
    return log.properties.get(_MAPPING, "none") != "none"


@dataclass(frozen=True)
class _Layout:
    """What the columns and the partitions of a table are."""

    schema: Mapping[str, Any]
    partitions: Sequence[str]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "_Layout":
        return cls(json.loads(metadata["schemaString"]), tuple(metadata.get("partitionColumns") or ()))


_Continues = Callable[[_Layout, _Layout], bool]
"""Whether what was written with a layout is read as it was with the next one, in one respect or in all."""


def _same_partitions(old: _Layout, new: _Layout) -> bool:
    return old.partitions == new.partitions


def _extends_layout(old: _Layout, new: _Layout) -> bool:
    """Also where columns were added, which are NULL."""
    return _same_partitions(old, new) and _extends(old.schema, new.schema)


@dataclass(frozen=True)
class _Version:
    """What the log says of a version: its layout, if it sets one, and whether it changes rows."""

    layout: _Layout | None
    changes_rows: bool


def _versions(log: TableLog, first: int, last: int) -> Mapping[int, _Version]:
    found = dict[int, _Version]()
    for version in range(first, last + 1):
        actions = log.actions(version)
        layouts = [_Layout.of(action["metaData"]) for action in actions if "metaData" in action]
        changes_rows = any(adds_rows(each) or removes_rows(each) for each in actions)
        found[version] = _Version(layouts[-1] if layouts else None, changes_rows)
    return found


def _since_last_break(log: TableLog, first: int, last: int, continues: _Continues) -> int:
    """The first version of a range after which the layout continues."""
    found = _versions(log, first, last)
    version = max(_breaks(log, found, continues), default=None)
    # One that changes rows with the layout has them of both.
    return first if version is None else version + found[version].changes_rows


def _breaks(log: TableLog, found: Mapping[int, _Version], continues: _Continues) -> Iterator[int]:
    """The versions at which the layout does not continue, oldest first."""
    known = None
    for version, each in found.items():
        if each.layout is None:
            continue
        known = known or _layout_before(log, version)
        # What is not known may have been any other one.
        if version and (known is None or not continues(known, each.layout)):
            yield version
        known = each.layout


def _layout_before(log: TableLog, version: int) -> _Layout | None:
    found = log.metadata(version - 1) if version else None
    return _Layout.of(found[1]) if found else None


_Fields = Sequence[Mapping[str, Any]]


def _compares(old: Any, new: Any, simple: Callable[[Any, Any], bool], fields: Callable[[_Fields, _Fields], bool]) -> bool:
    """Whether one type of Delta's schema compares with another: by its simple types, and by the fields of its structures."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return simple(old, new)
    one, other = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    if one["type"] != other["type"]:
        return False
    if one["type"] == "struct":
        return fields(one["fields"], other["fields"])
    parts = ("elementType", "keyType", "valueType")
    return all(_compares(one[part], other[part], simple, fields) for part in parts if part in one)


def _extends(old: Any, new: Any) -> bool:
    """Whether a type of Delta's schema has all that another one has, and perhaps more fields."""
    return _compares(old, new, eq, _extends_fields)


def _extends_fields(old: _Fields, new: _Fields) -> bool:
    fields, had = ({field["name"]: field for field in each} for each in (new, old))
    added = [field for name, field in fields.items() if name not in had]
    same = all(name in fields and _same_field(field, fields[name]) for name, field in had.items())
    return same and all(field["nullable"] for field in added)


def _has_all_values(old: Any, new: Any) -> bool:
    """Whether a type has all values of another one: wider numbers, or structures with more fields."""
    return _compares(old, new, lambda one, other: one == other or _is_wider(str(one), str(other)), _has_all_fields)


def _has_all_fields(old: _Fields, new: _Fields) -> bool:
    types = {field["name"].lower(): field["type"] for field in new}
    return all((name := field["name"].lower()) in types and _has_all_values(field["type"], types[name]) for field in old)


def _is_wider(old: str, new: str) -> bool:
    to = _DECIMAL.fullmatch(new)
    if to is None:
        return new in _WIDER.get(old, ())
    precision, scale = map(int, to.groups())
    given = _DECIMAL.fullmatch(old)
    digits, after = map(int, given.groups()) if given else (_DIGITS.get(old, 99), 0)
    return after <= scale and digits - after <= precision - scale


def _same_field(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    physical = [field["metadata"].get(_PHYSICAL_NAME, field["name"]) for field in (old, new)]
    return physical[0] == physical[1] and (new["nullable"] or not old["nullable"]) and _extends(old["type"], new["type"])
